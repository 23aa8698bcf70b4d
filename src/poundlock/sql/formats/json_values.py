"""Values of JSON as columns of a type, one by one, by Flink's rules: what has another shape is converted where that makes sense.

Values are what msgspec makes of JSON, but that a number with a point is a `Fraction`, which keeps its text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import column_of, lists_of
from poundlock.sql.formats.times import TimestampFormat, read_day, read_moment, read_time
from poundlock.sql.formats.value_texts import texts
from poundlock.sql.functions.kernels.decimals import of_decimals
from poundlock.sql.functions.kernels.distinct import python_column
from poundlock.sql.functions.kernels.rendering import real_text
from poundlock.sql.types import SqlType

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_REAL = re.compile(r"([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[dDfF]?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARK = b"\xef\xbb\xbf"


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
        fails_on_missing: whether a field that is not there is an error, in objects within objects too.
    """

    timestamps: TimestampFormat = "SQL"
    is_lenient: bool = False
    fails_on_missing: bool = False


def object_of(record: bytes) -> dict[str, Any]:
    """Return the object that a record begins with; what is behind it does not matter.

    Raises:
        ValueError: it begins with none.
    """
    try:
        made = _reader().decode(record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        try:
            made = _lax_object(record)
        except (ValueError, RecursionError):
            raise ValueError(str(error)) from None
    if not isinstance(made, dict):
        raise ValueError("it is no object")
    return made


@lru_cache(1)
def _reader() -> Any:
    return msgspec.json.Decoder(float_hook=Fraction)


def _lax_object(record: bytes) -> Any:
    """Return what Jackson reads and msgspec does not: behind a byte order mark, with control characters in texts, with more behind it."""
    text = str(record.removeprefix(_MARK), "utf-8").lstrip(" \t\r\n")
    decoder = json.JSONDecoder(strict=False, parse_float=Fraction, parse_constant=_refuse)
    return _without_surrogates(decoder.raw_decode(text)[0])


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no value")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    return _SURROGATE.sub("?", value) if type(value) is str else value


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
        made = convert(value, kind, rules)
    except (ValueError, OverflowError, ArithmeticError, binascii.Error):
        made = None
    if made is None and not rules.is_lenient:
        raise unfit(value, kind)
    return made


def unfit(value: Any, kind: SqlType) -> Unfit:
    """Return the error of a value that is none of a type."""
    return Unfit(f"{text_of(value)[:60]!r} is no {kind}")


# --- one value; None where it is none of the type ----------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a value as the text that Flink makes of it: a number as it is written, an object or array as Jackson writes it."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return msgspec.Raw(real_text(float(value)).encode())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _text(value: Any, kind: SqlType, rules: JsonRules) -> str:
    return text_of(value)


def _truth(value: Any, kind: SqlType, rules: JsonRules) -> bool | None:
    if isinstance(value, bool):
        return value
    return None if isinstance(value, dict | list) else text_of(value).strip().lower() == "true"


def _whole(value: Any, kind: SqlType, rules: JsonRules) -> int | None:
    return whole_of(value, kind)


def whole_of(value: Any, kind: SqlType) -> int | None:
    """Return a number or its text as an integer of a type; None where it is none of them."""
    if isinstance(value, Fraction):
        if kind.root in ("TINYINT", "SMALLINT"):
            return None
        number = int(float(value))
    elif isinstance(value, str):
        number = int(value.strip()) if _WHOLE.fullmatch(value.strip()) else None  # type: ignore[assignment]
    elif isinstance(value, bool) or not isinstance(value, int):
        return None
    else:
        number = value
    top = 1 << (kind.arrow.bit_width - 1)
    return number if number is not None and -top <= number < top else None


def _real(value: Any, kind: SqlType, rules: JsonRules) -> float | None:
    return real_of(value)


def real_of(value: Any) -> float | None:
    """Return a number or its text as a floating point number, as Java reads it; None where it is neither."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    parts = _REAL.fullmatch(str(value).strip())
    return None if parts is None else float(parts[1])


def decimal_of(value: Any) -> Decimal | None:
    """Return a number or its text as a decimal with all its digits; None where it is neither."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).strip()
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def _decimal(value: Any, kind: SqlType, rules: JsonRules) -> Decimal | None:
    return decimal_of(value)


def _bytes(value: Any, kind: SqlType, rules: JsonRules) -> bytes | None:
    return bytes_of(value) if type(value) is str else None


def bytes_of(text: str) -> bytes | None:
    """Return what a text in base 64 says; None where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _day(value: Any, kind: SqlType, rules: JsonRules) -> int | None:
    return read_day(value) if type(value) is str else None


def _time(value: Any, kind: SqlType, rules: JsonRules) -> int | None:
    return read_time(value, needs_seconds=True) if type(value) is str else None


def _moment(value: Any, kind: SqlType, rules: JsonRules) -> int | None:
    return read_moment(value, kind, rules.timestamps) if type(value) is str else None


_SCALARS: Mapping[str, Callable[..., Any]] = {
    "BOOLEAN": _truth, "TINYINT": _whole, "SMALLINT": _whole, "INT": _whole, "BIGINT": _whole, "FLOAT": _real,
    "DOUBLE": _real, "DECIMAL": _decimal, "CHAR": _text, "VARCHAR": _text, "BINARY": _bytes, "VARBINARY": _bytes,
    "DATE": _day, "TIME": _time, "TIMESTAMP": _moment, "TIMESTAMP_LTZ": _moment,
}  # fmt: skip


# --- columns ---------------------------------------------------------------------------------------------------------


def truths(values: Sequence[Any], kind: SqlType) -> pa.Array:
    """Return truth values as a column; None for null."""
    there = np.array([value is not None for value in values], np.bool_)
    return column_of(np.array([bool(value) for value in values], np.bool_), pa.bool_(), there)


def _reals(values: Sequence[Any], kind: SqlType) -> pa.Array:
    there = np.array([value is not None for value in values], np.bool_)
    with np.errstate(over="ignore"):  # a number that a FLOAT has not is infinite
        numbers = np.array([0.0 if value is None else value for value in values], np.float64).astype(
            np.float32 if kind.root == "FLOAT" else np.float64
        )
    return column_of(numbers, kind.arrow, there)


def _plain_column(values: Sequence[Any], kind: SqlType) -> pa.Array:
    return python_column(values, kind.arrow)


_BUILD: Mapping[str, Callable[[Any, SqlType], pa.Array]] = {
    **dict.fromkeys(_SCALARS, _plain_column), "BOOLEAN": truths, "FLOAT": _reals, "DOUBLE": _reals, "DECIMAL": of_decimals,
}  # fmt: skip


def scalar_column(values: Sequence[Any], kind: SqlType) -> pa.Array:
    """Return values that are just what a type of no parts holds as a column; None for null."""
    return _BUILD[kind.root](values, kind)


def _of_kind(values: Sequence[Any], wanted: type, kind: SqlType, rules: JsonRules) -> list[Any]:
    made = []
    for value in values:
        if value is not None and not isinstance(value, wanted):
            if not rules.is_lenient:
                raise unfit(value, kind)
            value = None
        made.append(value)
    return made


def _array(values: Sequence[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    given = _of_kind(values, list, kind, rules)
    items = column_of_values([item for value in given if value is not None for item in value], kind.of[0], rules)
    return list_column(items, given, kind)


def _row(values: Sequence[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    given = _of_kind(values, dict, kind, rules)
    if rules.fails_on_missing:
        for place, value in enumerate(given):
            missing = None if value is None else next((name for name in kind.names if name not in value), None)
            if missing is not None and not rules.is_lenient:
                raise Unfit(f"there is no field {missing}")
            given[place] = None if missing is not None else value
    columns = [
        column_of_values([None if value is None else value.get(name) for value in given], of, rules)
        for name, of in zip(kind.names, kind.of, strict=True)
    ]
    return row_column(columns, given, kind)


def _map(values: Sequence[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    given = _of_kind(values, dict, kind, rules)
    of = SqlType("INT") if kind.root == "MULTISET" else kind.of[1]
    keys = texts([key for value in given if value is not None for key in value])
    items = column_of_values([item for value in given if value is not None for item in value.values()], of, rules)
    return map_column(keys, items, given, kind)


def list_column(items: pa.Array, given: Sequence[Any], kind: SqlType) -> pa.Array:
    """Return items as lists, as many each as the given ones have; None for null."""
    made = lists_of(items, np.array([0 if value is None else len(value) for value in given], np.int64))
    return _with_nulls(made, given, kind.arrow)


def map_column(keys: pa.Array, items: pa.Array, given: Sequence[Any], kind: SqlType) -> pa.Array:
    """Return entries as maps, as many each as the given ones have; None for null."""
    ends = np.zeros(len(given) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in given], out=ends[1:])
    made = pa.MapArray.from_arrays(column_of(ends, pa.int32()), keys, items)
    return _with_nulls(made, given, kind.arrow)


def row_column(columns: Sequence[pa.Array], given: Sequence[Any], kind: SqlType) -> pa.Array:
    """Return fields as rows; None among the given ones for null."""
    arrow = kind.arrow
    fields = [arrow.field(place) for place in range(arrow.num_fields)]
    if not columns:
        return pa.nulls(len(given), arrow)
    gone = np.array([value is None for value in given], np.bool_)
    mask = column_of(gone, pa.bool_()) if gone.any() else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _with_nulls(made: pa.Array, given: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return lists or maps under a type, with null where the given ones are None."""
    there = np.array([value is not None for value in given], np.bool_)
    missing = int(np.count_nonzero(~there))
    bits = pa.py_buffer(np.packbits(there, bitorder="little")) if missing else None
    entries = made.values
    if pa.types.is_map(kind):
        pair = pa.struct([kind.key_field, kind.item_field])
        entries = pa.Array.from_buffers(pair, len(entries), [None], 0, children=[entries.field(0), entries.field(1)])
    return pa.Array.from_buffers(kind, len(made), [bits, made.buffers()[1]], missing, children=[entries])
