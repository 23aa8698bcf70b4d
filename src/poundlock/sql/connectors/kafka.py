"""The kafka and upsert-kafka connectors: topics as tables, with Flink's options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink.sink import KafkaSink
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets
from poundlock.errors import did_you_mean
from poundlock.formats.arrays import Numbers, flags_in, indices_of, texts_of
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder
from poundlock.sql.formats.registry import decoder_of, encoder_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn

_METADATA: Mapping[str, str] = {
    "topic": "topic", "partition": "partition", "offset": "offset", "timestamp": "timestamp",
    "timestamp-type": "timestamp_type", "headers": "headers",
}  # fmt: skip
"""Flink's names of what a record has beside its value, and those of the source."""
_WRITABLE = ("timestamp", "headers")
_GUARANTEES = ("exactly-once", "at-least-once", "none")
_STARTS = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_ENDS = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_JAAS = re.compile(r'(\w+)\s*=\s*"([^"]*)"')
_KEY, _VALUE = "key", "value"


@dataclass(frozen=True)
class KafkaDecodeProgram:
    """Rows of records: columns of the value, of the key and of what a record has beside them.

    Args:
        names: the columns that come out.
        carried: what a record has, by the name that it has as a column.
    """

    value: RecordDecoder
    key: RecordDecoder | None
    names: tuple[str, ...]
    carried: tuple[tuple[str, str, pa.DataType], ...]
    table: str
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, and of which record each is."""
        decoded, places = self.value.decode(rows.column(_VALUE), self.names)
        if places is not None:
            rows = rows.take(indices_of(places))
        if self.key is not None:
            keys, of_key = self.key.decode(rows.column(_KEY), self.names)
            if of_key is not None:
                decoded, rows = decoded.take(indices_of(of_key)), rows.take(indices_of(of_key))
                places = of_key if places is None else places[of_key]
            for name in keys.schema.names:
                decoded = decoded.append_column(name, keys.column(name))
        for field, name, kind in self.carried:
            decoded = decoded.append_column(name, rows.column(field).cast(kind))
        kinds = [ROW_KIND] if self.value.is_updating else []
        return decoded.select([*self.names, *kinds]), places

    def describe(self) -> str:
        """Return it in words."""
        return f"reads records of {self.table}"


@dataclass(frozen=True)
class KafkaEncodeProgram:
    """Records of rows: value and key, and further columns that a record takes.

    Args:
        is_upsert: whether a row that is taken away is a record without a value.
        carried: columns, by the name that the sink asks for.
    """

    value: RecordEncoder
    key: RecordEncoder | None
    carried: tuple[tuple[str, str], ...]
    is_upsert: bool
    table: str

    @property
    def leaves_out(self) -> bool:
        """Whether rows before an update are left out."""
        return self.is_upsert

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a record for each row; of an upsert those before an update are left out."""
        places: Numbers | None = None
        if self.is_upsert and ROW_KIND in rows.schema.names:
            kinds = rows.column(ROW_KIND)
            kept = np.flatnonzero(flags_in(pc.not_equal(kinds, texts_of(["-U"])[0])))
            if len(kept) < rows.num_rows:
                rows, places = rows.take(indices_of(kept)), kept
        values = self.value.encode(rows)
        if self.is_upsert and ROW_KIND in rows.schema.names:
            gone = pc.equal(rows.column(ROW_KIND), texts_of(["-D"])[0])
            values = pc.if_else(gone, pa.nulls(len(values), values.type), values)
        columns, names = [values], [_VALUE]
        if self.key is not None:
            columns.append(self.key.encode(rows))
            names.append(_KEY)
        for name, wanted in self.carried:
            columns.append(rows.column(name))
            names.append(wanted)
        return pa.RecordBatch.from_arrays(columns, names), places

    def describe(self) -> str:
        """Return it in words."""
        return f"writes records of {self.table}"


class KafkaTable:
    """Reads and writes topics.

    Args:
        is_upsert: whether a record is the newest row of its key.
    """

    def __init__(self, *, is_upsert: bool = False) -> None:
        self._is_upsert = is_upsert

    def source(self, table: TableContext) -> TableSource:
        if self._is_upsert:
            raise OptionError(
                f"{table.name.name}: reading upserts of Kafka is not there yet",
                next="read the topic with 'connector' = 'kafka'",
                kind="unsupported_query",
            )
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        given = self._connection(table, options)
        metadata = self._metadata(table)
        keys = self._key_columns(table, options, metadata)
        value, key = self._decoders(table, options, metadata, keys)
        self._ignored_of_sink(options)
        topics, pattern = options.text("topic"), options.text("topic-pattern")
        if (topics is None) is (pattern is None):
            raise OptionError(
                f"{table.name.name} needs 'topic' or 'topic-pattern'",
                next="write 'topic' = 'orders'",
                kind="missing_option",
            )
        start = self._start(options, "scan.startup")
        end = self._end(options)
        group = options.text("properties.group.id")
        most = options.whole("source.max-records-per-checkpoint", 2_000_000)
        self._finish(options)
        source = KafkaSource(
            topics=None if topics is None else [each.strip() for each in topics.split(";")],
            pattern=pattern,
            start=start,
            end=end,
            group_id=group,
            include_headers="headers" in metadata.values(),
            max_records_per_checkpoint=most,
            **given,
        )
        names = tuple(f.column for f in table.fields)
        fields = {f.name: f for f in table.fields}
        carried = tuple(
            (_METADATA[of], fields[name].column, fields[name].type.arrow)
            for name, of in metadata.items()
            if name in fields
        )
        program = KafkaDecodeProgram(value, key, names, carried, table.name.name)
        return TableSource(source, program, value.is_updating)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        given = self._connection(table, options)
        metadata = self._metadata(table)
        for name, of in metadata.items():
            if of not in _WRITABLE:
                raise OptionError(
                    f"{table.name.name}.{name}: {of} of a record cannot be written", next="declare it METADATA VIRTUAL"
                )
        keys = self._key_columns(table, options, metadata)
        value, key = self._encoders(table, options, metadata, keys)
        topic = options.required("topic")
        guarantee = options.one_of("sink.delivery-guarantee", _GUARANTEES, "at-least-once")
        prefix = options.text("sink.transactional-id-prefix")
        options.text("sink.partitioner", "default")
        self._ignored_of_source(options)
        self._finish(options)
        fields = {f.name: f for f in table.fields}
        wanted = {_METADATA[of]: fields[name] for name, of in metadata.items()}
        sink = KafkaSink(
            given["bootstrap_servers"],
            topic,
            key=_KEY if key is not None else None,
            timestamp="timestamp" if "timestamp" in wanted else None,
            headers="headers" if "headers" in wanted else None,
            guarantee=guarantee,  # type: ignore[arg-type]
            transactional_id_prefix=prefix,
            security=given["security"],
            client_options=given["client_options"],
        )
        carried = tuple((field.column, name) for name, field in wanted.items())
        program = KafkaEncodeProgram(value, key, carried, self._is_upsert, table.name.name)
        schema = [pa.field(_VALUE, pa.binary()), *([pa.field(_KEY, pa.binary())] if key is not None else [])]
        schema += [pa.field(name, field.type.arrow) for name, field in wanted.items()]
        by_key = tuple(fields[name].column for name in table.definition.primary_key)
        takes = "upsert" if self._is_upsert else "retract" if value.takes_updates else "append"
        return TableSink(sink, program, pa.schema(schema), takes=takes, key=by_key)  # type: ignore[arg-type]

    # --- options ----------------------------------------------------------------------------------------------------------

    def _connection(self, table: TableContext, options: TableOptions) -> dict[str, Any]:
        servers = options.required("properties.bootstrap.servers")
        if self._is_upsert and not table.definition.primary_key:
            raise OptionError(
                f"{table.name.name} has no primary key, by which upsert-kafka tells rows apart",
                next="declare PRIMARY KEY (…) NOT ENFORCED",
                kind="primary_key",
            )
        protocol = options.text("properties.security.protocol", "PLAINTEXT")
        mechanism, jaas = options.text("properties.sasl.mechanism"), options.text("properties.sasl.jaas.config")
        ca = options.text("properties.ssl.ca.location")
        login = dict(_JAAS.findall(jaas or ""))
        security = KafkaSecurity(
            protocol=protocol,  # type: ignore[arg-type]
            mechanism=mechanism,  # type: ignore[arg-type]
            username=login.get("username"),
            password=login.get("password"),
            ca=ca,
        )
        return {"bootstrap_servers": servers, "security": security, "client_options": {}}

    @staticmethod
    def _metadata(table: TableContext) -> dict[str, str]:
        """Return the columns that a record has beside its value: by name, what each is."""
        known = {f.name for f in table.fields}
        made = {}
        for column in table.definition.columns:
            if not isinstance(column, ConnectorColumn) or column.name not in known:
                continue
            if column.key not in _METADATA:
                raise OptionError(
                    f"{table.name.name}.{column.name}: a record of Kafka has no metadata {column.key!r}",
                    next=did_you_mean(column.key, _METADATA, f"use one of {', '.join(_METADATA)}"),
                    kind="unknown_column",
                )
            made[column.name] = column.key
        return made

    def _key_columns(self, table: TableContext, options: TableOptions, metadata: Mapping[str, str]) -> list[str]:
        """Return the columns of the key."""
        if self._is_upsert:
            return list(table.definition.primary_key)
        written = options.text("key.fields")
        names = [each.strip() for each in (written or "").split(";") if each.strip()]
        known = [f.name for f in table.fields if f.name not in metadata]
        for name in names:
            if name not in known:
                raise OptionError(
                    f"{table.name.name}: 'key.fields' names {name}, which is no column",
                    next=did_you_mean(name, known, f"use one of {', '.join(known)}"),
                    kind="unknown_column",
                )
        return names

    def _columns(
        self, table: TableContext, options: TableOptions, metadata: Mapping[str, str], keys: Sequence[str]
    ) -> tuple[list[FormatColumn], list[FormatColumn]]:
        """Return the columns of the value and of the key, as they are called in the data."""
        prefix = options.text("key.fields-prefix", "") or ""
        included = options.one_of("value.fields-include", ("all", "except_key"), "all")
        data = [f for f in table.fields if f.name not in metadata]
        of_value = [f for f in data if included == "all" or f.name not in keys]
        return (
            [FormatColumn(f.name, f.column, f.type) for f in of_value],
            [FormatColumn(f.name.removeprefix(prefix), f.column, f.type) for f in _named(data, keys)],
        )

    def _decoders(
        self, table: TableContext, options: TableOptions, metadata: Mapping[str, str], keys: Sequence[str]
    ) -> tuple[RecordDecoder, RecordDecoder | None]:
        of_value, of_key = self._columns(table, options, metadata, keys)
        if of_key and not self._is_upsert:  # what both have is read of the value
            of_key = [each for each in of_key if each.column not in {v.column for v in of_value}]
        value = decoder_of(
            options, FormatContext(table.name.name, tuple(of_value), table.zone), self._value_option(options)
        )
        key_format = options.text("key.format")
        if not of_key or (key_format is None and not self._is_upsert):
            return value, None
        return value, decoder_of(options, FormatContext(table.name.name, tuple(of_key), table.zone), "key.format")

    def _encoders(
        self, table: TableContext, options: TableOptions, metadata: Mapping[str, str], keys: Sequence[str]
    ) -> tuple[RecordEncoder, RecordEncoder | None]:
        of_value, of_key = self._columns(table, options, metadata, keys)
        value = encoder_of(
            options, FormatContext(table.name.name, tuple(of_value), table.zone), self._value_option(options)
        )
        if not of_key:
            return value, None
        return value, encoder_of(options, FormatContext(table.name.name, tuple(of_key), table.zone), "key.format")

    @staticmethod
    def _value_option(options: TableOptions) -> str:
        return "value.format" if options.text("value.format") is not None else "format"

    def _start(self, options: TableOptions, prefix: str) -> StartingOffsets:
        mode = options.one_of(f"{prefix}.mode", _STARTS, "group-offsets")
        return self._place(options, prefix, mode) or StartingOffsets.earliest()

    def _end(self, options: TableOptions) -> StartingOffsets | None:
        return self._place(options, "scan.bounded", options.one_of("scan.bounded.mode", _ENDS, "unbounded"))

    def _place(self, options: TableOptions, prefix: str, mode: str) -> StartingOffsets | None:
        """Return the place that a mode names, None where it names none.

        Raises:
            OptionError: the mode needs another option.
        """
        at, written = options.whole(f"{prefix}.timestamp-millis"), options.text(f"{prefix}.specific-offsets")
        if mode == "latest-offset":
            return StartingOffsets.latest()
        if mode == "group-offsets":
            return StartingOffsets.committed()
        if mode == "timestamp" and at is not None:
            return StartingOffsets.timestamp(at)
        if mode == "specific-offsets" and written is not None:
            return StartingOffsets.offsets(self._offsets(options, written))
        if mode in ("timestamp", "specific-offsets"):
            raise OptionError(
                f"'{prefix}.mode' = '{mode}' without its place",
                next=f"add '{prefix}.timestamp-millis' or '{prefix}.specific-offsets'",
                kind="missing_option",
            )
        return None

    @staticmethod
    def _offsets(options: TableOptions, written: str) -> dict[tuple[str, int], int]:
        """Return the offsets of `partition:0,offset:42;partition:1,offset:300`."""
        topic = options.required("topic")
        made = {}
        for part in written.split(";"):
            match = re.fullmatch(r"\s*partition:(\d+),offset:(\d+)\s*", part)
            if match is None:
                raise OptionError(
                    f"specific-offsets {written!r}",
                    next="write 'partition:0,offset:42;partition:1,offset:300'",
                    kind="bad_option_value",
                )
            made[topic, int(match[1])] = int(match[2])
        return made

    @staticmethod
    def _ignored_of_sink(options: TableOptions) -> None:
        """Read the options that say how the table is written."""
        for name in ("sink.delivery-guarantee", "sink.transactional-id-prefix", "sink.partitioner"):
            options.text(name)

    @staticmethod
    def _ignored_of_source(options: TableOptions) -> None:
        """Read the options that say how the table is read."""
        for name in ("properties.group.id", "topic-pattern", "source.max-records-per-checkpoint"):
            options.text(name)
        for name in ("mode", "timestamp-millis", "specific-offsets"):
            options.text(f"scan.startup.{name}")
            options.text(f"scan.bounded.{name}")

    def _finish(self, options: TableOptions) -> None:
        options.span("scan.topic-partition-discovery.interval")  # a plan looks for new partitions in any case
        options.finish("upsert-kafka" if self._is_upsert else "kafka")


def _named(fields: Sequence[Field], names: Sequence[str]) -> list[Field]:
    by_name = {each.name: each for each in fields}
    return [by_name[name] for name in names if name in by_name]
