"""What columns of a generated table hold: each value is a function of the seed, the column and the row's number, made for many rows at once.

An element of an array has a number of its own, that of its row times the elements a row has, and its place behind; so nested values are made as
columns too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.datagen.rows import words
from poundlock.formats.arrays import Numbers, column_of, indices_of, lists_of, numbers_in
from poundlock.sql.functions.kernels.columns import decimals, null_where
from poundlock.sql.functions.kernels.time_values import to_local

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DAY_MS = 86_400_000
_LIMB = 10**13
_Bits = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Rows from one number to before another.

    Args:
        start, stop: numbers of rows, or of the elements in them.
        per_row: elements of a row.
        from_ms: when row 0 was due, ms since 1970; `rate` rows a second have been since.
    """

    start: int
    stop: int
    seed: int
    from_ms: int
    rate: int
    per_row: int = 1

    def __len__(self) -> int:
        return self.stop - self.start

    def bits(self, stream: int) -> _Bits:
        """Return 64 random bits for each."""
        return words(self.seed, stream, self.start, self.stop)

    def times(self) -> Numbers:
        """Return when each was due, ms since 1970."""
        numbers = np.arange(self.start, self.stop, dtype=np.int64) // self.per_row
        whole, rest = np.divmod(numbers, self.rate)
        times: Numbers = self.from_ms + whole * 1_000 + rest * 1_000 // self.rate
        return times

    def elements(self, count: int) -> NumberedRows:
        """Return the elements of these, so many each."""
        return replace(self, start=self.start * count, stop=self.stop * count, per_row=self.per_row * count)


class ColumnValues(Protocol):
    """Makes the values of a column."""

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""


def _below(bits: _Bits, count: int) -> _Bits:
    """Return numbers from 0 to below a count, which is at most 2 ** 64."""
    return bits if count >= 1 << 64 else bits % np.uint64(count)


def _fractions(bits: _Bits) -> npt.NDArray[np.float64]:
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, slots=True)
class RandomTruths:
    """True or false."""

    stream: int

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        return column_of((rows.bits(self.stream) & np.uint64(1)).astype(np.bool_), pa.bool_())


@dataclass(frozen=True, slots=True)
class RandomWholeNumbers:
    """Whole numbers between two bounds, which are among them."""

    stream: int
    kind: pa.DataType
    least: int
    most: int

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        offsets = _below(rows.bits(self.stream), self.most - self.least + 1)
        with np.errstate(over="ignore"):
            numbers = (offsets + np.uint64(self.least % (1 << 64))).view(np.int64)
        return column_of(numbers.astype(f"<i{self.kind.bit_width // 8}"), self.kind)


@dataclass(frozen=True, slots=True)
class RandomReals:
    """Floating point numbers between two bounds."""

    stream: int
    kind: pa.DataType
    least: float
    most: float

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        part = _fractions(rows.bits(self.stream))
        numbers = self.least * (1 - part) + self.most * part
        return column_of(numbers.astype(f"<f{self.kind.bit_width // 8}"), self.kind)


@dataclass(frozen=True, slots=True)
class RandomDecimals:
    """Decimals between two bounds, given as whole numbers of the last digit."""

    stream: int
    kind: pa.DataType
    least: int
    most: int

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        count = self.most - self.least + 1
        if count < 1 << 63:
            offsets = _as_decimals(_below(rows.bits(self.stream), count))
        else:  # three numbers, one behind the other, of 13 digits each but the first
            first = _below(rows.bits(self.stream), max(count // _LIMB**2, 1))
            second, third = (_below(rows.bits(self.stream + more), _LIMB) for more in (1, 2))
            step = decimals([_LIMB], pa.decimal256(14, 0))[0]
            high = pc.add(pc.multiply(_as_decimals(first), step), _as_decimals(second))
            offsets = pc.add(pc.multiply(high, step), _as_decimals(third))
        numbers = pc.cast(pc.add(offsets, decimals([self.least], pa.decimal256(39, 0))[0]), pa.decimal128(38, 0))
        return pa.Array.from_buffers(self.kind, len(numbers), numbers.buffers(), 0)


def _as_decimals(numbers: _Bits) -> pa.Array:
    return pc.cast(column_of(numbers.view(np.int64), pa.int64()), pa.decimal256(19, 0))


@dataclass(frozen=True, slots=True)
class RandomTexts:
    """Hexadecimal digits, or bytes: always as many, or from one to so many.

    Args:
        kind: pa.string() or pa.binary().
        length: characters or bytes.
    """

    stream: int
    kind: pa.DataType
    length: int
    varies: bool

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        of_word = 16 if self.kind == pa.string() else 8
        many = -(-self.length // of_word)
        bits = words(rows.seed, self.stream, rows.start * many, rows.stop * many)
        data = bits.view(np.uint8)
        if of_word == 16:
            digits = np.empty((len(data), 2), np.uint8)
            digits[:, 0], digits[:, 1] = _HEX[data >> 4], _HEX[data & 15]
            data = digits.reshape(-1)
        table = data.reshape(len(rows), many * of_word)[:, : self.length]
        lengths = np.full(len(rows), self.length, np.int64)
        if self.varies:
            lengths = (rows.bits(self.stream + 1) % np.uint64(self.length)).astype(np.int64) + 1
            table = table[np.arange(self.length) < lengths[:, None]]
        ends = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(table))]
        return pa.Array.from_buffers(self.kind, len(rows), buffers, 0)


@dataclass(frozen=True, slots=True)
class PastTimes:
    """When a row was due, or up to so much earlier: as a timestamp, a date or a time of day.

    Args:
        zone: whose wall time it is; None for instants.
    """

    stream: int
    kind: pa.DataType
    max_past_ms: int
    zone: tzinfo | None

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        times = rows.times()
        if self.max_past_ms:
            times = times - _below(rows.bits(self.stream), self.max_past_ms + 1).astype(np.int64)
        if self.zone is not None:
            times = to_local(times * 1_000, self.zone) // 1_000
        if pa.types.is_date(self.kind):
            return column_of((times // _DAY_MS).astype(np.int32), self.kind)
        if pa.types.is_time(self.kind):
            return column_of((times % _DAY_MS).astype(np.int32), self.kind)
        return column_of(times * (1_000 if self.kind.unit == "us" else 1_000_000), self.kind)


@dataclass(frozen=True, slots=True)
class SequenceValues:
    """One number behind the other."""

    kind: pa.DataType
    start: int

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        numbers = column_of(np.arange(rows.start, rows.stop, dtype=np.int64) + self.start, pa.int64())
        if pa.types.is_binary(self.kind):
            return pc.cast(pc.cast(numbers, pa.string()), self.kind)
        if pa.types.is_decimal(self.kind):
            return pc.cast(pc.cast(numbers, pa.decimal128(19, 0)), self.kind)
        return pc.cast(numbers, self.kind, safe=not pa.types.is_floating(self.kind))


# --- values of values ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RandomRows:
    """Values of several fields."""

    kind: pa.DataType
    of: Sequence[ColumnValues]

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        return pa.StructArray.from_arrays([each.make(rows) for each in self.of], fields=list(self.kind))


@dataclass(frozen=True, slots=True)
class RandomLists:
    """So many elements each."""

    kind: pa.DataType
    element: ColumnValues
    length: int

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        made = lists_of(self.element.make(rows.elements(self.length)), np.full(len(rows), self.length, np.int64))
        return pa.Array.from_buffers(self.kind, len(made), made.buffers()[:2], 0, children=[made.values])


@dataclass(frozen=True, slots=True)
class RandomMaps:
    """So many entries each; fewer where a key comes twice, of which the first counts. Keys are no rows, arrays or maps."""

    kind: pa.DataType
    key: ColumnValues
    value: ColumnValues
    length: int

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        entries = rows.elements(self.length)
        keys, values = self.key.make(entries), self.value.make(entries)
        encoded = keys.dictionary_encode()
        owners = np.repeat(np.arange(len(rows)), self.length)
        pairs = owners * max(len(encoded.dictionary), 1) + numbers_in(encoded.indices)
        _, firsts = np.unique(pairs, return_index=True)
        kept = np.sort(firsts)
        ends = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(np.bincount(owners[kept], minlength=len(rows)), out=ends[1:])
        chosen = [each.take(indices_of(kept)) for each in (keys, values)]
        return pa.MapArray.from_arrays(column_of(ends, pa.int32()), *chosen).cast(self.kind)


@dataclass(frozen=True, slots=True)
class SometimesNull:
    """Values of which a part is null."""

    stream: int
    of: ColumnValues
    rate: float

    def make(self, rows: NumberedRows) -> pa.Array:
        """Return the values of some rows."""
        return null_where(self.of.make(rows), _fractions(rows.bits(self.stream)) < self.rate)
