"""Counts and sums by key and ten seconds on PyFlink's DataStream API, the functions in Python. Arguments: JARS SERVERS TOPIC OUT CHECKPOINTS."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterable
from typing import Any

from pyflink.common import Configuration, Duration, Encoder, Time, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink
from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

_ROW = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
_SUMS = Types.TUPLE([Types.LONG(), Types.DOUBLE()])


class Sums(AggregateFunction):
    """How many rows there were, and their values added up."""

    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add(self, value: tuple[str, float], accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator

    def merge(self, a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        return a[0] + b[0], a[1] + b[1]


class Line(ProcessWindowFunction):
    """The sums with their key and window, as a line of JSON."""

    def process(self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]) -> Iterable[str]:
        for n, total in elements:
            yield json.dumps({"key": key, "window_start": context.window().start, "n": n, "total": total})


def row(line: str) -> tuple[str, float]:
    value = json.loads(line)
    return value["key"], value["value"]


if __name__ == "__main__":
    jars, servers, topic, out, checkpoints = sys.argv[1:6]
    settings = Configuration()
    settings.set_string("pipeline.jars", jars)
    settings.set_string("python.executable", sys.executable)
    settings.set_string("restart-strategy.type", "none")
    # In process mode, the default, 90,000 of the rows took 160 CPU seconds.
    settings.set_string("python.execution-mode", "thread")
    # The interpreter in the JVM does not find the packages of a virtual environment by itself.
    settings.set_string("python.pythonpath", sysconfig.get_path("platlib"))
    settings.set_string("execution.checkpointing.interval", "10 s")
    settings.set_string("execution.checkpointing.dir", f"file://{checkpoints}")
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(2)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    # The event time is that of the Kafka record: only so does each partition have a watermark of its own in Python.
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    rows = env.from_source(source, late, "rows").map(row, output_type=_ROW)
    windows = rows.key_by(lambda value: value[0], key_type=Types.STRING()).window(
        TumblingEventTimeWindows.of(Time.seconds(10))
    )
    lines = windows.aggregate(Sums(), Line(), accumulator_type=_SUMS, output_type=Types.STRING())
    sink = FileSink.for_row_format(out, Encoder.simple_string_encoder())
    lines.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    env.execute("windows")
