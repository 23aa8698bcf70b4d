"""The kafka and upsert-kafka connectors as tables that are read and written."""

from __future__ import annotations

from typing import Any

from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets
from poundlock.errors import DefinitionError
from poundlock.sql.connectors.kafka import properties
from poundlock.sql.connectors.kafka.columns import record_columns
from poundlock.sql.connectors.kafka.metadata import metadata_of
from poundlock.sql.connectors.kafka.places import ScanPlaces, read_places
from poundlock.sql.connectors.kafka.programs import KEY, KafkaDecodeProgram, KafkaEncodeProgram
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource, Takes
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.formats.registry import columns_of_records
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import TableDefinition

_GUARANTEES = ("exactly-once", "at-least-once", "none")


class KafkaTable:
    """Reads and writes topics.

    Args:
        is_upsert: whether a record is the newest row of its key.
    """

    def __init__(self, *, is_upsert: bool = False) -> None:
        self._is_upsert = is_upsert

    @property
    def _connector(self) -> str:
        return "upsert-kafka" if self._is_upsert else "kafka"

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        options = definition.options
        return "all" if self._is_upsert or "key.fields" in options else columns_of_records(options, otherwise="all")

    # --- reading ----------------------------------------------------------------------------------------------------------

    def source(self, table: TableContext) -> TableSource:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        given = properties.connection(options) | properties.consumer(options)
        metadata = metadata_of(table, written=False)
        columns = record_columns(table, options, metadata, is_upsert=self._is_upsert)
        value, key = columns.decoders()
        topics, pattern = self._topics(options)
        places = ScanPlaces(options, tuple(topics or ()), given["group_id"])
        start = StartingOffsets.earliest() if self._is_upsert else places.start()
        end = places.end()
        most = options.whole("source.max-records-per-checkpoint", 2_000_000)
        self._read_sink(options)
        options.span("scan.topic-partition-discovery.interval")  # a plan looks for new partitions in any case
        options.finish(self._connector)
        given |= {
            "topics": topics,
            "pattern": pattern,
            "start": start,
            "end": end,
            "include_headers": any(each.shows.column == "headers" and not each.key for each in metadata),
            "max_records_per_checkpoint": most,
        }
        source = _made(table.name.name, KafkaSource, given)
        names = tuple(field.column for field in table.fields)
        context = EvaluationContext(table.zone)
        program = KafkaDecodeProgram(value, key, names, metadata, context, table.name.name, self._is_upsert)
        return TableSource(source, program, program.is_updating)

    def _topics(self, options: TableOptions) -> tuple[list[str] | None, str | None]:
        """Return the topics that are named, or their pattern."""
        topics = options.text("topic")
        pattern = None if self._is_upsert else options.text("topic-pattern")
        if (topics is None) is (pattern is None):
            ways = "'topic'" if self._is_upsert else "'topic' or 'topic-pattern'"
            raise OptionError(f"{options.table} needs {ways}", next="write 'topic' = 'orders'", kind="missing_option")
        return (None if topics is None else [each.strip() for each in topics.split(";")]), pattern

    # --- writing ----------------------------------------------------------------------------------------------------------

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        if overwrite:
            raise OptionError(
                f"{table.name.name}: a topic cannot be overwritten", next="write INSERT INTO", kind="unsupported_query"
            )
        connection = properties.connection(options)
        metadata = metadata_of(table, written=True)
        columns = record_columns(table, options, metadata, is_upsert=self._is_upsert)
        value, key = columns.encoders()
        topic = options.required("topic")
        given = self._delivery(options)
        self._read_source(options)
        options.finish(self._connector)
        fields = {each.shows.column for each in metadata}
        given |= {
            "topic": topic,
            "key": KEY if key is not None else None,
            "timestamp": "timestamp" if "timestamp" in fields else None,
            "headers": "headers" if "headers" in fields else None,
        }
        sink = _made(table.name.name, KafkaSink, connection | given)
        context = EvaluationContext(table.zone)
        program = KafkaEncodeProgram(value, key, metadata, context, self._is_upsert, table.name.name)
        takes: Takes = "upsert" if self._is_upsert else "retract" if value.takes_updates else "append"
        by_name = {field.name: field.column for field in table.fields}
        by_key = tuple(by_name[name] for name in table.definition.primary_key)
        return TableSink(sink, program, program.schema, takes=takes, key=by_key)

    def _delivery(self, options: TableOptions) -> dict[str, Any]:
        """Return how records are delivered."""
        guarantee = options.one_of("sink.delivery-guarantee", _GUARANTEES, "at-least-once")
        prefix = options.text("sink.transactional-id-prefix")
        is_once = guarantee == "exactly-once"
        if prefix is not None and not is_once:
            raise OptionError(
                f"{options.table}: 'sink.transactional-id-prefix' means nothing to {guarantee} delivery",
                next="add 'sink.delivery-guarantee' = 'exactly-once', or leave it out",
                kind="bad_option_value",
            )
        if self._is_upsert:
            for name, read in (("max-rows", options.whole), ("interval", options.span)):
                read(f"sink.buffer-flush.{name}")  # what is written is flushed with each checkpoint in any case
        else:
            options.one_of("sink.partitioner", ("default",), "default")
        given = properties.producer(options, is_exactly_once=is_once)
        return {"guarantee": guarantee, "transactional_id_prefix": prefix, **given}

    # --- options of the other direction -----------------------------------------------------------------------------------

    def _read_sink(self, options: TableOptions) -> None:
        """Read the options that say how the table is written."""
        for name in ("sink.delivery-guarantee", "sink.transactional-id-prefix"):
            options.text(name)
        for name in ("buffer-flush.max-rows", "buffer-flush.interval") if self._is_upsert else ("partitioner",):
            options.text(f"sink.{name}")

    def _read_source(self, options: TableOptions) -> None:
        """Read the options that say how the table is read."""
        options.text("source.max-records-per-checkpoint")
        options.text("scan.topic-partition-discovery.interval")
        if not self._is_upsert:
            options.text("topic-pattern")
        read_places(options)


def _made(table: str, make: Any, given: dict[str, Any]) -> Any:
    """Return a source or sink.

    Raises:
        OptionError: it cannot be as options say.
    """
    try:
        return make(**given)
    except DefinitionError as error:
        raise OptionError(f"{table}: {error.what}", next=str(error.next), kind="bad_option_value") from None
