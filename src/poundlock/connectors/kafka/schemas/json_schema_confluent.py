"""JsonSchemaConfluent: values of JSON that name their schema in a registry."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from poundlock.arguments import FLAG, TEXT, check_kind, refuse_without_effect
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
class JsonSchemaConfluent(RegistryFormat):
    """Objects of JSON with the number of their schema before them, as Confluent's serializers write them.

    Args:
        columns: of a source: what is read, by name, such as "id bigint, name string".
        schema: of a sink: the JSON Schema to write by and to register, as text or as a registry has it; None = made of the columns.
        title: what the schema is called that is made of columns, for subjects that have its name.
        validate: whether each value is held against its schema, when it is read and before it is written; one that is not valid is a bad record.

    Raises:
        DefinitionError: the schema is none, or settings contradict each other.
    """

    _: KW_ONLY
    columns: str | None = None
    schema: str | RegisteredSchema | None = None
    title: str = "Row"
    validate: bool = True

    kind: ClassVar[SchemaKind] = "JSON"
    word: ClassVar[str] = "json-schema-confluent"
    task_modules: ClassVar[tuple[str, ...]] = ("jsonschema_rs",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("JsonSchemaConfluent", TEXT, {"title": self.title})
        check_kind("JsonSchemaConfluent", FLAG, {"validate": self.validate})
        self.check_schema(self.schema, self.columns)
        if self.schema is not None:
            from poundlock.connectors.kafka.schemas.kinds.json_schema import validator_of

            refuse_without_effect("JsonSchemaConfluent", {"title": (self.title, "Row")}, because="schema is given")
            given = self._given or ""
            validator_of(text_of(given), references_of(given))

    @cached_property
    def _given(self) -> Given | None:
        return self.with_references(self.schema)

    def refuse_of_source(self) -> None:
        super().refuse_of_source()
        refuse_without_effect(
            "JsonSchemaConfluent",
            {"schema": (self.schema, None), "title": (self.title, "Row")},
            because="values are read by the columns, and held against the schema that wrote them",
        )

    def refuse_of_sink(self) -> None:
        super().refuse_of_sink()
        refuse_without_effect(
            "JsonSchemaConfluent", {"columns": (self.columns, None)}, because="a sink writes the columns of its rows"
        )

    def reading_columns(self, single: str) -> pa.Schema:
        from poundlock.formats import ddl

        if self.columns is None:
            raise DefinitionError(
                "JsonSchemaConfluent does not say which columns to read", next='give columns="id bigint, name string"'
            )
        return ddl.parse(self.columns)

    def reader(self, schema: RegisteredSchema, columns: pa.Schema) -> SchemaReader:
        from poundlock.connectors.kafka.schemas.kinds.json_schema import JsonReader

        return JsonReader(schema, columns, validate=self.validate)

    def writing(self, columns: pa.Schema, latest: RegisteredSchema | None, *, is_single: bool) -> WrittenSchema:
        from poundlock.connectors.kafka.schemas.encoder import WrittenSchema
        from poundlock.connectors.kafka.schemas.kinds.json_schema import JsonWriter, schema_of, title_of

        given: Given = latest or self._given or schema_of(columns, self.title)
        text, references = text_of(given), references_of(given)
        writer = JsonWriter(text, references, validate=self.validate)
        return WrittenSchema(writer, text, references, title_of(text))

    @property
    def registers(self) -> tuple[str, tuple[Reference, ...], str] | None:
        from poundlock.connectors.kafka.schemas.kinds.json_schema import title_of

        given = self._given
        return None if given is None else (text_of(given), references_of(given), title_of(text_of(given)))
