"""The columns of a generated table, as its types and `fields.…` options say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TypeVar

import numpy as np

from poundlock.sql.coercion import BINARIES, DIGITS, FLOATS, INTEGERS, TEXTS
from poundlock.sql.connectors.datagen.values import (
    ColumnValues,
    PastTimes,
    RandomDecimals,
    RandomLists,
    RandomMaps,
    RandomReals,
    RandomRows,
    RandomTexts,
    RandomTruths,
    RandomWholeNumbers,
    SequenceValues,
    SometimesNull,
)
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.types import LONGEST, SqlType
from poundlock.values import duration

_Number = TypeVar("_Number", int, float, Decimal)
_LONG_TEXT, _FEW = 100, 3
"""The length of a STRING or BYTES, and of a collection, that is not given one."""
_STREAMS = 4  # of random bits, that a column may use
_BIGINT = 1 << 63
_FLOATS: Mapping[str, tuple[float, float]] = {
    "FLOAT": (float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)),
    "DOUBLE": (float(np.finfo(np.float64).smallest_subnormal), float(np.finfo(np.float64).max)),
}
"""What Java calls the least and the greatest value, of which the least is the one next to zero."""
_SEQUENCES = (*TEXTS, *BINARIES, *INTEGERS, *FLOATS, "DECIMAL")


@dataclass
class GeneratedColumns:
    """Makes the values of columns.

    Args:
        zone: of the session, whose wall time dates and timestamps are.
        row_bytes: about how many bytes a row has, of the columns made so far.
        rows: how many rows there are, None where there is no end.
    """

    options: TableOptions
    zone: tzinfo
    row_bytes: int = 0
    rows: int | None = None
    _streams: int = field(default=0)

    def of(self, name: str, kind: SqlType) -> ColumnValues:
        """Return what a column holds.

        Raises:
            OptionError: options do not fit its type, or each other.
        """
        return self._of(f"fields.{name}", kind, 1, is_part=False)

    def _of(self, path: str, kind: SqlType, times: int, *, is_part: bool = True) -> ColumnValues:
        """Return what a column, or a part of one, holds; of which there are so many in a row."""
        stream, self._streams = self._streams * _STREAMS, self._streams + 1
        if self.options.one_of(f"{path}.kind", ("random", "sequence"), "random") == "sequence":
            if is_part:
                raise self._bad(f"{path}.kind", "random, as it is a part of a column", "random")
            return self._sequence(path, kind)
        made = self._random(path, kind, stream, times)
        rate = self.options.read(f"{path}.null-rate", float, 0.0, "0.1")
        if not 0 <= rate <= 1:
            raise self._bad(f"{path}.null-rate", "from 0 to 1", "0.1")
        if rate and not kind.is_nullable:
            raise self._bad(f"{path}.null-rate", "0, as the column is NOT NULL", "0")
        return SometimesNull(stream + 3, made, rate) if rate else made

    def _random(self, path: str, kind: SqlType, stream: int, times: int) -> ColumnValues:
        arrow, root = kind.arrow, kind.root
        if root in (*TEXTS, *BINARIES):
            return self._texts(path, kind, stream, times)
        if kind.of:
            return self._nested(path, kind, times)
        self.row_bytes += times * 8
        if root == "BOOLEAN":
            return RandomTruths(stream)
        if root in INTEGERS:
            most = 1 << (arrow.bit_width - 1)
            least, most = self._bounds(path, int, -most, most - 1)
            if not -(1 << (arrow.bit_width - 1)) <= least <= most < 1 << (arrow.bit_width - 1):
                raise self._bad(f"{path}.{'min' if least < 0 else 'max'}", f"a value of {kind}, min at most max", "1")
            return RandomWholeNumbers(stream, arrow, least, most)
        if root in FLOATS:
            return RandomReals(stream, arrow, *self._bounds(path, float, *_FLOATS[root]))
        if root == "DECIMAL":
            precision, scale = kind.sizes
            whole = 10**precision - 1
            bounds = self._bounds(path, Decimal, Decimal(0), Decimal(whole).scaleb(-scale))
            least, most = (int(each.scaleb(scale).to_integral_value(ROUND_HALF_UP)) for each in bounds)
            return RandomDecimals(stream, arrow, max(least, -whole), min(most, whole))
        past = self._past(path) if root in ("TIMESTAMP", "TIMESTAMP_LTZ") else 0
        return PastTimes(stream, arrow, past, None if root == "TIMESTAMP_LTZ" else self.zone)

    def _nested(self, path: str, kind: SqlType, times: int) -> ColumnValues:
        if kind.root == "ROW":
            parts = zip(kind.names, kind.of, strict=True)
            return RandomRows(kind.arrow, [self._of(f"{path}.{name}", each, times) for name, each in parts])
        length = self._least(f"{path}.length", _FEW, 0)
        times *= max(length, 1)
        if kind.root == "ARRAY":
            return RandomLists(kind.arrow, self._of(f"{path}.element", kind.of[0], times), length)
        of_key = "key" if kind.root == "MAP" else "element"
        if kind.of[0].of:
            raise OptionError(
                f"{self.options.table}: {path.removeprefix('fields.')} has keys of {kind.of[0]}, which datagen does not make",
                next="declare keys that are no rows, arrays or maps",
                kind="type_mismatch",
            )
        key = self._of(f"{path}.{of_key}", kind.of[0].not_null(), times)
        if kind.root == "MAP":
            return RandomMaps(kind.arrow, key, self._of(f"{path}.value", kind.of[1], times), length)
        stream, self._streams = self._streams * _STREAMS, self._streams + 1
        return RandomMaps(kind.arrow, key, RandomWholeNumbers(stream, kind.arrow.item_type, 1, length), length)

    def _texts(self, path: str, kind: SqlType, stream: int, times: int) -> ColumnValues:
        name, (most,) = f"{path}.length", kind.sizes
        is_fixed = kind.root in ("CHAR", "BINARY")
        if is_fixed and self.options.text(name) is not None:
            raise self._bad(name, f"left out, as {kind} has its length", str(most))
        length = self._least(name, _LONG_TEXT if most == LONGEST else most, 1)
        if length > most:
            raise self._bad(name, f"{most} at most, as the column is {kind}", str(most))
        varies = self.options.flag(f"{path}.var-len")
        if varies and is_fixed:
            raise self._bad(f"{path}.var-len", f"false, as {kind} has its length", "false")
        self.row_bytes += times * length
        return RandomTexts(stream, kind.arrow, length, varies)

    def _sequence(self, path: str, kind: SqlType) -> ColumnValues:
        if kind.root not in _SEQUENCES:
            raise self._bad(f"{path}.kind", f"random, as there is no sequence of {kind}", "random")
        start, end = (
            self.options.whole(f"{path}.{each}") for each in ("start", "end") if self.options.required(f"{path}.{each}")
        )
        assert start is not None
        assert end is not None
        if start > end:
            raise self._bad(f"{path}.start", "at most the end", str(end))
        digits = kind.sizes[0] - kind.sizes[1] if kind.root == "DECIMAL" else DIGITS.get(kind.root, 19)
        fits = (
            -(1 << (kind.arrow.bit_width - 1)) <= start and end < 1 << (kind.arrow.bit_width - 1)
            if kind.root in INTEGERS
            else max(abs(start), abs(end)) < min(10**digits, _BIGINT)
        )
        if not fits:
            raise self._bad(f"{path}.end", f"a value of {kind}", "100")
        if kind.root in (*TEXTS, *BINARIES) and max(len(str(start)), len(str(end))) > kind.sizes[0]:
            raise self._bad(f"{path}.end", f"no longer than {kind}", "9")
        count = end - start + 1
        self.rows = count if self.rows is None else min(self.rows, count)
        self.row_bytes += 8
        return SequenceValues(kind.arrow, start)

    def _bounds(
        self, path: str, read: Callable[[str], _Number], least: _Number, most: _Number
    ) -> tuple[_Number, _Number]:
        def known(text: str) -> _Number:
            try:
                return read(text)
            except InvalidOperation:
                raise ValueError(text) from None

        low = self.options.read(f"{path}.min", known, least, "1")
        high = self.options.read(f"{path}.max", known, most, "9")
        if not low <= high:
            raise self._bad(f"{path}.min", f"at most the max, {high}", str(high))
        return low, high

    def _past(self, path: str) -> int:
        text = self.options.span(f"{path}.max-past")
        return 0 if text is None else int(duration(text) / timedelta(milliseconds=1))

    def _least(self, name: str, default: int, least: int) -> int:
        value = self.options.whole(name, default)
        assert value is not None
        if value < least:
            raise self._bad(name, f"{least} at least", str(default))
        return value

    def _bad(self, name: str, what: str, such: str) -> OptionError:
        return OptionError(
            f"{self.options.table}: {name!r} = {self.options.text(name)!r} has to be {what}",
            next=f"write such as '{name}' = '{such}', or leave it out",
            kind="bad_option_value",
        )
