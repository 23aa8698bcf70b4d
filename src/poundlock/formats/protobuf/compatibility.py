"""Whether one message can be read as another one: by the rules of Protobuf's wire format, field by field number.

Where the bytes of a field mean the same by both, values are read; else they would be read wrongly, and without an error.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from poundlock.formats.protobuf.fields import is_repeated

_F = FieldDescriptor
_ALIKE = (
    {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
    {_F.TYPE_FLOAT},
    {_F.TYPE_DOUBLE},
    {_F.TYPE_MESSAGE},
    {_F.TYPE_GROUP},
)
"""Types of which the bytes of one are read as the other one; a larger number is cut to the smaller type, as protoc's documentation has it."""
_SIZES = {_F.TYPE_INT64: 64, _F.TYPE_UINT64: 64, _F.TYPE_SINT64: 64, _F.TYPE_BOOL: 1}


def why_unreadable(written: Descriptor, read: Descriptor, within: frozenset[str] = frozenset()) -> str | None:
    """Return why a message cannot be read as another one; None where it can."""
    if read.full_name in within:
        return None
    by_number = written.fields_by_number
    for field in read.fields:
        other = by_number.get(field.number)
        if other is None:
            continue
        place = f"field {field.number} ({read.full_name}.{field.name})"
        if is_repeated(field) is not is_repeated(other):
            return f"{place} is a list in one of them only"
        if not any({field.type, other.type} <= alike for alike in _ALIKE):
            return f"{place} has another type in the schema that wrote it"
        if _size(other) > _size(field):
            return f"{place} is narrower than in the schema that wrote it"
        if field.message_type is not None and other.message_type is not None:
            why = why_unreadable(other.message_type, field.message_type, within | {read.full_name})
            if why is not None:
                return why
    return None


def _size(field: FieldDescriptor) -> int:
    return _SIZES.get(field.type, 32)
