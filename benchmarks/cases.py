"""The cases: what is run, on which rows, and how its output is proven right before a figure is taken.

What is compared with one another runs engine after engine, in the same minutes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks import (
    cluster,
    commits_by_tasks,
    kafka_to_kafka,
    keyed,
    keyed_kafka,
    latency,
    ledger_cost,
    many,
    many_commits,
    much_state,
    parquet_to_s3,
    postgres,
    postgres_copy,
    recovery,
    savepoint,
    skew,
    small,
    table_append,
)
from benchmarks.bench import ROOT, Bench, Case, measured, program
from benchmarks.data import check
from benchmarks.nexmark import cases as nexmark
from benchmarks.peers import cases as peers
from benchmarks.result import Result
from benchmarks.spark_connector import connector_jars

__all__ = ["CASES", "ROOT", "Bench", "Case"]


def event_log(bench: Bench, kind: str) -> Result:
    """The reference job on poundlock."""
    bench.warm()
    work = bench.folder(f"{kind}-poundlock")
    command = program("jobs/event_log.py", kind, bench.place(kind), work / "out", work / "checkpoints")
    return measured(bench, f"{kind}_to_files/poundlock", kind, command, work)


def python_map(bench: Bench) -> Result:
    """A Python function per record."""
    bench.warm()
    work = bench.folder("python-map")
    command = program("jobs/python_map.py", bench.place("files"), work / "out", work / "checkpoints")
    return measured(bench, "files_to_files/poundlock_python_map", "files", command, work, rewritten=True)


def pyflink_map(bench: Bench) -> Result | None:
    """The same function in PyFlink, into one folder, since Python cannot name one for a record; None where it is not installed."""
    if bench.pyflink is None:
        return None
    work = bench.folder("pyflink-map")
    command = bench.pyflink.command("pyflink_map.py", bench.place("files"), work / "out" / "all", work / "checkpoints")
    proof = partial(check, work / "out", replace(bench.lines, buckets={"all": bench.lines.rows}), rewritten=True)
    return measured(bench, "files_to_files/pyflink_python_map", "files", command, work, proof=proof)


def spark_file_sink(bench: Bench, kind: str) -> Result:
    """The reference job on Spark's own file sink."""
    work = bench.folder(f"{kind}-spark")
    command = program("spark_file_sink.py", kind, bench.place(kind), work / "out", work / "checkpoints")
    jars = connector_jars() if kind == "kafka" else ""
    return measured(bench, f"{kind}_to_files/spark_file_sink", kind, command, work, BASELINE_JARS=jars)


def flink(bench: Bench, kind: str) -> Result | None:
    """The reference job on Flink, Java; None where it is not installed."""
    if bench.flink is None:
        return None
    work = bench.folder(f"{kind}-flink")
    command = bench.flink.command("EventLog", kind, bench.place(kind), work / "out", work / "checkpoints")
    return measured(bench, f"{kind}_to_files/flink", kind, command, work)


# In this order, engine after engine, so that what is compared ran in the same minutes.
CASES: tuple[Case, ...] = (
    Case("files_to_files/poundlock", lambda bench: event_log(bench, "files")),
    Case("files_to_files/flink", lambda bench: flink(bench, "files")),
    Case("files_to_files/spark_file_sink", lambda bench: spark_file_sink(bench, "files")),
    Case("files_to_files/poundlock_python_map", python_map),
    Case("files_to_files/pyflink_python_map", pyflink_map),
    Case("kafka_to_files/poundlock", lambda bench: event_log(bench, "kafka")),
    Case("kafka_to_files/flink", lambda bench: flink(bench, "kafka")),
    Case("kafka_to_files/spark_file_sink", lambda bench: spark_file_sink(bench, "kafka")),
    *kafka_to_kafka.CASES,
    *latency.CASES,
    *keyed.CASES,
    *keyed_kafka.CASES,
    *ledger_cost.CASES,
    *much_state.CASES,
    *many.CASES,
    *many_commits.CASES,
    *commits_by_tasks.CASES,
    *postgres_copy.CASES,
    *parquet_to_s3.CASES,
    *table_append.CASES,
    *recovery.CASES,
    *savepoint.CASES,
    *postgres.CASES,
    *skew.CASES,
    *small.CASES,
    *cluster.CASES,
    *nexmark.CASES,
    *peers.CASES,
)
