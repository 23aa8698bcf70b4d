"""Schemas of Avro as fastavro has them, and the schema by which columns are read of what another schema wrote.

Names are written out everywhere, so that a schema stands for itself; what it refers to has been given before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.decode_avro import arrow_schema, load_fastavro, plain_uuids

Schema = Any
"""A schema of Avro: a word, a list of several, or an object."""

_PLAIN: Mapping[int, str] = {
    pa.bool_().id: "boolean", pa.int8().id: "int", pa.int16().id: "int", pa.int32().id: "int", pa.int64().id: "long",
    pa.float32().id: "float", pa.float64().id: "double", pa.string().id: "string", pa.large_string().id: "string",
    pa.binary().id: "bytes", pa.large_binary().id: "bytes",
}  # fmt: skip


def parsed_schema(text: str | Mapping[str, Any], references: Sequence[str] = ()) -> Schema:
    """Return a schema with all names written out.

    Args:
        text: JSON, or the object itself.
        references: schemas that it refers to, as JSON, each behind those that it refers to itself.

    Raises:
        DefinitionError: it is none.
    """
    fastavro = load_fastavro()
    known: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(plain_uuids(json.loads(reference)), named_schemas=known)
        given = _of_text(text) if isinstance(text, str) else text
        return fastavro.parse_schema(plain_uuids(given), named_schemas=known, expand=True)
    except (ValueError, TypeError, KeyError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise DefinitionError(
            f"the Avro schema cannot be read: {error or type(error).__name__}", next="give its JSON text"
        ) from None


def _of_text(text: str) -> Any:
    """Return what a text says; a word without quotes, such as `string`, is a schema in registries too."""
    try:
        return json.loads(text)
    except ValueError:
        if text.strip().isalpha():
            return text.strip()
        raise


def columns_of(schema: Schema, single: str) -> pa.Schema:
    """Return the columns of a schema.

    Args:
        schema: as `parsed_schema` returns it.
        single: what the column of a schema that is no record is called.

    Raises:
        DefinitionError: a type has no column type.
    """
    return arrow_schema(as_record(schema, single))


def is_record(schema: Schema) -> bool:
    """Return whether values are records, and no single values."""
    return isinstance(schema, Mapping) and schema.get("type") == "record"


def as_record(schema: Schema, single: str) -> Mapping[str, Any]:
    """Return the schema of a record; of what is none, that of a record with it alone."""
    if is_record(schema):
        return schema  # type: ignore[no-any-return]
    return {"type": "record", "name": "Single", "fields": [{"name": single, "type": schema}]}


def reader_schema(columns: pa.Schema, writer: Schema) -> Schema:
    """Return the schema by which columns are read of values, by name, from what a schema wrote.

    A column that the other schema has not is null; where it must not be null, the two do not fit, which reading says.

    Raises:
        DefinitionError: a column has a type that Avro has not, or a name that is none in Avro.
    """
    if not is_record(writer):
        return _type(columns.field(0).type, _without_null(writer), columns.field(0).name)
    try:
        return load_fastavro().parse_schema(_record(list(columns), writer, str(writer["name"])), expand=True)
    except load_fastavro().schema.SchemaParseException as error:
        raise DefinitionError(f"the columns cannot be read of Avro: {error}", next="rename the column") from None


def _record(fields: Sequence[pa.Field], writer: Mapping[str, Any], name: str) -> dict[str, Any]:
    written = {each["name"]: each["type"] for each in writer["fields"]}
    made = []
    for field in fields:
        of = _without_null(written.get(field.name))
        known = {"name": field.name, "type": ["null", _type(field.type, of, f"{_plain_name(name)}_{field.name}")]}
        made.append({**known, "default": None} if field.nullable else known)
    return {"type": "record", "name": name, "fields": made}


def _plain_name(name: str) -> str:
    return name.rpartition(".")[2]


def _without_null(schema: Schema) -> Schema:
    """Return the one type that a union with null has."""
    others = [each for each in schema if each != "null"] if isinstance(schema, list) else [schema]
    return others[0] if len(others) == 1 else schema


def _type(kind: pa.DataType, writer: Schema, name: str) -> Schema:
    """Return the type that a column is read by; named types have the name of the other one among their own."""
    base = writer.get("type") if isinstance(writer, Mapping) else writer
    if isinstance(writer, Mapping) and base in ("enum", "fixed") and not pa.types.is_nested(kind):
        return {**writer, "name": name, "aliases": [writer["name"]]}
    word = _PLAIN.get(kind.id)
    if word is not None:
        return word
    inner = writer if isinstance(writer, Mapping) else {}
    if pa.types.is_struct(kind):
        of = inner if base == "record" else {"fields": ()}
        made = _record(list(kind), of, name)
        return {**made, "aliases": [inner["name"]]} if base == "record" else made
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, _without_null(inner.get("items")), name)]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _type(kind.item_type, _without_null(inner.get("values")), name)]}
    return logical_type(kind, name)


def logical_type(kind: pa.DataType, place: str) -> Schema:
    """Return the logical type of dates, times and decimals. Raises DefinitionError where Avro has none."""
    if pa.types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_time32(kind):
        return {"type": "int", "logicalType": "time-millis"}
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    raise DefinitionError(f"{place}: Avro has no counterpart of {kind}", next="use another type in the schema")
