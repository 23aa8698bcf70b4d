"""Tables of RabbitMQ, MQTT and Kinesis without their servers: what options mean, rows of messages, messages of rows, and what is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock.connectors.kinesis.enumerator import COLUMNS as RECORD
from poundlock.connectors.mqtt.receiver import COLUMNS as MQTT_MESSAGE
from poundlock.connectors.rabbitmq.receiver import COLUMNS as RABBITMQ_MESSAGE
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.registry import CONNECTORS
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn
from support.table_formats import definition_of

NEEDED = {
    "rabbitmq": {"url": "amqp://etl@h:5672/%2F", "queue": "q", "routing-key": "k"},
    "mqtt": {"url": "mqtt://h:1883", "topic": "t", "client-id": "c"},
    "kinesis": {"stream.arn": "arn:aws:kinesis:eu-central-1:1:stream/clicks"},
}
MESSAGE = {"rabbitmq": RABBITMQ_MESSAGE, "mqtt": MQTT_MESSAGE, "kinesis": RECORD}
AT = datetime(2026, 1, 5, 10, 0, 0, 123_000, UTC)


def context(
    connector: str, columns: str, options: dict[str, str], *, written: bool = False, by: str = ""
) -> TableContext:
    given = {"connector": connector, "format": "json", **NEEDED[connector], **options}
    text = ", ".join(f"'{name}'='{value}'" for name, value in given.items() if value)
    definition = definition_of(f"CREATE TABLE t ({columns}) {by and f'PARTITIONED BY ({by})'} WITH ({text})")
    fields = tuple(
        Field(c.name, f"{c.name}_{place}", c.type)
        for place, c in enumerate(definition.columns)
        if isinstance(c, PhysicalColumn) or (isinstance(c, ConnectorColumn) and not (written and c.is_virtual))
    )
    return TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo("UTC"), False)


def source(connector: str, columns: str = "n INT", by: str = "", **options: str) -> TableSource:
    return CONNECTORS[connector]().source(context(connector, columns, named(options), by=by))


def sink(connector: str, columns: str = "n INT", by: str = "", **options: str) -> TableSink:
    return CONNECTORS[connector]().sink(
        context(connector, columns, named(options), by=by, written=True), overwrite=False
    )


def named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}


def rows(connector: str, columns: str, *given: dict[str, Any], **options: str) -> list[tuple[Any, ...]]:
    messages = pa.Table.from_pylist(list(given), MESSAGE[connector]).combine_chunks().to_batches()[0]
    program = source(connector, columns, **options).program
    assert program is not None
    made, _ = program.run(messages)
    return list(zip(*(column.to_pylist() for column in made.columns), strict=True))


def written(
    connector: str, columns: str, *given: tuple[Any, ...], by: str = "", **options: str
) -> list[dict[str, Any]]:
    of = context(connector, columns, named(options), written=True, by=by)
    made = CONNECTORS[connector]().sink(of, overwrite=False)
    arrays = [pa.array([row[n] for row in given], field.type.arrow) for n, field in enumerate(of.fields)]
    out, places = made.program.run(pa.RecordBatch.from_arrays(arrays, [field.column for field in of.fields]))
    assert places is None
    assert out.schema == made.schema
    messages: list[dict[str, Any]] = out.to_pylist()
    return messages


# --- options -----------------------------------------------------------------------------------------------------------


def test_options_of_rabbitmq() -> None:
    options = {"source__deduplicate": "message-id", "source__prefetch": "7", "source__remember": "70"}
    read = source("rabbitmq", source__max_records_per_checkpoint="9", **options).source
    assert (read.queue, read.deduplicate, read.prefetch, read.remember) == ("q", "message-id", 7, 70)
    assert (read.max_rows_per_checkpoint, read.acknowledge, read.payload.format) == (9, "decided", "raw")
    made = sink("rabbitmq", exchange="e", sink__unconfirmed="3").sink
    assert (made.route.exchange, made.route.key, made.unconfirmed, made.content.needed) == ("e", "k", 3, ["value"])


def test_options_of_mqtt() -> None:
    read = source("mqtt", topic="a/+/b", source__acknowledge="received", source__deduplicate="id").source
    assert (read.topic, read.client_id, read.acknowledge, read.deduplicate) == ("a/+/b", "c", "received", "id")
    made = sink("mqtt", sink__retain="true").sink
    assert (made.topic, made.topic_column, made.retain) == ("t", None, True)


def test_options_of_kinesis() -> None:
    read = source("kinesis", source__init__position="TRIM_HORIZON", aws__endpoint="http://h:1").source
    assert (read.stream.region, read.stream.endpoint, read.start) == ("eu-central-1", "http://h:1", "TRIM_HORIZON")
    assert source("kinesis").source.start == "LATEST"  # Flink's default, not ours
    at = {"source__init__position": "AT_TIMESTAMP", "source__init__timestamp": "2026-01-05T11:00:00.123+01:00"}
    assert source("kinesis", **at).source.start == f"AT_TIMESTAMP {AT.timestamp()}"
    seconds = {**at, "source__init__timestamp": str(AT.timestamp())}
    assert source("kinesis", **seconds).source.start == f"AT_TIMESTAMP {AT.timestamp()}"
    made = sink("kinesis", aws__region="us-east-1", sink__retry_for="5 s").sink
    assert (made.stream.region, made.partition_key, made.retry_for.total_seconds()) == ("us-east-1", None, 5)


@pytest.mark.parametrize("connector", NEEDED)
def test_one_list_of_options_for_both_directions(connector: str) -> None:
    both = {
        "rabbitmq": {"source__prefetch": "5", "sink__unconfirmed": "5", "exchange": "e"},
        "mqtt": {"source__prefetch": "5", "sink__retain": "true"},
        "kinesis": {"source__init__position": "LATEST", "sink__retry_for": "1 s"},
    }[connector]
    assert source(connector, **both).source is not None
    assert sink(connector, **both).sink is not None


# --- rows ----------------------------------------------------------------------------------------------------------------


def test_rows_of_messages_with_metadata() -> None:
    columns = (
        "`id` STRING METADATA FROM 'message-id', n INT, at_ TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, "
        "`to` STRING METADATA FROM 'routing-key' VIRTUAL, heads STRING METADATA FROM 'headers' VIRTUAL"
    )
    message = {"value": b'{"n": 1}', "message_id": "a", "timestamp": AT, "routing_key": "k", "headers": '{"x": 1}'}
    assert rows("rabbitmq", columns, message) == [("a", 1, AT, "k", '{"x": 1}')]
    mqtt = {"value": b"hot", "topic": "t/1", "retain": True, "correlation_data": b"\xff"}
    columns = "word STRING, topic STRING METADATA, retain BOOLEAN METADATA, c BYTES METADATA FROM 'correlation-data'"
    assert rows("mqtt", columns, mqtt, format="raw") == [("hot", "t/1", True, b"\xff")]
    record = {"value": b"1,a", "partition_key": "p", "sequence_number": "12", "shard_id": "s", "arrival_timestamp": AT}
    columns = (
        "n INT, w STRING, at_ TIMESTAMP(3) METADATA FROM 'timestamp', shard STRING METADATA FROM 'shard-id', "
        "number STRING METADATA FROM 'sequence-number', k STRING METADATA FROM 'partition-key'"
    )
    assert rows("kinesis", columns, record, format="csv") == [(1, "a", AT.replace(tzinfo=None), "s", "12", "p")]


def test_messages_that_are_left_out_take_their_metadata_along() -> None:
    columns = "n INT, `id` STRING METADATA FROM 'message-id' VIRTUAL"
    given = [{"value": b"no json", "message_id": "a"}, {"value": b'{"n": 2}', "message_id": "b"}]
    assert rows("rabbitmq", columns, *given, json__ignore_parse_errors="true") == [(2, "b")]


def test_changes_of_a_format() -> None:
    body = b'{"before": null, "after": {"n": 1}, "op": "c"}'
    made = source("rabbitmq", "n INT, PRIMARY KEY (n) NOT ENFORCED", format="debezium-json")
    assert made.is_updating
    assert rows("rabbitmq", "n INT", {"value": body}, format="debezium-json") == [(1, "+I")]
    out = sink("rabbitmq", format="debezium-json")
    assert out.takes == "retract"
    given = pa.record_batch({"n_0": pa.array([1], pa.int32()), ROW_KIND: pa.array(["-D"])})
    assert b'"op":"d"' in out.program.run(given)[0].column("value")[0].as_py()


def test_messages_of_rows() -> None:
    columns = "n INT, `id` STRING METADATA FROM 'message-id', `to` STRING METADATA FROM 'routing-key'"
    body = {"value": b'{"n":1}', "message_id": "a", "routing_key": "x"}
    assert written("rabbitmq", columns, (1, "a", "x"), routing_key="") == [body]
    columns = "n INT, c STRING METADATA FROM 'correlation-data', topic STRING METADATA"
    assert written("mqtt", columns, (1, "a", "x/y")) == [
        {"value": b'{"n":1}', "correlation_data": b"a", "topic": "x/y"}
    ]


def test_partitions_make_the_key_of_a_record() -> None:
    columns = "n INT, w STRING"
    out = written("kinesis", columns, (1, "a"), (2, None), by="n, w")
    assert [each["partition_key"] for each in out] == ["1|a", "2|"]
    assert out[0]["value"] == b'{"n":1,"w":"a"}'
    out = written("kinesis", columns, (1, "a"), by="n, w", sink__partitioner_field_delimiter="-")
    assert out[0]["partition_key"] == "1-a"
    assert sink("kinesis", columns, by="w").sink.partition_key == "partition_key"


# --- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connector", NEEDED)
@pytest.mark.parametrize("make", [source, sink])
def test_an_option_that_there_is_not_is_refused_by_name(connector: str, make: Any) -> None:
    with pytest.raises(OptionError, match=f"{connector} has no option 'sink.parallelism'"):
        make(connector, sink__parallelism="2")


@pytest.mark.parametrize(
    ("make", "connector", "columns", "options", "words"),
    [
        (source, "rabbitmq", "n INT", {"queue": ""}, "has no option 'queue'"),
        (source, "rabbitmq", "n INT", {"source__deduplicate": "id"}, "deduplicate"),
        (source, "rabbitmq", "n INT", {"source__prefetch": "x"}, "'source.prefetch' = 'x' cannot be"),
        (source, "rabbitmq", "n INT METADATA FROM 'offset'", {}, "a message of RabbitMQ has no metadata 'offset'"),
        (source, "rabbitmq", "n INT, PRIMARY KEY (n) NOT ENFORCED", {}, "has a primary key"),
        (sink, "rabbitmq", "n INT", {"routing_key": ""}, "needs 'routing-key'"),
        (sink, "rabbitmq", "n INT, k STRING METADATA FROM 'routing-key'", {}, "and not both"),
        (sink, "rabbitmq", "n INT, e STRING METADATA FROM 'exchange'", {}, "exchange of a message cannot be written"),
        (source, "mqtt", "n INT", {"client_id": ""}, "has no option 'client-id'"),
        (sink, "mqtt", "n INT", {"topic": "a/#"}, "has a wildcard"),
        (sink, "mqtt", "n INT", {"sink__retain": "2"}, "'sink.retain' = '2' cannot be"),
        (source, "kinesis", "n INT", {"source__init__position": "FIRST"}, "'FIRST' cannot be"),
        (source, "kinesis", "n INT", {"source__init__position": "AT_TIMESTAMP"}, "'source.init.timestamp' goes with"),
        (source, "kinesis", "n INT", {"source__init__timestamp": "2026-01-05T10:00:00"}, "cannot be"),
        (source, "kinesis", "n INT", {"source__reader__type": "EFO"}, "'EFO' cannot be"),
        (sink, "kinesis", "n INT", {"sink__partitioner": "fixed"}, "'fixed' cannot be"),
        (sink, "kinesis", "n INT", {"sink__partitioner_field_delimiter": "|"}, "has no effect without PARTITIONED BY"),
        (sink, "kinesis", "n INT", {"aws__credentials__provider": "BASIC"}, "'BASIC' cannot be"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    make: Any, connector: str, columns: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        make(connector, columns, **options)


def test_partitions_where_they_mean_nothing_are_refused() -> None:
    with pytest.raises(OptionError, match="RabbitMQ has no partitions"):
        sink("rabbitmq", by="n")
    with pytest.raises(OptionError, match="'sink\\.partitioner' has no effect"):
        sink("kinesis", by="n", sink__partitioner="random")
