"""ProtobufConfluent: values of Protobuf that name their schema in a registry."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from poundlock.arguments import TEXT, check_kind, refuse_without_effect
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
    from google.protobuf.descriptor import Descriptor

    from poundlock.connectors.kafka.schemas.codec import SchemaReader
    from poundlock.connectors.kafka.schemas.encoder import WrittenSchema


@dataclass(frozen=True)
class ProtobufConfluent(RegistryFormat):
    """Messages of Protobuf with the number of their schema before them, as Confluent's serializers write them.

    At most one of `schema`, `descriptor_set` and `message_class` says what the message is.

    Args:
        message: its full name, such as "shop.Order"; default: the first one of the file. Of a sink without a schema: what the message is called
            that is made of the columns.
        schema: the text of a .proto file, or as a registry has it: `registry.latest(…)`. Needs the extra `protobuf`, as tasks do that meet a
            schema for the first time.
        descriptor_set: what `protoc --include_imports --descriptor_set_out` wrote, as bytes or the path of its file.
        message_class: a generated class.
        columns: of a source, instead of these: columns to read by name of the message that each value is, such as "id bigint, customer string".

    Raises:
        DefinitionError: there is no such message, the schema does not compile, or settings contradict each other.
    """

    _: KW_ONLY
    message: str | None = None
    schema: str | RegisteredSchema | None = None
    descriptor_set: bytes | str | None = field(default=None, repr=False)
    message_class: Any = None
    columns: str | None = None

    kind: ClassVar[SchemaKind] = "PROTOBUF"
    word: ClassVar[str] = "protobuf-confluent"
    task_modules: ClassVar[tuple[str, ...]] = ("google.protobuf",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("ProtobufConfluent", TEXT, {"message": self.message}, optional=True)
        given = [
            name for name in ("schema", "descriptor_set", "message_class", "columns") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise DefinitionError(f"ProtobufConfluent: {given[0]} and {given[1]} say the same", next="give one of them")
        self.check_schema(self.schema, self.columns)
        if given and self.use_latest:
            raise DefinitionError(
                f"ProtobufConfluent: use_latest and {given[0]} contradict each other", next="give one"
            )
        # Bytes travel to tasks, and a class need not.
        object.__setattr__(self, "descriptor_set", self._files())
        object.__setattr__(self, "message_class", None)
        if self.descriptor_set is not None:
            self._descriptor()

    def _files(self) -> bytes | None:
        from poundlock.formats.protobuf.descriptors import set_of_text
        from poundlock.formats.protobuf.messages import first_message, given_message

        if self.descriptor_set is not None or self.message_class is not None:
            files, name = given_message("ProtobufConfluent", self.message, self.descriptor_set, self.message_class)
        elif self.schema is not None:
            given = self._given or ""
            files, _ = set_of_text(text_of(given), {each.name: each.text for each in references_of(given)})
            name = self.message or first_message(files)
        else:
            return None
        object.__setattr__(self, "message", name)
        return files

    @cached_property
    def _given(self) -> Given | None:
        return self.with_references(self.schema)

    def _descriptor(self) -> Descriptor:
        from poundlock.formats.protobuf.descriptors import message_in

        files: Any = self.descriptor_set
        return message_in(files, str(self.message))

    def refuse_of_sink(self) -> None:
        super().refuse_of_sink()
        refuse_without_effect(
            "ProtobufConfluent", {"columns": (self.columns, None)}, because="a sink writes the columns of its rows"
        )

    def reading_columns(self, single: str) -> pa.Schema:
        from poundlock.formats import ddl
        from poundlock.formats.protobuf.fields import columns_of

        if self.columns is not None:
            return ddl.parse(self.columns)
        if self.descriptor_set is None:
            raise DefinitionError(
                "ProtobufConfluent does not say which message to read",
                next='give columns="id bigint, …", schema=registry.latest("orders-value"), descriptor_set="orders.desc" or message_class=Order',
            )
        return columns_of(self._descriptor())

    def reader(self, schema: RegisteredSchema, columns: pa.Schema) -> SchemaReader:
        from poundlock.connectors.kafka.schemas.kinds.protobuf import ProtobufReader

        message = None if self.descriptor_set is None else self._descriptor()
        return ProtobufReader(schema, columns, message, self.message)

    def writing(self, columns: pa.Schema, latest: RegisteredSchema | None, *, is_single: bool) -> WrittenSchema:
        from poundlock.connectors.kafka.schemas.encoder import WrittenSchema
        from poundlock.connectors.kafka.schemas.kinds.protobuf import ProtobufWriter
        from poundlock.formats.protobuf.descriptors import message_in, messages_in, set_of_text
        from poundlock.formats.protobuf.text import proto_of

        if latest is not None:
            files, file = set_of_text(latest.text, {each.name: each.text for each in latest.references})
            name = self.message or next(messages_in(files, file)).full_name
            return WrittenSchema(ProtobufWriter(message_in(files, name)), latest.text, latest.references, name)
        known = self.registers
        if known is not None:
            return WrittenSchema(ProtobufWriter(self._descriptor()), *known)
        name = self.message or "Row"
        text = proto_of(columns, name)
        files, _ = set_of_text(text)
        return WrittenSchema(ProtobufWriter(message_in(files, name)), text, (), name)

    @property
    def registers(self) -> tuple[str, tuple[Reference, ...], str] | None:
        from poundlock.connectors.kafka.schemas.kinds.protobuf import file_with_imports

        if self.descriptor_set is None:
            return None
        if self._given is not None:
            return text_of(self._given), references_of(self._given), str(self.message)
        text, references = file_with_imports(self._descriptor().file)
        return text, references, str(self.message)
