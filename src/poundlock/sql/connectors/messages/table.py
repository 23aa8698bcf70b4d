"""What tables of systems of messages share: a format for bodies, columns of metadata, and options of which each is read once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from poundlock.errors import DefinitionError
from poundlock.sql.connectors.messages.fields import MessageColumn, MessageField, fields_shown
from poundlock.sql.connectors.messages.programs import VALUE, JoinedKey, MessageDecodeProgram, MessageEncodeProgram
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.formats.format import FormatColumn, FormatContext
from poundlock.sql.formats.registry import columns_of_records, decoder_of, encoder_of
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import TableDefinition

Made = tuple[Callable[..., Any], dict[str, Any]]
"""A class of sources or sinks, and what it is given."""


class MessageTable(ABC):
    """Derive from it, and say what options mean.

    Attributes:
        connector: as tables name it.
        system: as people name it.
        what: a message is called there.
        fields: of a message, by the names of metadata.
        read_only, write_only: options that say how a table is read, and how it is written: a table has one list of them for both.
    """

    connector: ClassVar[str]
    system: ClassVar[str]
    what: ClassVar[str] = "a message"
    fields: ClassVar[Mapping[str, MessageField]]
    read_only: ClassVar[tuple[str, ...]]
    write_only: ClassVar[tuple[str, ...]]

    @abstractmethod
    def reading(self, options: TableOptions) -> Made:
        """Return the source, which gives messages as they are. Raises OptionError."""

    @abstractmethod
    def writing(self, options: TableOptions, columns: Collection[str]) -> Made:
        """Return the sink, which writes the column `value` as it is.

        Args:
            columns: further ones that rows have, as `fields` calls them.

        Raises:
            OptionError: an option is missing, or cannot be.
        """

    def key_of(self, table: TableContext, options: TableOptions) -> JoinedKey | None:
        """Return what is computed of rows beside their body; None: nothing. Raises OptionError."""
        if table.definition.partitioned_by:
            raise OptionError(
                f"{table.name.name}: {self.system} has no partitions",
                next="leave PARTITIONED BY out",
                kind="unsupported_query",
            )
        return None

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        return columns_of_records(definition.options, otherwise="all")

    def source(self, table: TableContext) -> TableSource:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        self.key_of(table, options)
        make, given = self.reading(options)
        metadata = self._metadata(table, written=False)
        value = decoder_of(options, self._format(table, metadata))
        self._check_key(table, has_changes=value.is_updating)
        self._finish(options, self.write_only)
        source = _made(table.name.name, make, given)
        names = tuple(field.column for field in table.fields)
        program = MessageDecodeProgram(value, names, metadata, EvaluationContext(table.zone), table.name.name)
        return TableSource(source, program, value.is_updating)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        key = self.key_of(table, options)
        metadata = self._metadata(table, written=True)
        columns = {each.shows.column for each in metadata} | ({key.column} if key is not None else set())
        make, given = self.writing(options, columns)
        form = self._format(table, metadata)
        value = encoder_of(options, form)
        self._check_key(table, has_changes=value.takes_updates)
        self._finish(options, self.read_only)
        sink = _made(table.name.name, make, {**given, "format": "raw", "value": VALUE})
        body = tuple(each.column for each in form.columns)
        context = EvaluationContext(table.zone)
        program = MessageEncodeProgram(value, body, metadata, key, context, table.name.name)
        return TableSink(sink, program, program.schema, takes="retract" if value.takes_updates else "append")

    def _metadata(self, table: TableContext, *, written: bool) -> tuple[MessageColumn, ...]:
        shown = fields_shown(table, self.fields, self.what, self.system, written=written)
        return tuple(MessageColumn(shows, field) for shows, field in shown)

    @staticmethod
    def _format(table: TableContext, metadata: tuple[MessageColumn, ...]) -> FormatContext:
        beside = {each.field.name for each in metadata}
        columns = (FormatColumn(f.name, f.column, f.type) for f in table.fields if f.name not in beside)
        return FormatContext(table.name.name, tuple(columns), table.zone)

    @staticmethod
    def _check_key(table: TableContext, *, has_changes: bool) -> None:
        if table.definition.primary_key and not has_changes:
            raise OptionError(
                f"{table.name.name} has a primary key, and the messages of this format are rows that stand for themselves",
                next="leave PRIMARY KEY out, or write 'format' = 'debezium-json'",
                kind="primary_key",
            )

    def _finish(self, options: TableOptions, others: tuple[str, ...]) -> None:
        """Refuse options that there are not; those of the other direction are none of them."""
        for name in others:
            options.text(name)
        options.finish(self.connector)


def acknowledged(options: TableOptions) -> dict[str, Any]:
    """Return what sources are given whose messages are acknowledged."""
    given: dict[str, Any] = {
        "deduplicate": options.text("source.deduplicate"),
        "acknowledge": options.one_of("source.acknowledge", ("decided", "received"), "decided"),
        **most_rows(options),
    }
    for argument in ("remember", "prefetch"):
        number = options.whole(f"source.{argument}")
        given |= {} if number is None else {argument: number}
    return given


def most_rows(options: TableOptions) -> dict[str, Any]:
    """Return the limit of a checkpoint, where one is written."""
    most = options.whole("source.max-records-per-checkpoint")
    return {} if most is None else {"max_rows_per_checkpoint": most}


ACKNOWLEDGED = tuple(
    f"source.{name}" for name in ("deduplicate", "acknowledge", "remember", "prefetch", "max-records-per-checkpoint")
)
"""The options that `acknowledged` reads."""


def _made(table: str, make: Callable[..., Any], given: dict[str, Any]) -> Any:
    try:
        return make(**given)
    except DefinitionError as error:
        raise OptionError(f"{table}: {error.what}", next=str(error.next), kind="bad_option_value") from None
