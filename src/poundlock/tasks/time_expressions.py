"""Event time as a job says it, where no SQL engine is needed: a column, `timestamp_seconds(column)` and its sisters, a CAST.

What is read here means what Spark means by it. Anything else is left to Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.ddl import render_type

Form = Literal["timestamp", "millis", "micros", "seconds"]

_NAME = r"`(?:[^`]|``)+`|[^\W\d]\w*"
_BARE = re.compile(rf"\s*({_NAME})\s*")
_CALL = re.compile(rf"\s*timestamp_(seconds|millis|micros)\s*\(\s*({_NAME})\s*\)\s*", re.IGNORECASE)
_CAST = re.compile(r"\s*cast\s*\((.*)\s+as\s+timestamp\s*\)\s*", re.IGNORECASE | re.DOTALL)
_FORMS: dict[str, Form] = {"seconds": "seconds", "millis": "millis", "micros": "micros"}


@dataclass(frozen=True, slots=True)
class NeedsSpark:
    """Event time that only Spark can evaluate; `reason` says what of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """Event time that a column has.

    Args:
        form: what its values are: timestamps, or numbers of so many a second since 1970.
        zone: the time zone of the event time's column; None for a timestamp without one, which counts as UTC.
    """

    column: str
    form: Form
    zone: str | None = "UTC"


def reads_like_a_column(text: str) -> bool:
    """Return whether an expression has a form that is read here, as far as can be known without the columns' types."""
    cast = _CAST.fullmatch(text)
    inner = text if cast is None else cast[1]
    return any(pattern.fullmatch(inner) is not None for pattern in (_BARE, _CALL))


def time_column(step: str, text: str, schema: pa.Schema) -> TimeColumn | NeedsSpark:
    """Return how an expression's event time is read from a column.

    Raises:
        DefinitionError: it is a column of a type that is no time.
    """
    cast = _CAST.fullmatch(text)
    inner = text if cast is None else cast[1]
    call = _CALL.fullmatch(inner)
    name = inner if call is None else call[2]
    field = _field(name, schema)
    if field is None:
        return NeedsSpark(f"{name.strip()} is not one of the columns")
    kind = _plain(field.type)
    if call is not None:
        form = _FORMS[call[1].lower()]
        if pa.types.is_integer(kind) or (form == "seconds" and _is_double(kind)):
            return TimeColumn(field.name, form)
        return NeedsSpark(f"{inner.strip()} of a column of type {kind}")
    if cast is not None:
        if pa.types.is_timestamp(kind):
            return TimeColumn(field.name, "timestamp")
        if pa.types.is_integer(kind) or _is_double(kind):
            return TimeColumn(field.name, "seconds")
        return NeedsSpark(f"a CAST of a column of type {kind}")
    if kind in (pa.int64(), pa.int32()):
        return TimeColumn(field.name, "millis")
    if pa.types.is_timestamp(kind):
        return TimeColumn(field.name, "timestamp", kind.tz)
    raise DefinitionError(
        f"{step}: event time {text.strip()} is of type {_type_name(kind)}",
        next='give a timestamp, such as "timestamp_seconds(ts)", or a whole number of milliseconds since 1970',
    )


def _type_name(kind: pa.DataType) -> str:
    try:
        return render_type(kind)
    except DefinitionError:  # a type that Spark does not have
        return str(kind)


def _is_double(kind: pa.DataType) -> bool:
    return kind in (pa.float64(), pa.float32())


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _field(text: str, schema: pa.Schema) -> pa.Field | None:
    """Return the column of a name: the very one, or the only one that differs in case alone, as Spark has it."""
    match = _BARE.fullmatch(text)
    if match is None:
        return None
    name = match[1][1:-1].replace("``", "`") if match[1].startswith("`") else match[1]
    exact = [field for field in schema if field.name == name]
    alike = exact or [field for field in schema if field.name.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
