"""What the formats of a schema registry have in common, as users write them down: the registry, subjects, registration, what does not fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from poundlock.arguments import FLAG, MAPPING, TEXT, check_choices, check_kind, check_object, refuse_without_effect
from poundlock.connectors.kafka.schemas.references import check_given, referred
from poundlock.connectors.kafka.schemas.registered import Given, Reference, RegisteredSchema, SchemaKind
from poundlock.connectors.kafka.schemas.registry import SchemaRegistry
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.kafka.schemas.codec import SchemaReader
    from poundlock.connectors.kafka.schemas.encoder import WrittenSchema

SubjectNameStrategy = Literal["topic", "record", "topic-record"]
OnIncompatible = Literal["fail", "bad_record"]


@dataclass(frozen=True)
class RegistryFormat(ABC):
    """A format whose values name their schema by its number in a registry.

    Args:
        registry: which registry.
        subject: under which a sink registers, and whose schemas a source fetches before it reads; None = as `subject_name_strategy` says.
        subject_name_strategy: "topic": the topic with "-value" or "-key" behind it; "record": the full name of the record; "topic-record": both.
        auto_register: whether a sink registers its schema where it is not registered yet.
        references: what `schema` refers to, by what it calls it: the full name of a type of Avro, the path of an import of Protobuf, a `$ref` of JSON
            Schema. A text is registered before the schema, under that name as its subject, where it is not there yet; `registry.latest(…)` is one that
            is there.
        use_latest: whether a sink writes by the newest schema of the subject, as it is when a task begins to write; where the registry does not answer,
            by the newest one that is known.
        on_incompatible: what becomes of a value whose schema the schema of the job cannot read: "fail" stops the job, "bad_record" makes a bad
            record of it.
    """

    registry: SchemaRegistry
    _: KW_ONLY
    subject: str | None = None
    subject_name_strategy: SubjectNameStrategy = "topic"
    auto_register: bool = True
    references: Mapping[str, Given] = field(default_factory=dict, hash=False)
    use_latest: bool = False
    on_incompatible: OnIncompatible = "fail"

    kind: ClassVar[SchemaKind]
    word: ClassVar[str]
    """What it is called, as in SQL."""
    task_modules: ClassVar[tuple[str, ...]] = ()
    """What tasks import that need not be installed with poundlock."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_object(self.registry, "registry", (SchemaRegistry,), 'write SchemaRegistry("http://localhost:8081")')
        check_kind(name, TEXT, {"subject": self.subject}, optional=True)
        check_kind(name, MAPPING, {"references": self.references})
        check_kind(name, FLAG, {"auto_register": self.auto_register, "use_latest": self.use_latest})
        check_choices(
            self,
            {"subject_name_strategy": ("topic", "record", "topic-record"), "on_incompatible": ("fail", "bad_record")},
        )
        if self.subject is not None:
            refuse_without_effect(
                name,
                {"subject_name_strategy": (self.subject_name_strategy, "topic")},
                because="subject says the subject",
            )
        if self.use_latest and self.subject_name_strategy != "topic":
            raise DefinitionError(
                f"{name}: use_latest cannot know a record's name before it has its schema", next="give subject=…"
            )

    def check_schema(self, schema: Given | None, columns: str | None) -> None:
        """Raise DefinitionError where the schema or the columns of a format are none, or contradict each other."""
        name = type(self).__name__
        check_kind(name, TEXT, {"columns": columns}, optional=True)
        if self.references and not isinstance(schema, str):
            raise DefinitionError(
                f"{name}: references mean nothing without the text of a schema",
                next="give schema=…, or leave references out: a schema of a registry has its own",
            )
        if schema is None:
            return
        check_object(schema, "schema", (str, RegisteredSchema), f"give its text, or registry.latest(…), to {name}")
        if isinstance(schema, RegisteredSchema) and schema.kind != self.kind:
            raise DefinitionError(
                f"{name}: the schema is one of {schema.kind}", next=f"give a schema of {self.kind}, or another format"
            )
        if columns is not None:
            raise DefinitionError(f"{name}: schema and columns say the same", next="leave one of them out")
        refuse_without_effect(name, {"use_latest": (self.use_latest, False)}, because="schema is given")

    def with_references(self, schema: Given | None) -> Given | None:
        """Return the schema of the format with all that it refers to; raises DefinitionError where that cannot be."""
        if not self.references or not isinstance(schema, str):
            return schema
        name = type(self).__name__
        check_given(self.references, self.kind, name)
        return RegisteredSchema(0, self.kind, schema, referred(self.kind, schema, self.references, name))

    def subject_of(self, topic: str, *, is_key: bool, name: str = "") -> str:
        """Return the subject of a topic's values or keys.

        Args:
            name: the full name of the record.

        Raises:
            DefinitionError: the subject has the name of the record, and the schema has none.
        """
        if self.subject is not None:
            return self.subject
        if self.subject_name_strategy == "topic":
            return f"{topic}-{'key' if is_key else 'value'}"
        if not name:
            raise DefinitionError(
                f"subject_name_strategy={self.subject_name_strategy!r} needs a schema with a name",
                next='give a schema with one (of JSON Schema, "title"), or leave subject_name_strategy out',
            )
        return name if self.subject_name_strategy == "record" else f"{topic}-{name}"

    def subjects_to_fetch(self, topics: tuple[str, ...], *, is_key: bool) -> tuple[str, ...]:
        """Return the subjects that are known to be those of some topics."""
        if self.subject is None and self.subject_name_strategy != "topic":
            return ()
        return tuple(dict.fromkeys(self.subject_of(topic, is_key=is_key) for topic in topics))

    def refuse_of_source(self) -> None:
        """Raise DefinitionError where something is given that only a sink reads."""
        refuse_without_effect(
            type(self).__name__,
            {"auto_register": (self.auto_register, True), "use_latest": (self.use_latest, False)},
            because="a source registers nothing",
        )

    def refuse_of_sink(self) -> None:
        """Raise DefinitionError where something is given that only a source reads."""
        refuse_without_effect(
            type(self).__name__, {"on_incompatible": (self.on_incompatible, "fail")}, because="a sink reads nothing"
        )

    @abstractmethod
    def reading_columns(self, single: str) -> pa.Schema:
        """Return the columns that are read.

        Args:
            single: what the column is called where the schema is that of a single value.

        Raises:
            DefinitionError: nothing says which there are, or a type has no column type.
        """

    @abstractmethod
    def reader(self, schema: RegisteredSchema, columns: pa.Schema) -> SchemaReader:
        """Return what reads values that a schema wrote. Raises Incompatible where they cannot be read by the job's."""

    @abstractmethod
    def writing(self, columns: pa.Schema, latest: RegisteredSchema | None, *, is_single: bool) -> WrittenSchema:
        """Return what writes some columns.

        Args:
            latest: the schema to write by; None: that of the format, or one that is made of the columns.
            is_single: whether the one column is the value itself.

        Raises:
            DefinitionError: there is no schema for the columns.
        """

    @property
    @abstractmethod
    def registers(self) -> tuple[str, tuple[Reference, ...], str] | None:
        """The schema that a sink registers, and the full name of its record, where they do not depend on the columns."""
