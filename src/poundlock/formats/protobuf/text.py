"""The text of a schema of Protobuf that is made of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from poundlock.errors import DefinitionError

_WORDS: Mapping[int, str] = {
    pa.bool_().id: "bool", pa.int8().id: "int32", pa.int16().id: "int32", pa.int32().id: "int32",
    pa.int64().id: "int64", pa.float32().id: "float", pa.float64().id: "double", pa.string().id: "string",
    pa.large_string().id: "string", pa.binary().id: "bytes", pa.large_binary().id: "bytes",
}  # fmt: skip
_TIMESTAMP = "google.protobuf.Timestamp"


def proto_of(columns: pa.Schema, message: str) -> str:
    """Return the text of a schema whose message has a field for each column, numbered as they stand.

    Args:
        message: its name, with those of its package before it, such as "shop.Order".

    Raises:
        DefinitionError: a column has a type or a name that Protobuf has not.
    """
    package, _, name = message.rpartition(".")
    body = list(_message(name, list(columns), ""))
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    if any(_TIMESTAMP in line for line in body):
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, *body]) + "\n"


def _message(name: str, fields: list[pa.Field], indent: str) -> Iterator[str]:
    yield f"{indent}message {name} {{"
    for number, field in enumerate(fields, 1):
        if not (field.name.isidentifier() and field.name.isascii()):
            raise DefinitionError(
                f"column {field.name!r} is no name of a field of Protobuf",
                next="rename it: ASCII letters, digits and _",
            )
        yield from _field(field, number, f"{indent}  ")
    yield f"{indent}}}"


def _field(field: pa.Field, number: int, indent: str) -> Iterator[str]:
    kind = field.type
    inner = "".join(part.capitalize() for part in field.name.split("_")) + "Message"
    if pa.types.is_map(kind):
        if not (pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)):
            raise _refused(field.name, kind)
        value, nested = _word(field.name, kind.item_type, inner)
        word = f"map<{_WORDS[kind.key_type.id]}, {value}>"
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value, nested = _word(field.name, kind.value_type, inner)
        word = f"repeated {value}"
    else:
        value, nested = _word(field.name, kind, inner)
        word = f"optional {value}" if field.nullable else value
    if nested is not None:
        yield from _message(inner, nested, indent)
    yield f"{indent}{word} {field.name} = {number};"


def _word(name: str, kind: pa.DataType, inner: str) -> tuple[str, list[pa.Field] | None]:
    """Return what one value is called, and the fields of its message where it has one of its own."""
    if kind.id in _WORDS:
        return _WORDS[kind.id], None
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _TIMESTAMP, None
    if pa.types.is_struct(kind):
        return inner, list(kind)
    raise _refused(name, kind)


def _refused(name: str, kind: pa.DataType) -> DefinitionError:
    return DefinitionError(
        f"column {name!r} of type {kind} has no counterpart in Protobuf", next="cast the column before the sink"
    )
