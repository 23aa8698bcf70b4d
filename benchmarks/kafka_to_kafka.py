"""Kafka to Kafka, the value as it is: poundlock exactly once and at least once, Spark's own sink, Flink exactly once.

The output is read by a consumer of read_committed records that has nothing to do with the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.bench import Bench, Case, measured, program
from benchmarks.result import Result
from benchmarks.spark_connector import connector_jars
from benchmarks.topics import output_topic, prove

__all__ = ["CASES"]

_NAME = "kafka_to_kafka"
_OUT = "bench_copy"
_PARTITIONS = 3
# What poundlock's source takes at most per checkpoint, so that the engines that cut by rows cut alike.
ROWS_PER_CHECKPOINT = 2_000_000


def _copied(bench: Bench, engine: str, command: Callable[[str, str], list[str]], *, jars: str = "") -> Result:
    """Run a program that copies the topic; `command` gets the source's place and the output topic."""
    name = f"{_NAME}/{engine}"
    work = bench.folder(name.replace("/", "-"))
    source = bench.place("kafka")
    with output_topic(bench.broker, _OUT, _PARTITIONS) as out:
        proof = partial(prove, bench.broker.bootstrap_servers, out, bench.lines)
        words = [*command(source, out), str(work / "checkpoints")]
        return measured(bench, name, "kafka", words, work, proof=proof, BASELINE_JARS=jars)


def poundlock(bench: Bench, engine: str, guarantee: str) -> Result:
    """The copy on poundlock."""
    bench.warm()
    return _copied(bench, engine, lambda source, out: program("jobs/kafka_copy.py", source, out, guarantee))


def spark(bench: Bench) -> Result:
    """The copy on Spark's own Kafka sink, which is at-least-once."""
    jars = connector_jars()
    words = partial(program, "spark_kafka_sink.py")
    return _copied(
        bench, "spark_kafka_sink", lambda source, out: words(source, out, f"rows:{ROWS_PER_CHECKPOINT}"), jars=jars
    )


def flink(bench: Bench) -> Result | None:
    """The copy on Flink, Java, exactly once; None where it is not installed."""
    installed = bench.flink
    if installed is None:
        return None
    return _copied(bench, "flink", lambda source, out: installed.command("KafkaCopy", source, out))


CASES: tuple[Case, ...] = (
    Case(f"{_NAME}/poundlock", lambda bench: poundlock(bench, "poundlock", "exactly-once")),
    Case(
        f"{_NAME}/poundlock_at_least_once", lambda bench: poundlock(bench, "poundlock_at_least_once", "at-least-once")
    ),
    Case(f"{_NAME}/spark_kafka_sink", spark),
    Case(f"{_NAME}/flink", flink),
)
