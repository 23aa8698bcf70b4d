"""What is generated: the reference events, columns by DDL, or what a user's function returns.

Row i depends on the seed and on i only: what looks random is a function of (seed, stream, row), made for many rows at once and
without a state, so that any row can be made by any task in any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, Chunk, Lines, Records

RowFunction = Callable[[int, random.Random], dict[str, Any]]
_TEMPLATE = b'{"timestamp":1545184226.432,"event":"page_view","uuid":"ac0e50bf-944c-4e2f-bbf5-a34b22718e0c"}\n'
# Of 20 events, 16 are page views, 3 clicks, 1 a thumb. All names are equally long, so all lines are.
_EVENTS = np.frombuffer(b"page_view" * 16 + b"adv_click" * 3 + b"thumbs_up", np.uint8).reshape(20, 9)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_FIRST_MS, _LAST_MS = 1_000_000_000_000, 9_999_999_999_999  # seconds with ten digits: 2001 to 2286


_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def words(seed: int, stream: int, start: int, stop: int) -> npt.NDArray[np.uint64]:
    """Return 64 random bits for each row from `start` to `stop`. Streams of one seed do not resemble each other."""
    key = _mix((_mix(seed & _MASK) + stream * _GOLDEN + 1) & _MASK)
    x = np.arange(start, stop, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = x * np.uint64(_GOLDEN) + np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Rows by their number."""

    first: int

    def at(self, row: int) -> Mapping[str, Any]:
        return {"source": "datagen", "row": self.first + row}


@dataclass(frozen=True)
class Times:
    """Event times: evenly spaced from `start_ms` on, each up to `late_ms` earlier than its turn."""

    seed: int
    start_ms: int
    step_us: int
    late_ms: int

    def make(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return ms since 1970, one for each row."""
        at = self.start_ms + np.arange(start, stop, dtype=np.int64) * self.step_us // 1000
        if self.late_ms:
            at -= (words(self.seed, 0, start, stop) % np.uint64(self.late_ms + 1)).astype(np.int64)
        return at


@dataclass(frozen=True)
class Events:
    """The reference events, one JSON object a line: timestamp in seconds, event, uuid."""

    seed: int
    times: Times

    def schema(self) -> pa.Schema:
        return pa.schema([("value", pa.binary())])

    def make(self, start: int, stop: int) -> Chunk:
        n, width = stop - start, len(_TEMPLATE)
        text = np.empty((n, width), np.uint8)
        text[:] = np.frombuffer(_TEMPLATE, np.uint8)
        left = self.times.make(start, stop)
        if n and not (left.min() >= _FIRST_MS and left.max() <= _LAST_MS):
            raise DefinitionError(
                "the events leave the years 2001 to 2286", next="give another start_ms, or fewer rows"
            )
        at = _TEMPLATE.index(b":") + 14
        for place in (p for p in range(at, at - 14, -1) if p != at - 3):
            left, digit = np.divmod(left, 10)
            text[:, place] = digit + ord("0")
        kind = words(self.seed, 1, start, stop) % np.uint64(20)
        at = _TEMPLATE.index(b"page_view")
        text[:, at : at + 9] = _EVENTS[kind.astype(np.intp)]
        _write_uuids(text, _TEMPLATE.index(b"ac0e"), words(self.seed, 2, start, stop), words(self.seed, 3, start, stop))
        ends = np.arange(1, n + 1, dtype=np.int64) * width - 1
        return Lines(memoryview(text.reshape(-1).data), ends, RowOrigin(start))


def _write_uuids(text: npt.NDArray[np.uint8], at: int, high: Any, low: Any) -> None:
    """Write uuids of version 4 into the columns from `at` on; the dashes are there already."""
    bits = np.stack([high, low], axis=1).astype(">u8").view(np.uint8)
    nibbles = np.empty((len(text), 32), np.uint8)
    nibbles[:, 0::2], nibbles[:, 1::2] = bits >> 4, bits & 15
    nibbles[:, 12] = 4
    nibbles[:, 16] = 8 | (nibbles[:, 16] & 3)
    places = [at + i for i in range(36) if i not in (8, 13, 18, 23)]
    text[:, places] = _HEX[nibbles]


@dataclass(frozen=True)
class Columns:
    """Columns by DDL without arrays and maps, random by type, timestamps by `times`, or as `fields` says.

    A field is (least, greatest), a list to choose from, or "sequence" for the row's number.
    """

    columns: str
    seed: int
    times: Times
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.fields) - set(self.schema().names)
        if unknown:
            raise DefinitionError(f"fields names the unknown column {min(unknown)!r}", next="add it to the schema")
        self.make(0, 2)

    def schema(self) -> pa.Schema:
        return ddl.parse(self.columns)

    def make(self, start: int, stop: int) -> Chunk:
        schema = self.schema()
        arrays = [self._column(f, self.fields.get(f.name), 16 + i, start, stop) for i, f in enumerate(schema)]
        return Batch(pa.RecordBatch.from_arrays(arrays, schema=schema), RowOrigin(start))

    def _column(self, f: pa.Field, rule: Any, stream: int, start: int, stop: int) -> pa.Array:
        bits = words(self.seed, stream, start, stop)
        try:
            if rule == "sequence":
                return pa.array(np.arange(start, stop)).cast(f.type)
            if isinstance(rule, list) and rule:
                return pa.array(rule, f.type).take(pa.array((bits % np.uint64(len(rule))).astype(np.int64)))
            if isinstance(rule, tuple) and len(rule) == 2:
                return self._between(f.type, *rule, bits)
            if rule is not None:
                raise TypeError("use (least, greatest), a list of values, or 'sequence'")
            return self._plain(f.type, bits, stream, start, stop)
        except DefinitionError:
            raise
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DefinitionError(
                f"column {f.name!r} cannot be generated as {rule!r}: {error}", next="mend fields"
            ) from None

    def _between(self, kind: pa.DataType, least: Any, greatest: Any, bits: Any) -> pa.Array:
        if least > greatest:
            raise ValueError("the least value is greater than the greatest")
        if pa.types.is_integer(kind):
            return pa.array((bits % np.uint64(greatest - least + 1)).astype(np.int64) + least).cast(kind)
        return pa.array(_fraction(bits) * (greatest - least) + least).cast(kind, safe=False)

    def _plain(self, kind: pa.DataType, bits: Any, stream: int, start: int, stop: int) -> pa.Array:
        if pa.types.is_boolean(kind):
            return pa.array((bits & np.uint64(1)).astype(np.bool_))
        if pa.types.is_integer(kind):
            return pa.array((bits >> np.uint64(65 - kind.bit_width)).astype(np.int64)).cast(kind)
        if pa.types.is_floating(kind):
            return pa.array(_fraction(bits)).cast(kind)
        if pa.types.is_decimal(kind):
            top = 10 ** min(kind.precision, 18)
            return (
                pa.array((bits % np.uint64(top)).astype(np.int64))
                .cast(pa.decimal128(38, 0))
                .view(pa.decimal128(38, kind.scale))
                .cast(kind)
            )
        if pa.types.is_timestamp(kind):
            return pa.array(self.times.make(start, stop) * 1000).cast(kind)
        if pa.types.is_date(kind):
            return pa.array((self.times.make(start, stop) // 86_400_000).astype(np.int32)).cast(kind)
        if pa.types.is_struct(kind):
            inner = [
                self._plain(
                    f.type, words(self.seed, stream * 64 + i + 1, start, stop), stream * 64 + i + 1, start, stop
                )
                for i, f in enumerate(kind)
            ]
            return pa.StructArray.from_arrays(inner, fields=list(kind))
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            digits = _HEX[(bits[:, None] >> np.arange(60, -4, -4, dtype=np.uint64)) & np.uint64(15)]
            offsets = np.arange(0, 16 * len(bits) + 1, 16, dtype=np.int32)
            return pa.Array.from_buffers(kind, len(bits), [None, pa.py_buffer(offsets), pa.py_buffer(digits.tobytes())])
        raise DefinitionError(f"no rows can be made up for {kind}", next="give a function row(i, rng) -> dict instead")


def _fraction(bits: Any) -> npt.NDArray[np.float64]:
    """Return numbers from 0 to below 1."""
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


@dataclass(frozen=True)
class FunctionRows:
    """What a user's function, called with the row's number and a generator seeded for that row, returns: a dict of the columns."""

    function: RowFunction
    columns: str
    seed: int

    def schema(self) -> pa.Schema:
        return ddl.parse(self.columns)

    def make(self, start: int, stop: int) -> Chunk:
        rng = random.Random()
        rows: list[dict[str, Any]] = []
        seeds: Sequence[int] = words(self.seed, 0, start, stop).tolist()
        for i, seed in zip(range(start, stop), seeds, strict=True):
            rng.seed(seed)
            row = self.function(i, rng)
            if not isinstance(row, dict):
                raise DefinitionError(
                    f"the generator function returned {type(row).__name__} for row {i}", next="return a dict"
                )
            rows.append(row)
        return Records(rows, RowOrigin(start))


RowGenerator = Events | Columns | FunctionRows
