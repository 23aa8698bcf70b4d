"""AvroConfluent: values of Avro that name their schema in a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from poundlock.arguments import refuse_without_effect
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.registered import (
    Given,
    Reference,
    RegisteredSchema,
    SchemaKind,
    references_of,
    text_of,
)
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.kafka.schemas.codec import SchemaReader
    from poundlock.connectors.kafka.schemas.encoder import WrittenSchema


@dataclass(frozen=True)
class AvroConfluent(RegistryFormat):
    """Values of Avro with the number of their schema before them, as Confluent's serializers write them.

    A value is read from the schema that wrote it to the one of the job, by the rules of Avro: fields by name, defaults, wider numbers.

    Args:
        schema: as JSON text, as the object, or as a registry has it: `registry.latest(…)`. Of a source: the one to read by, which gives the columns. Of a sink: the one to write by and to
            register; None = made of the columns.
        columns: of a source, instead of `schema`: columns to read by name, such as "id bigint, name string".

    Raises:
        DefinitionError: the schema cannot be read, or settings contradict each other.
    """

    _: KW_ONLY
    schema: str | Mapping[str, Any] | RegisteredSchema | None = None
    columns: str | None = None

    kind: ClassVar[SchemaKind] = "AVRO"
    word: ClassVar[str] = "avro-confluent"
    task_modules: ClassVar[tuple[str, ...]] = ("fastavro",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.schema, Mapping):
            object.__setattr__(self, "schema", json.dumps(self.schema))
        self.check_schema(self.schema, self.columns)  # type: ignore[arg-type]
        if self._given is not None:
            _parsed(self._given)

    @cached_property
    def _given(self) -> Given | None:
        return self.with_references(self.schema)  # type: ignore[arg-type] # an object is made a text when it is given

    def refuse_of_sink(self) -> None:
        super().refuse_of_sink()
        refuse_without_effect(
            "AvroConfluent", {"columns": (self.columns, None)}, because="a sink writes the columns of its rows"
        )

    def reading_columns(self, single: str) -> pa.Schema:
        from poundlock.formats import ddl
        from poundlock.formats.avro.schemas import columns_of

        if self._given is not None:
            return columns_of(_parsed(self._given), single)
        if self.columns is None:
            raise DefinitionError(
                "AvroConfluent does not say which columns to read",
                next='give schema=…, such as registry.latest("orders-value"), or columns="id bigint, name string"',
            )
        return ddl.parse(self.columns)

    def reader(self, schema: RegisteredSchema, columns: pa.Schema) -> SchemaReader:
        from poundlock.connectors.kafka.schemas.kinds.avro import AvroReader

        return AvroReader(schema, columns, None if self._given is None else _parsed(self._given))

    def writing(self, columns: pa.Schema, latest: RegisteredSchema | None, *, is_single: bool) -> WrittenSchema:
        from poundlock.connectors.kafka.schemas.encoder import WrittenSchema
        from poundlock.connectors.kafka.schemas.kinds.avro import AvroWriter
        from poundlock.formats.encode_bulk import avro_schema, avro_type

        given = latest or self._given
        if given is None:
            made = avro_type(columns.field(0).type, columns.names[0]) if is_single else avro_schema(columns)
            given = json.dumps(made)
        parsed = _parsed(given)
        return WrittenSchema(AvroWriter(parsed), text_of(given), references_of(given), _name(parsed))

    @property
    def registers(self) -> tuple[str, tuple[Reference, ...], str] | None:
        given = self._given
        return None if given is None else (text_of(given), references_of(given), _name(_parsed(given)))


@lru_cache(64)
def _parsed(given: Given) -> Any:
    from poundlock.formats.avro.schemas import parsed_schema

    return parsed_schema(text_of(given), [each.text for each in references_of(given)])


def _name(schema: Any) -> str:
    return str(schema.get("name", "")) if isinstance(schema, Mapping) else ""
