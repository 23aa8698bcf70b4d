"""An argument that changes nothing is refused when it is written down, with the reason and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from poundlock import (
    Autoscaler,
    CountTrigger,
    DatagenSource,
    DefinitionError,
    EventTimeBucketAssigner,
    ExponentialDelayRestart,
    FileSink,
    FileSource,
    GlobalWindows,
    JdbcSink,
    Job,
    KafkaSink,
    KafkaSource,
    KeyedProcessFunction,
    PostgresSink,
    PostgresSource,
    PrintSink,
    RollingPolicy,
    SocketSource,
    SparkSource,
    WatermarkStrategy,
)

SERVERS = "localhost:9092"
DSN = "postgresql://user@localhost/database"
AVRO = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
BOUNDED = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="t")


def kafka(**settings: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=SERVERS, topics="t", **settings)


def postgres(**settings: Any) -> PostgresSource:
    return PostgresSource(DSN, table="t", **settings)


class Generator:
    def on_event(self, timestamp: int, count: int, output: Any) -> None: ...

    def on_periodic_emit(self, output: Any) -> None: ...


INCREMENTAL = {"mode": "incremental", "column": "id"}
CDC = {"mode": "cdc", "slot": "s", "publication": "p"}
IDLE: dict[str, tuple[Callable[[], Any], str]] = {
    "columns of raw values": (lambda: kafka(schema="a int"), "schema="),
    "options of raw values": (lambda: kafka(format_options={"timestamp_unit": "ms"}), "format_options"),
    "columns of Avro": (
        lambda: kafka(format="avro", schema="a int", format_options={"avro_schema": AVRO}),
        "schema=",
    ),
    "alignment once a second": (lambda: BOUNDED.with_watermark_alignment("g", "1 min", "5 s"), "update="),
    "a clock that waits for nobody": (
        lambda: WatermarkStrategy.ingestion_time().with_idleness("20 ms"),
        "ingestion time goes on",
    ),
    "alignment without watermarks": (
        lambda: WatermarkStrategy.no_watermarks(timestamp="t").with_watermark_alignment("g", "1 min"),
        "alignment=",
    ),
    "alignment of a clock": (
        lambda: WatermarkStrategy.ingestion_time().with_watermark_alignment("g", "1 min"),
        "alignment=",
    ),
    "a delay of rows in order": (
        lambda: WatermarkStrategy(timestamp="t", kind="monotonous", delay=timedelta(seconds=1)),
        "delay=",
    ),
    "a time of a clock": (lambda: WatermarkStrategy(timestamp="t", kind="processing"), "timestamp="),
    "a generator of none": (lambda: WatermarkStrategy(timestamp="t", generator=Generator), "generator="),
    "each record without a generator": (lambda: WatermarkStrategy(timestamp="t", per_record=True), "per_record="),
    "delimiter of JSON": (lambda: FileSource("/in", format="json", schema="a int", delimiter=";"), "delimiter="),
    "quote of text": (lambda: FileSource("/in", quote="'"), "quote="),
    "null of Parquet": (lambda: FileSource("/in", format="parquet", null="-"), "null="),
    "unit of text": (lambda: FileSource("/in", timestamp_unit="ms"), "timestamp_unit="),
    "compression of Parquet": (lambda: FileSource("/in", format="parquet", compression="gzip"), "compression="),
    "settle of what is read once": (lambda: FileSource("/in", settle="5 s"), "watch=True"),
    "looks at what is read once": (lambda: FileSource("/in", discover_every="5 s"), "watch=True"),
    "glob beside a glob": (lambda: FileSource("/in/*.json", glob="*.csv"), "glob="),
    "folders below a glob": (lambda: FileSource("/in/*.json", recursive=False), "recursive="),
    "unit of lines": (lambda: SocketSource("localhost", 9, timestamp_unit="ms"), "timestamp_unit="),
    "times of a function": (
        lambda: DatagenSource(lambda n, rng: {"n": n}, schema="n int", out_of_orderness="2 s"),
        "out_of_orderness=",
    ),
    "age beside each checkpoint": (lambda: RollingPolicy(on_checkpoint=True, every="5 min"), "every="),
    "age of Parquet": (lambda: FileSink("/out", format="parquet", rolling=RollingPolicy(every="5 min")), "every="),
    "transactions of none": (lambda: KafkaSink(SERVERS, "t", guarantee="none", marker_topic="m"), "marker_topic="),
    "time of no transaction": (
        lambda: KafkaSink(SERVERS, "t", guarantee="at-least-once", transaction_timeout="1 min"),
        "transaction_timeout=",
    ),
    "splits of rows": (lambda: postgres(split_size="1 MB", **INCREMENTAL), "split_size="),
    "rows of a snapshot": (lambda: postgres(max_rows_per_checkpoint=5), "max_rows_per_checkpoint="),
    "settle of a log": (lambda: postgres(settle="5 s", **CDC), "settle="),
    "log of a snapshot": (lambda: postgres(max_wal_per_checkpoint="1 MB"), "max_wal_per_checkpoint="),
    "before of a snapshot": (lambda: postgres(before="key"), "before="),
}


@pytest.mark.parametrize("name", IDLE)
def test_an_argument_without_effect_is_refused(name: str) -> None:
    make, words = IDLE[name]
    with pytest.raises(DefinitionError) as caught:
        make()
    assert words in str(caught.value)
    assert caught.value.next


@pytest.mark.parametrize(
    "make",
    [
        lambda: BOUNDED.with_watermark_alignment("g", "1 min", "1 s"),
        lambda: FileSource("/in", format="csv", schema="a int", delimiter=";", quote="'", null="-"),
        lambda: FileSource("/in", format="json", schema="a timestamp", timestamp_unit="ms"),
        lambda: FileSource("/in", watch=True, settle="5 s", discover_every="0 s"),
        lambda: FileSource("/in", glob="*.csv", recursive=False),
        lambda: RollingPolicy(on_checkpoint=True, every=None, inactivity="60 s"),
        lambda: FileSink("/out", format="parquet", rolling=RollingPolicy(size="1 GB")),
        lambda: KafkaSink(SERVERS, "t", guarantee="at-least-once", transaction_timeout="15 min"),
        lambda: postgres(split_size="1 MB", initial="none", **CDC),
        lambda: postgres(settle="5 s", poll_every="5 s", rows_per_split=5, **INCREMENTAL),
    ],
)
def test_an_argument_with_an_effect_or_equal_to_its_default_is_taken(make: Callable[[], Any]) -> None:
    make()


EVERY_KIND: dict[str, Callable[[Any], Any]] = {
    "Job: parallelism=": lambda value: Job("j", parallelism=value),
    "Job: spark=": lambda value: Job("j", spark=value),
    "Job: checkpoint_dir=": lambda value: Job("j", checkpoint_dir=value),
    "is no autoscaler": lambda value: Job("j", autoscaler=value),
    "is no restart strategy": lambda value: Job("j", restart=value),
    "is not an operator name": lambda value: Job("j").from_source(FileSource("in"), name=value),
    "side_outputs: side_outputs=": lambda value: EVENT_TIME.stream.flat_map(
        lambda record: [], schema="n int", side_outputs=value
    ),
    "union with": lambda value: EVENT_TIME.stream.union(value),
    "apply with": lambda value: EVENT_TIME.stream.apply(lambda left, right: left, value),
    "delay=": lambda value: WatermarkStrategy(timestamp="t", delay=value),
    "ExponentialDelayRestart: jitter=": lambda value: ExponentialDelayRestart(jitter=value),
    "Autoscaler: utilization_target=": lambda value: Autoscaler(max_parallelism=4, utilization_target=value),
    "PrintSink: limit=": lambda value: PrintSink(limit=value),
    "SocketSource: port=": lambda value: SocketSource("localhost", value),
    "FileSource: path=": FileSource,
    "FileSource: max_files_per_checkpoint=": lambda value: FileSource("in", max_files_per_checkpoint=value),
    "FileSink: columns=": lambda value: FileSink("out", columns=value),
    "FileSink: suffix=": lambda value: FileSink("out", suffix=value),
    "EventTimeBucketAssigner: field=": lambda value: EventTimeBucketAssigner(value, zone="UTC"),
    "KafkaSource: topics=": lambda value: KafkaSource(bootstrap_servers=SERVERS, topics=value),
    "KafkaSource: client_options=": lambda value: kafka(client_options=value),
    "KafkaSink: client_options=": lambda value: KafkaSink(SERVERS, "t", client_options=value),
    "PostgresSource: query=": lambda value: PostgresSource(DSN, query=value),
    "PostgresSink: key=": lambda value: PostgresSink(DSN, "t", key=value),
    "JdbcSink: key=": lambda value: JdbcSink("jdbc:mysql://h/d", "t", staging="/s", key=value),
    "SparkSource: options=": lambda value: SparkSource("rate", value),
    "DatagenSource: rate=": lambda value: DatagenSource(rate=value),
    "DatagenSource: rows_per_split=": lambda value: DatagenSource(rows_per_split=value),
    "DatagenSource: fields=": lambda value: DatagenSource("n int", fields=value),
}


@pytest.mark.parametrize("words", EVERY_KIND)
@pytest.mark.parametrize(
    "value", [True, timedelta(seconds=1), [object()], 1.5j], ids=["truth", "time", "list", "complex"]
)
def test_a_value_of_another_kind_is_refused_in_two_lines(words: str, value: Any) -> None:
    if words == "delay=" and isinstance(value, timedelta):
        return
    with pytest.raises(DefinitionError) as caught:
        EVERY_KIND[words](value)
    assert words in str(caught.value)
    assert str(caught.value).count("\n") == 1


SOURCE, SINK = FileSource("in"), FileSink("out", row="value")
EVENT_TIME = Job("events").from_source(SOURCE, BOUNDED).key_by("value")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda job: job.from_source("in"), "'in' is no source"),
        (lambda job: job.from_source(SINK), "is no source"),
        (lambda job: job.from_source(FileSource), "FileSource is a class, and a source is an object of one"),
        (lambda job: job.from_source(SOURCE).sink_to("out"), "'out' is no sink"),
        (lambda job: job.from_source(SOURCE).sink_to(SOURCE), "is no sink"),
        (lambda job: job.from_source(SOURCE).sink_to(FileSink), "FileSink is a class, and a sink is an object of one"),
        (lambda job: job.from_source(SOURCE).sink_to(PrintSink), "PrintSink is a class, and a sink is an object"),
        (lambda job: FileSink("out", row="value", bucket=EventTimeBucketAssigner), "is no assigner"),
        (lambda job: job.from_source(SOURCE, WatermarkStrategy), "a watermark strategy is an object of one"),
        (lambda job: EVENT_TIME.window(GlobalWindows), "GlobalWindows is a class, and a window assigner is"),
        (
            lambda job: EVENT_TIME.window(GlobalWindows()).trigger(CountTrigger),
            "CountTrigger is a class, and a trigger",
        ),
        (lambda job: EVENT_TIME.window(GlobalWindows()).evictor(3), "3 is no evictor"),
        (
            lambda job: EVENT_TIME.process(KeyedProcessFunction, schema="n int"),
            "is a class, and a KeyedProcessFunction",
        ),
    ],
)
def test_what_is_of_another_kind_and_a_class_in_place_of_its_object_are_told_in_two_lines(
    make: Callable[[Job], Any], said: str
) -> None:
    with pytest.raises(DefinitionError, match=said) as caught:
        make(Job("events"))
    assert str(caught.value).count("\n") == 1
