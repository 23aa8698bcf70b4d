"""Values of JSON by schemas of a registry: held against the schema that wrote them, and read as columns as other JSON is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.connectors.kafka.schemas.codec import Incompatible, SchemaReader, head_of
from poundlock.connectors.kafka.schemas.encoder import EncodedValues, SchemaWriter
from poundlock.connectors.kafka.schemas.framing import SIZE
from poundlock.connectors.kafka.schemas.registered import Reference, RegisteredSchema
from poundlock.errors import DefinitionError, required
from poundlock.formats.chunk import Batch
from poundlock.formats.decode_json import JsonCodec
from poundlock.formats.encode import JsonEncoder

_DRAFT = "http://json-schema.org/draft-07/schema#"
_PLAIN: Mapping[int, Mapping[str, Any]] = {
    pa.bool_().id: {"type": "boolean"},
    **{kind.id: {"type": "integer"} for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float32().id: {"type": "number"},
    pa.float64().id: {"type": "number"},
    pa.decimal128(1).id: {"type": "number"},
    pa.string().id: {"type": "string"},
    pa.large_string().id: {"type": "string"},
    pa.binary().id: {"type": "string", "contentEncoding": "base64"},
    pa.large_binary().id: {"type": "string", "contentEncoding": "base64"},
    pa.date32().id: {"type": "string", "format": "date"},
}


@lru_cache(256)
def validator_of(text: str, references: tuple[Reference, ...]) -> Any:
    """Return what holds values against a schema.

    Raises:
        DefinitionError: the schema is none, or what it needs is not installed.
    """
    package = required("jsonschema_rs", "JSON Schema", "json-schema", "jsonschema-rs")
    try:
        schema = json.loads(text)
        if not references:
            return package.validator_for(schema)
        known = package.Registry([(each.name, json.loads(each.text)) for each in references])
        return package.validator_for(schema, registry=known)
    except (ValueError, TypeError, package.ReferencingError) as error:
        raise DefinitionError(f"the JSON Schema cannot be used: {head_of(error)}", next="correct its text") from None


def title_of(text: str) -> str:
    """Return what a schema is called; "" where it is not."""
    schema = json.loads(text)
    return str(schema.get("title", "")) if isinstance(schema, dict) else ""


class JsonReader(SchemaReader):
    """Reads what one JSON Schema wrote."""

    def __init__(self, written: RegisteredSchema, columns: pa.Schema, *, validate: bool) -> None:
        self._codec = JsonCodec(columns)
        self._validator: Any = None
        if validate:
            try:
                self._validator = validator_of(written.text, written.references)
            except DefinitionError as error:
                if error.kind == "missing_package":
                    raise
                raise Incompatible(error.what) from None

    def read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        bodies = [value[SIZE:] for value in values]
        bad = {} if self._validator is None else _invalid(self._validator, bodies)
        places = [place for place in range(len(bodies)) if place not in bad] if bad else range(len(bodies))
        parsed = self._codec.parse([bodies[place] for place in places], "batch")
        rows: Any = parsed.rows
        return rows, {**bad, **{places[row]: why for row, why in parsed.bad.items()}}


def _invalid(validator: Any, bodies: Sequence[bytes]) -> dict[int, str]:
    """Return which values a schema does not allow, and why."""
    decode, is_valid = msgspec.json.decode, validator.is_valid
    bad: dict[int, str] = {}
    for place, body in enumerate(bodies):
        try:
            value = decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            bad[place] = f"not JSON: {head_of(error)}"
            continue
        if not is_valid(value):
            first = next(iter(validator.iter_errors(value)))
            where = "/".join(map(str, first.instance_path))
            bad[place] = f"not valid by its JSON Schema: {where + ': ' if where else ''}{head_of(first.message)}"
    return bad


class JsonWriter(SchemaWriter):
    """Writes objects of JSON."""

    def __init__(self, text: str, references: tuple[Reference, ...], *, validate: bool) -> None:
        self._validator = validator_of(text, references) if validate else None
        self._encoder = JsonEncoder()

    def encode(self, rows: pa.RecordBatch, head: bytes) -> EncodedValues:
        made = self._encoder.encode(Batch(rows))
        data, begin, bodies = bytes(made.data), 0, []
        for end in made.ends.tolist():
            bodies.append(data[begin:end])
            begin = end + 1
        bad = dict(made.bad)
        places = [place for place in range(rows.num_rows) if place not in bad] if bad else range(rows.num_rows)
        if self._validator is not None:
            bad |= {places[row]: why for row, why in _invalid(self._validator, bodies).items()}
        pieces = [b""] * rows.num_rows
        for place, body in zip(places, bodies, strict=True):
            pieces[place] = b"" if place in bad else head + body
        ends = np.zeros(rows.num_rows + 1, np.int64)
        np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=ends[1:])
        return EncodedValues(b"".join(pieces), ends, bad)


def schema_of(columns: pa.Schema, title: str) -> str:
    """Return the JSON Schema of columns. Raises DefinitionError where a type has no counterpart."""
    return json.dumps({"$schema": _DRAFT, "title": title, **_object(list(columns))})


def _object(fields: Sequence[pa.Field]) -> dict[str, Any]:
    properties = {}
    for field in fields:
        kind = _type(field.type, field.name)
        properties[field.name] = {"oneOf": [{"type": "null"}, kind]} if field.nullable else kind
    required_names = [field.name for field in fields if not field.nullable]
    return {"type": "object", "properties": properties, **({"required": required_names} if required_names else {})}


def _type(kind: pa.DataType, name: str) -> Mapping[str, Any]:
    plain = _PLAIN.get(kind.id)
    if plain is not None:
        return plain
    if pa.types.is_timestamp(kind):
        return {"type": "string", "format": "date-time"} if kind.tz else {"type": "string"}
    if pa.types.is_struct(kind):
        return _object(list(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": {"oneOf": [{"type": "null"}, _type(kind.value_type, name)]}}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": {"oneOf": [{"type": "null"}, _type(kind.item_type, name)]}}
    raise DefinitionError(f"column {name!r} of type {kind} has no counterpart in JSON Schema", next="cast the column")
