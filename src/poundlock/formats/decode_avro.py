"""Avro records, one a value, to dicts and columns; the schema they were written with is given, not guessed.

A value is read to its last byte or rejected: bytes left over mean another schema wrote it. A value that names its schema by a
number is read only if that number is the declared one: another schema's bytes can be read without an error, into the wrong columns.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError, required
from poundlock.formats.avro.unions import RECORD_NAMES, Change, check_apart, members, to_columns, widest
from poundlock.formats.chunk import Records
from poundlock.formats.convert import to_batch
from poundlock.formats.decode import Parsed, Want

_SIMPLE = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(), "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"), "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"), "uuid": pa.string(),
}  # fmt: skip


load_fastavro = partial(required, "fastavro", "Avro", "avro")


@dataclass(frozen=True)
class AvroCodec:
    """One binary Avro record a value.
    Raises:
        DefinitionError: the schema is missing or cannot be read, or it has no number.
    """

    avro_schema: str | Mapping[str, Any] | None = None  # the writer's schema, a record, as JSON text or as the object
    # each value begins with five bytes: 0 and the number of its schema in a registry. Needs `schema_id`.
    confluent: bool = False
    # the number of `avro_schema` in that registry. A value that another schema wrote is rejected, and the reason names
    # both numbers; nothing asks the registry.
    schema_id: int | None = None

    def __post_init__(self) -> None:
        if self.confluent and self.schema_id is None:
            raise DefinitionError(
                "confluent=True does not say which schema is expected, and values of another would be read into wrong columns",
                next="give schema_id=…, the number that avro_schema has in the registry; values with another are rejected",
            )
        if self.schema_id is not None and not self.confluent:
            raise DefinitionError(
                "schema_id means nothing for values without the five bytes of a registry",
                next="give confluent=True too",
            )
        if self.schema_id is not None and (not _is_number(self.schema_id) or not 0 <= self.schema_id < 2**31):
            raise DefinitionError(f"schema_id={self.schema_id!r} is no number of a schema", next="write schema_id=7")
        self._loaded  # noqa: B018 (a schema that cannot be read is refused at once)

    @cached_property
    def _loaded(self) -> tuple[Any, pa.Schema]:
        """The schema as fastavro has it, and its columns."""
        fastavro = load_fastavro()
        if self.avro_schema is None:
            raise DefinitionError('format "avro" needs its schema', next='give avro_schema=\'{"type": "record", …}\'')
        try:
            given = json.loads(self.avro_schema) if isinstance(self.avro_schema, str) else dict(self.avro_schema)
            parsed = fastavro.parse_schema(plain_uuids(given))
        except (ValueError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise DefinitionError(f"the Avro schema cannot be read: {error}", next="give its JSON text") from None
        return parsed, arrow_schema(parsed)

    @cached_property
    def _change(self) -> Change | None:
        return to_columns(self._loaded[0])

    def schema(self) -> pa.Schema:
        return self._loaded[1]

    def parse_lines(self, lines: Any, want: Want) -> Parsed | None:
        return None

    def parse(self, values: Sequence[bytes], want: Want) -> Parsed:
        read, (parsed, columns), change = load_fastavro().schemaless_reader, self._loaded, self._change
        rows: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        for i, value in enumerate(values):
            try:
                stream = self._body(value)
                row = read(stream, parsed, None, **RECORD_NAMES)
                left = len(stream.getbuffer()) - stream.tell()
                if left:
                    raise ValueError(f"{left} bytes are left after the record")
                rows.append(row if change is None else change(row))
            except Exception as error:  # fastavro raises what the bytes lead it to, such as IndexError
                bad[i] = f"not an Avro record of this schema: {str(error) or type(error).__name__}"
        return Parsed(rows if want == "records" else to_batch(Records(rows), columns).batch, bad)

    def _body(self, value: bytes) -> io.BytesIO:
        if not self.confluent:
            return io.BytesIO(value)
        if len(value) < 5 or value[0] != 0:
            raise ValueError("the five bytes before the record, 0 and a schema number, are missing")
        if (written := int.from_bytes(value[1:5], "big")) != self.schema_id:
            raise ValueError(f"schema {written} wrote it, and schema_id={self.schema_id} is expected")
        return io.BytesIO(value[5:])


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def plain_uuids(node: Any) -> Any:
    """Return a schema in which a uuid is the text it is written as, not an object that no column holds."""
    if isinstance(node, list):
        return [plain_uuids(item) for item in node]
    if isinstance(node, dict):
        return {k: plain_uuids(v) for k, v in node.items() if (k, v) != ("logicalType", "uuid")}
    return node


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of an Avro record schema.

    Raises DefinitionError where it is none, or holds a type that has no column type, such as a union of several.
    """
    if schema.get("type") != "record":
        raise DefinitionError(f"the Avro schema is a {schema.get('type')!r}", next="give the schema of a record")
    return pa.schema(_fields(schema, {}))


def _fields(schema: Mapping[str, Any], named: dict[str, pa.DataType | None]) -> list[pa.Field]:
    named[str(schema.get("name"))] = None
    return [
        pa.field(f["name"], kind, nullable=nullable)
        for f in schema["fields"]
        for kind, nullable in [_kind(f["type"], named, f["name"])]
    ]


def _kind(schema: Any, named: dict[str, pa.DataType | None], place: str) -> tuple[pa.DataType, bool]:
    """Return the Arrow type of an Avro type and whether it may be null."""
    if isinstance(schema, list):
        others = members(schema)
        if len(others) == 1:
            kind, nullable = _kind(others[0], named, place)
            return kind, nullable or len(others) < len(schema)
        return _union(schema, named, place), len(others) < len(schema)
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema], schema == "null"
        if named.get(schema) is None:
            raise DefinitionError(f"field {place!r}: {schema!r} is not known or holds itself", next="use a flat schema")
        return named[schema], False
    kind = _complex(schema, named, place)
    if "name" in schema:
        named[schema["name"]] = kind
    return kind, False


def _union(union: list[Any], named: dict[str, pa.DataType | None], place: str) -> pa.DataType:
    if not members(union):
        return pa.null()
    number = widest(union)
    if number is not None:
        return _SIMPLE[number]
    check_apart(union, place)
    kinds = [_kind(each, named, place)[0] for each in members(union)]
    return pa.struct([pa.field(f"member{number}", kind) for number, kind in enumerate(kinds)])


def _complex(schema: Mapping[str, Any], named: dict[str, pa.DataType | None], place: str) -> pa.DataType:
    logical, base = schema.get("logicalType"), schema["type"]
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in ("time-millis", "time-micros"):
        raise DefinitionError(f"field {place!r} is a time of day, which has no column type", next="write it as a long")
    if base == "record":
        return pa.struct(_fields(schema, named))
    if base == "array":
        return pa.list_(_kind(schema["items"], named, place)[0])
    if base == "map":
        return pa.map_(pa.string(), _kind(schema["values"], named, place)[0])
    return _kind(base, named, place)[0]
