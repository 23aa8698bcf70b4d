"""What kind of column a field of a message is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from poundlock.errors import DefinitionError

TIMESTAMP = "google.protobuf.Timestamp"
_F = FieldDescriptor
_SCALARS: Mapping[int, pa.DataType] = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), pa.int32()),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), pa.int64()),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), pa.int64()),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), pa.decimal128(20, 0)),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def columns_of(message: Descriptor) -> pa.Schema:
    """Return the columns of a message.

    Raises:
        DefinitionError: it has no field, or holds itself.
    """
    return pa.schema(_fields(message, ()))


def _fields(message: Descriptor, within: tuple[str, ...]) -> list[pa.Field]:
    if message.full_name in within:
        raise DefinitionError(
            f"message {message.full_name} holds itself, which no column type does", next="use another message"
        )
    if not message.fields:
        raise DefinitionError(f"message {message.full_name} has no field", next="use another message")
    inside = (*within, message.full_name)
    return [pa.field(each.name, column_type(each, inside), nullable=may_be_null(each)) for each in message.fields]


def may_be_null(field: FieldDescriptor) -> bool:
    """Return whether a field can be distinguished from one that is not there: proto3's plain fields, lists and maps cannot."""
    return not is_repeated(field) and (field.has_presence and not field.is_required)


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether it is a list or a map."""
    return bool(field.is_repeated)


def is_map(field: FieldDescriptor) -> bool:
    """Return whether it is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_wrapper(field: FieldDescriptor) -> bool:
    """Return whether it is one of Google's messages around a single value."""
    return field.message_type is not None and field.message_type.full_name in _WRAPPERS


def column_type(field: FieldDescriptor, within: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type of a field's column."""
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_single(key, within), pa.field("value", _single(value, within), nullable=False))
    kind = _single(field, within)
    return pa.list_(pa.field("item", kind, nullable=False)) if is_repeated(field) else kind


def _single(field: FieldDescriptor, within: tuple[str, ...]) -> pa.DataType:
    """Return the type of one value."""
    message: Any = field.message_type
    if message is None:
        return _SCALARS[field.type]
    if message.full_name == TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if is_wrapper(field):
        return _SCALARS[message.fields_by_name["value"].type]
    return pa.struct(_fields(message, within))
