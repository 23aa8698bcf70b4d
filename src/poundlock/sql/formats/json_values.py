"""Values of JSON as columns of a type, by Flink's rules: what has another shape is converted where that makes sense.

Values are what msgspec makes of JSON, but that a number with a point is a `Fraction`, which keeps its text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import column_of, lists_of
from poundlock.sql.kernels.columns import byte_strings, numbers, texts
from poundlock.sql.kernels.rendering import real_text
from poundlock.sql.types import SqlType

TimestampFormat = Literal["SQL", "ISO-8601"]
_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})([ T])(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?(Z?)")
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Fraction(str):
    """The text of a number with a point or an exponent."""


class Unfit(ValueError):
    """A value is none of the type."""


@dataclass(frozen=True, slots=True)
class JsonRules:
    """How values are read.

    Args:
        timestamps: how times are written.
        is_lenient: whether a value that does not fit is null; else it is an error.
    """

    timestamps: TimestampFormat = "SQL"
    is_lenient: bool = False


def column_of_values(values: Sequence[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    """Return values as a column.

    Raises:
        Unfit: one is none of the type, and the rules are not lenient.
    """
    convert = _SCALARS.get(kind.root)
    if convert is not None:
        made = [None if value is None else _converted(convert, value, kind, rules) for value in values]
        return _BUILD[kind.root](made, kind)
    if kind.root == "ARRAY":
        return _array(values, kind, rules)
    if kind.root == "ROW":
        return _row(values, kind, rules)
    return _map(values, kind, rules)


def _converted(convert: Callable[..., Any], value: Any, kind: SqlType, rules: JsonRules) -> Any:
    try:
        return convert(value, kind, rules)
    except (Unfit, ValueError, OverflowError, InvalidOperation, binascii.Error, TypeError):
        if rules.is_lenient:
            return None
        raise Unfit(f"{text_of(value)[:60]!r} is no {kind}") from None


# --- one value -------------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a value as the text that Flink makes of it."""
    if isinstance(value, Fraction):
        return real_text(float(value))
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return msgspec.Raw(value.encode())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _text(value: Any, kind: SqlType, rules: JsonRules) -> str:
    return value if type(value) is str else text_of(value)


def _truth(value: Any, kind: SqlType, rules: JsonRules) -> bool:
    return value if isinstance(value, bool) else text_of(value).strip().lower() == "true"


def _whole(value: Any, kind: SqlType, rules: JsonRules) -> int:
    if isinstance(value, Fraction):
        number = int(float(value))
    elif isinstance(value, bool) or not isinstance(value, int):
        if not isinstance(value, str):
            raise Unfit
        number = int(value.strip())
    else:
        number = value
    bits = kind.arrow.bit_width - 1
    if not -(1 << bits) <= number < 1 << bits:
        raise Unfit
    return number


def _real(value: Any, kind: SqlType, rules: JsonRules) -> float:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Unfit
    return float(value.strip() if isinstance(value, str) else value)


def _decimal(value: Any, kind: SqlType, rules: JsonRules) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Unfit
    return Decimal(value.strip() if isinstance(value, str) else value)


def _bytes(value: Any, kind: SqlType, rules: JsonRules) -> bytes:
    if not isinstance(value, str):
        raise Unfit
    return base64.b64decode(value, validate=True)


def _day(value: Any, kind: SqlType, rules: JsonRules) -> int:
    if not isinstance(value, str):
        raise Unfit
    return date.fromisoformat(value.strip()).toordinal() - _EPOCH_DAY


def _time(value: Any, kind: SqlType, rules: JsonRules) -> int:
    found = _TIME.fullmatch(value.rstrip("Z")) if isinstance(value, str) else None
    if found is None:
        raise Unfit
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise Unfit
    return ((hour * 60 + minute) * 60 + second) * 1000 + int((found[4] or "").ljust(3, "0")[:3])


def _moment(value: Any, kind: SqlType, rules: JsonRules) -> int:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[2] == "T") is not (rules.timestamps == "ISO-8601"):
        raise Unfit
    if (found[7] == "Z") is not (kind.root == "TIMESTAMP_LTZ"):
        raise Unfit
    hour, minute, second = int(found[3]), int(found[4]), int(found[5] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise Unfit
    day = date.fromisoformat(found[1]).toordinal() - _EPOCH_DAY
    seconds = ((day * 24 + hour) * 60 + minute) * 60 + second
    digits = 6 if kind.sizes[0] <= 6 else 9
    fraction = (found[6] or "")[: kind.sizes[0]].ljust(digits, "0")[:digits]
    return seconds * 10**digits + int(fraction)


_SCALARS: Mapping[str, Callable[..., Any]] = {
    "BOOLEAN": _truth, "TINYINT": _whole, "SMALLINT": _whole, "INT": _whole, "BIGINT": _whole, "FLOAT": _real,
    "DOUBLE": _real, "DECIMAL": _decimal, "CHAR": _text, "VARCHAR": _text, "BINARY": _bytes, "VARBINARY": _bytes,
    "DATE": _day, "TIME": _time, "TIMESTAMP": _moment, "TIMESTAMP_LTZ": _moment,
}  # fmt: skip


# --- columns ---------------------------------------------------------------------------------------------------------


def _truths(values: list[Any], kind: SqlType) -> pa.Array:
    flags = np.array([value is not None for value in values], np.bool_)
    return column_of(np.array([bool(value) for value in values], np.bool_), pa.bool_(), flags)


def _decimals(values: list[Any], kind: SqlType) -> pa.Array:
    from poundlock.sql.kernels.decimals import of_decimals

    return of_decimals(values, kind)


def _of_width(dtype: str) -> Callable[[list[Any], SqlType], pa.Array]:
    return lambda values, kind: numbers(values, kind.arrow, dtype)


_BUILD: Mapping[str, Callable[[list[Any], SqlType], pa.Array]] = {
    "BOOLEAN": _truths, "TINYINT": _of_width("i1"), "SMALLINT": _of_width("i2"), "INT": _of_width("i4"),
    "BIGINT": _of_width("i8"), "FLOAT": _of_width("f4"), "DOUBLE": _of_width("f8"), "DECIMAL": _decimals,
    "CHAR": lambda values, kind: texts(values), "VARCHAR": lambda values, kind: texts(values),
    "BINARY": lambda values, kind: byte_strings(values), "VARBINARY": lambda values, kind: byte_strings(values),
    "DATE": _of_width("i4"), "TIME": _of_width("i4"), "TIMESTAMP": _of_width("i8"), "TIMESTAMP_LTZ": _of_width("i8"),
}  # fmt: skip


def _of_kind(values: Sequence[Any], wanted: type, kind: SqlType, rules: JsonRules) -> list[Any]:
    made = []
    for value in values:
        if value is not None and not isinstance(value, wanted):
            if not rules.is_lenient:
                raise Unfit(f"{text_of(value)[:60]!r} is no {kind}")
            value = None
        made.append(value)
    return made


def _array(values: Sequence[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    given = _of_kind(values, list, kind, rules)
    items = column_of_values([item for value in given if value is not None for item in value], kind.of[0], rules)
    return _with_nulls(items, given, kind)


def _with_nulls(items: pa.Array, given: Sequence[Any], kind: SqlType) -> pa.Array:
    counts = np.array([0 if value is None else len(value) for value in given], np.int64)
    made = lists_of(items, counts)
    there = np.array([value is not None for value in given], np.bool_)
    if not there.all():
        bits = pa.py_buffer(np.packbits(there, bitorder="little"))
        made = pa.Array.from_buffers(
            made.type, len(made), [bits, made.buffers()[1]], int(np.count_nonzero(~there)), children=[made.values]
        )
    return made.cast(kind.arrow) if made.type != kind.arrow else made


def _row(values: Sequence[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    given = _of_kind(values, dict, kind, rules)
    columns = [
        column_of_values([None if value is None else value.get(name) for value in given], of, rules)
        for name, of in zip(kind.names, kind.of, strict=True)
    ]
    gone = column_of(np.array([value is None for value in given], np.bool_), pa.bool_())
    fields = [kind.arrow.field(place) for place in range(kind.arrow.num_fields)]
    if not columns:
        return pa.nulls(len(given), kind.arrow)
    return pa.StructArray.from_arrays(columns, fields=fields, mask=gone)


def _map(values: Sequence[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    given = _of_kind(values, dict, kind, rules)
    keys = column_of_values([key for value in given if value is not None for key in value], kind.of[0], rules)
    of = SqlType("INT") if kind.root == "MULTISET" else kind.of[1]
    items = column_of_values([item for value in given if value is not None for item in value.values()], of, rules)
    counts = np.array([0 if value is None else len(value) for value in given], np.int64)
    there = np.array([value is not None for value in given], np.bool_)
    ends = np.zeros(len(given) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    made = pa.MapArray.from_arrays(column_of(ends, pa.int32()), keys, items)
    if not there.all():
        bits = pa.py_buffer(np.packbits(there, bitorder="little"))
        made = pa.Array.from_buffers(
            made.type, len(made), [bits, made.buffers()[1]], int(np.count_nonzero(~there)), children=[made.values]
        )
    return made.cast(kind.arrow) if made.type != kind.arrow else made
