"""The kinesis connector: a stream, with the options of Flink's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import ClassVar

from poundlock.connectors.kinesis.sink import KinesisStreamsSink
from poundlock.connectors.kinesis.source import KinesisStreamsSource
from poundlock.sql.connectors.messages.fields import MessageField
from poundlock.sql.connectors.messages.programs import JoinedKey
from poundlock.sql.connectors.messages.table import Made, MessageTable, most_rows
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.types import STRING, SqlType

_AT = "at_timestamp"
_POSITIONS = ("latest", "trim_horizon", _AT)
_KEY, _DELIMITER = "partition_key", "sink.partitioner-field-delimiter"


class KinesisTable(MessageTable):
    """Reads and writes a stream. The columns of PARTITIONED BY make the key of a record."""

    connector: ClassVar[str] = "kinesis"
    system: ClassVar[str] = "Kinesis"
    what: ClassVar[str] = "a record"
    fields: ClassVar[Mapping[str, MessageField]] = {
        "timestamp": MessageField("arrival_timestamp", SqlType("TIMESTAMP_LTZ", (6,))),
        "shard-id": MessageField("shard_id", STRING),
        "sequence-number": MessageField("sequence_number", STRING),
        "partition-key": MessageField(_KEY, STRING),
    }
    read_only: ClassVar[tuple[str, ...]] = (
        "source.init.position",
        "source.init.timestamp",
        "source.reader.type",
        "source.poll-interval",
        "source.max-records-per-checkpoint",
    )
    write_only: ClassVar[tuple[str, ...]] = ("sink.fail-on-error", "sink.retry-for")

    def reading(self, options: TableOptions) -> Made:
        poll = options.span("source.poll-interval")
        options.one_of("source.reader.type", ("polling",), "polling")
        return KinesisStreamsSource, {
            **_stream(options),
            "start": _start(options),
            **({} if poll is None else {"poll_every": poll}),
            **most_rows(options),
        }

    def writing(self, options: TableOptions, columns: Collection[str]) -> Made:
        options.one_of("sink.fail-on-error", ("false",), "false")  # what is not taken for now is put again
        retry = options.span("sink.retry-for")
        return KinesisStreamsSink, {
            **_stream(options),
            "partition_key": _KEY if _KEY in columns else None,
            **({} if retry is None else {"retry_for": retry}),
        }

    def key_of(self, table: TableContext, options: TableOptions) -> JoinedKey | None:
        by, partitioner = table.definition.partitioned_by, options.text("sink.partitioner")
        delimiter = options.text(_DELIMITER)
        if not by:
            options.one_of("sink.partitioner", ("random",), "random")
            if delimiter is not None:
                raise OptionError(
                    f"{table.name.name}: {_DELIMITER!r} has no effect without PARTITIONED BY",
                    next="add PARTITIONED BY (…), or leave it out",
                    kind="bad_option_value",
                )
            return None
        if partitioner is not None:
            raise OptionError(
                f"{table.name.name}: 'sink.partitioner' has no effect, because the table is PARTITIONED BY {', '.join(by)}",
                next="leave one of them out",
                kind="bad_option_value",
            )
        fields = {field.name: field for field in table.fields}
        named = tuple(fields[name] for name in by if name in fields)
        return JoinedKey(_KEY, named, "|" if delimiter is None else delimiter)


def _stream(options: TableOptions) -> dict[str, str | None]:
    """Return which stream, and where; an ARN says the region, too."""
    options.one_of("aws.credentials.provider", ("auto",), "auto")
    name, region = options.required("stream.arn"), options.text("aws.region")
    if region is None and name.startswith("arn:"):
        region = (name.split(":") + [""] * 4)[3] or None
    return {"stream": name, "region": region, "endpoint": options.text("aws.endpoint")}


def _start(options: TableOptions) -> str | datetime:
    """Return where a job begins that starts for the first time."""
    position = options.one_of("source.init.position", _POSITIONS, "latest")
    at = options.read("source.init.timestamp", _moment, None, "2026-01-05T10:00:00.000+01:00")
    if (at is not None) is not (position == _AT):
        raise OptionError(
            f"{options.table}: 'source.init.timestamp' goes with 'source.init.position' = 'AT_TIMESTAMP', and that with it",
            next="write both, or neither",
            kind="bad_option_value",
        )
    return at or ("latest" if position == "latest" else "earliest")


def _moment(text: str) -> datetime:
    """Return a time with its zone, or seconds since 1970."""
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except ValueError:
        made = datetime.fromisoformat(text)
    if made.tzinfo is None:
        raise ValueError(text)
    return made
