"""MySQL's types as Arrow's: which column becomes what, how it is asked for in a SELECT, and how its value in the log is read.

A value becomes the same whether it was selected or logged: `from_texts` and `from_logged` agree, which the tests of all types hold.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.mysql.connection import identifier
from poundlock.errors import TerminalError

_UTC = pa.timestamp("us", tz="UTC")
_SIMPLE: dict[str, pa.DataType] = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "mediumint": pa.int32(), "int": pa.int32(), "bigint": pa.int64(),
    "tinyint unsigned": pa.int16(), "smallint unsigned": pa.int32(), "mediumint unsigned": pa.int32(),
    "int unsigned": pa.int64(), "bigint unsigned": pa.decimal128(20, 0), "year": pa.int32(),
    "float": pa.float32(), "double": pa.float64(), "date": pa.date32(), "datetime": pa.timestamp("us"), "timestamp": _UTC,
    "time": pa.string(), "char": pa.string(), "varchar": pa.string(), "tinytext": pa.string(), "text": pa.string(),
    "mediumtext": pa.string(), "longtext": pa.string(), "enum": pa.string(), "set": pa.string(),
    "binary": pa.binary(), "varbinary": pa.binary(), "tinyblob": pa.binary(), "blob": pa.binary(),
    "mediumblob": pa.binary(), "longblob": pa.binary(), "bit": pa.binary(),
}  # fmt: skip
# Character sets that the log's decoder reads as the server does.
_CHARACTER_SETS = ("utf8mb4", "utf8mb3", "utf8", "ascii", "latin1")
_ORDERED = ("tinyint", "smallint", "mediumint", "int", "bigint", "date", "datetime")
"""Kinds whose values have one order, in the server and here."""
_MOST_DIGITS = 38
_EPOCH = datetime.datetime(1970, 1, 1)
_COMMENTED = re.compile(r"/\*.*?\*/|\s+")


@dataclass(frozen=True, slots=True)
class MySqlColumn:
    """One column of a table, as the server's catalog has it."""

    name: str
    kind: str  # such as "int"
    declared: str  # such as "int(10) unsigned"
    precision: int = 0  # digits of a decimal, bits of a bit
    scale: int = 0  # digits behind the point; of a time, of its seconds
    octets: int = 0  # how long it is, bytes
    charset: str = ""

    @property
    def unsigned(self) -> bool:
        """Whether it has no negative values."""
        return "unsigned" in self.declared

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type its values get. Raises KeyError for one that has none."""
        if self.kind == "decimal":
            fits = self.precision <= _MOST_DIGITS
            return pa.decimal128(self.precision, self.scale) if fits else pa.string()
        if self.kind == "bit" and self.precision == 1:
            return pa.bool_()
        return _SIMPLE[f"{self.kind} unsigned" if self.unsigned and f"{self.kind} unsigned" in _SIMPLE else self.kind]

    @property
    def refused(self) -> str:
        """Why it cannot be read from the log, "" if it can."""
        if self.kind != "decimal" and self.kind not in _SIMPLE:
            return f"is of type {self.declared}, which has no counterpart"
        if "compressed" in self.declared.lower():
            return "is compressed, which the log's decoder does not know"
        if self.kind == "time" and self.scale:
            return "is a time with a fraction, which the log's decoder misreads where it is negative"
        if self.charset and self.charset not in _CHARACTER_SETS:
            return f"has the character set {self.charset}, which the log's decoder does not know"
        return ""

    @property
    def is_ordered(self) -> bool:
        """Whether its values have the same order in the server and here, so that a table can be cut by it."""
        return self.kind in _ORDERED

    @property
    def selected(self) -> str:
        """SQL that gives it in the form that `from_texts` reads."""
        name = identifier(self.name)
        # The text of a float has six digits; that of the same number as a double has all.
        return f"{name} + 0e0 AS {name}" if self.kind == "float" else name

    def fields(self) -> list[Any]:
        """Return it as JSON."""
        return [self.name, self.kind, self.declared, self.precision, self.scale, self.octets, self.charset]


def from_texts(values: Sequence[Any], column: MySqlColumn, what: str) -> pa.Array:
    """Return a column of values as a SELECT gives them: texts, and bytes for binary columns.

    Raises:
        TerminalError: a value has no place in its column's Arrow type, such as the date 0000-00-00.
    """
    try:
        kind = column.arrow
        if column.kind == "bit":
            return _bits([None if v is None else int.from_bytes(_bytes(v), "big") for v in values], column)
        if pa.types.is_binary(kind):
            return pa.array([None if v is None else _bytes(v) for v in values], kind)
        array = pa.array([v.decode() if isinstance(v, bytes) else v for v in values], pa.string())
        if kind == _UTC:
            return pc.assume_timezone(array.cast(pa.timestamp("us")), "UTC")
        return array if kind == pa.string() else array.cast(kind)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise no_place(what, column.name, error) from None


def from_logged(values: Sequence[Any], column: MySqlColumn, what: str) -> pa.Array:
    """Return a column of values as the decoder of the log gives them.

    Raises:
        TerminalError: a value has no place in its column's Arrow type.
    """
    try:
        made = _LOGGED.get(column.kind)
        given = values if made is None else [None if v is None else made(v, column) for v in values]
        return _bits(given, column) if column.kind == "bit" else pa.array(given, column.arrow)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise no_place(what, column.name, error) from None


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _bits(numbers: Sequence[int | None], column: MySqlColumn) -> pa.Array:
    if column.precision == 1:
        return pa.array([None if n is None else bool(n) for n in numbers], pa.bool_())
    length = (column.precision + 7) // 8
    return pa.array([None if n is None else n.to_bytes(length, "big") for n in numbers], pa.binary())


def _time(value: Any, _: MySqlColumn) -> str:
    seconds = round(value.total_seconds())
    hours, rest = divmod(abs(seconds), 3600)
    return f"{'-' if seconds < 0 else ''}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def _timestamp(value: Any, _: MySqlColumn) -> Any:
    if value <= _EPOCH:
        raise ValueError("the time 0000-00-00 00:00:00")
    return value.replace(tzinfo=datetime.UTC)


_LOGGED: dict[str, Callable[[Any, MySqlColumn], Any]] = {
    "bit": lambda value, _: int(value, 2),
    "time": _time,
    "timestamp": _timestamp,
    "year": lambda value, _: 0 if value == 1900 else value,  # the year 0000 is stored as no years since 1900
    "set": lambda value, _: ",".join(value),
    "binary": lambda value, column: _bytes(value).ljust(column.octets, b"\0"),
    "decimal": lambda value, column: value if column.precision <= _MOST_DIGITS else f"{value:f}",
}


def no_place(what: str, column: str, error: object) -> TerminalError:
    """Return the error of a value that does not fit its column's Arrow type."""
    return TerminalError(
        f"{what}, column {column!r}: a value does not fit: {str(error).splitlines()[0][:300]}",
        next="mend the value, or leave the column out with columns=[…]",
    )
