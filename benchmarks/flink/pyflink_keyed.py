"""Counts by key until a timer, ten seconds on, in PyFlink, over lines of JSON in a topic.

Arguments: JARS EACH WORK SERVERS/TOPIC OUT CHECKPOINTS. EACH is how many rows of each of the three partitions are read; WORK
is process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Duration, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, KafkaTopicPartition
from pyflink.datastream.functions import KeyedProcessFunction
from pyflink.datastream.state import ValueStateDescriptor

from benchmarks.flink.pyflink_local import environment, lines_to

_SPAN_MS = 10_000


class ByTime(TimestampAssigner):
    """The time of a row, in ms."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0] * 1000)


class Count(KeyedProcessFunction):
    """Counts the rows of a key until a timer, ten seconds on, gives the count."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        rows = self.rows.value()
        if rows is None:
            rows = 0
            at = ctx.timestamp()
            ctx.timer_service().register_event_time_timer(at - at % _SPAN_MS + _SPAN_MS - 1)
        self.rows.update(rows + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        yield f'{{"key":"{ctx.get_current_key()}","n":{self.rows.value()}}}'
        self.rows.clear()


def row(line: str) -> tuple[float, str, float]:
    given = json.loads(line)
    return given["timestamp"], given["key"], given["value"]


def main(jars: str, each: str, _work: str, place: str, out: str, checkpoints: str) -> None:
    env = environment(jars, checkpoints)  # loads the connector, so it comes first
    servers, topic = place.split("/", 1)
    ends = {KafkaTopicPartition(topic, partition): int(each) for partition in range(3)}
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_group_id(f"pyflink-baseline-{time.time_ns()}")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.offsets(ends))
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).with_timestamp_assigner(ByTime())
    rows = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
        .map(row, Types.TUPLE([Types.DOUBLE(), Types.STRING(), Types.DOUBLE()]))
        .assign_timestamps_and_watermarks(by_time)
    )
    counts = rows.key_by(lambda row: row[1], Types.STRING()).process(Count(), Types.STRING())
    counts.sink_to(lines_to(out))
    env.execute("pyflink-keyed")


if __name__ == "__main__":
    main(*sys.argv[1:])
