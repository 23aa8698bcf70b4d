"""Rows to messages. A null where the field cannot be distinguished from its default is refused, and so is a null in a list or a map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from poundlock.formats.protobuf.descriptors import class_of
from poundlock.formats.protobuf.fields import TIMESTAMP, is_map, is_repeated, is_wrapper

Fill = Callable[[Any, Any], None]
"""What sets a field of a message to a value that is not null."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_US = 1_000_000


class MessageBuilder:
    """Makes messages of rows, as dicts by the name of a field."""

    def __init__(self, message: Descriptor) -> None:
        self._class = class_of(message)
        self._fill = _of_message(message)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Return a row as a message.

        Raises:
            TypeError, ValueError, OverflowError: a value cannot be in its field.
        """
        made = self._class()
        self._fill(made, row)
        return bytes(made.SerializeToString(deterministic=True))


def _of_message(message: Descriptor) -> Fill:
    fields = [(each.name, _null(each), _of_field(each)) for each in message.fields]

    def fill(made: Any, row: Any) -> None:
        for name, null, of in fields:
            if name not in row:
                continue
            value = row[name]
            if value is not None:
                of(made, value)
            elif null is not None:
                raise ValueError(null)

    return fill


def _null(field: FieldDescriptor) -> str | None:
    """Return why a field cannot be null; None where it can."""
    if is_repeated(field):
        return f"field {field.name!r} is a {'map' if is_map(field) else 'list'}, which cannot be null"
    if not field.has_presence:
        return f"field {field.name!r} cannot be null: nobody could distinguish it from its default; declare it optional"
    return f"field {field.name!r} is required" if field.is_required else None


def _of_field(field: FieldDescriptor) -> Fill:
    name = field.name
    if is_map(field):
        return _of_map(field)
    if is_repeated(field):
        return _of_list(field)
    if field.message_type is not None:
        fill = _of_value(field)

        def set_message(made: Any, value: Any) -> None:
            inner = getattr(made, name)
            inner.SetInParent()
            fill(inner, value)

        return set_message
    scalar = _scalar(field)
    return lambda made, value: setattr(made, name, scalar(value))


def _of_value(field: FieldDescriptor) -> Fill:
    """Return what fills the message of a field."""
    message = field.message_type
    if message.full_name == TIMESTAMP:
        return _set_time
    if is_wrapper(field):
        scalar = _scalar(message.fields_by_name["value"])
        return lambda made, value: setattr(made, "value", scalar(value))
    return _of_message(message)


def _set_time(made: Any, value: datetime) -> None:
    micros = ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    made.seconds, made.nanos = micros // _US, micros % _US * 1000


def _scalar(field: FieldDescriptor) -> Callable[[Any], Any]:
    """Return what makes a value of a column one of a field that is no message."""
    if field.enum_type is not None:
        return lambda value: _number(value, field.enum_type)
    if field.cpp_type in _WHOLE:
        return _whole
    return lambda value: value


_WHOLE = (
    FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)  # fmt: skip


def _whole(value: Any) -> int:
    number = int(value)
    if number != value:
        raise ValueError(f"{value} is no whole number")
    return number


def _number(value: str, of: EnumDescriptor) -> int:
    named = of.values_by_name.get(value)
    if named is not None:
        return int(named.number)
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"enum {of.full_name} has no value {value!r}") from None


def _of_list(field: FieldDescriptor) -> Fill:
    name = field.name
    if field.message_type is None:
        scalar = _scalar(field)
        return lambda made, items: getattr(made, name).extend([scalar(_not_null(item, name)) for item in items])
    fill = _of_value(field)

    def set_list(made: Any, items: Any) -> None:
        for item in items:
            fill(getattr(made, name).add(), _not_null(item, name))

    return set_list


def _of_map(field: FieldDescriptor) -> Fill:
    name = field.name
    key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
    of_key = _scalar(key)
    if value.message_type is None:
        of_value = _scalar(value)

        def set_scalars(made: Any, items: Mapping[Any, Any]) -> None:
            entries = getattr(made, name)
            for at, item in items.items():
                entries[of_key(at)] = of_value(_not_null(item, name))

        return set_scalars
    fill = _of_value(value)

    def set_messages(made: Any, items: Mapping[Any, Any]) -> None:
        entries = getattr(made, name)
        for at, item in items.items():
            fill(entries[of_key(at)], _not_null(item, name))

    return set_messages


def _not_null(value: Any, field: str) -> Any:
    if value is None:
        raise ValueError(f"field {field!r} has a null within, which Protobuf has not")
    return value
