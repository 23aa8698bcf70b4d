"""The cases: what is run, on which rows, and how its output is proven right before a figure is taken.

What is compared with one another runs engine after engine, in the same minutes.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time

from benchmarks import (
    kafka_to_kafka,
    keyed,
    latency,
    ledger_cost,
    parquet_to_s3,
    postgres,
    postgres_copy,
    savepoint,
)
from benchmarks.bench import ROOT, Bench, Case, measured, program
from benchmarks.data import WrongOutput
from benchmarks.measure import run
from benchmarks.result import Result
from benchmarks.spark_connector import connector_jars

__all__ = ["CASES", "ROOT", "Bench", "Case"]

_SMALL_CHECKPOINTS, _WARM_UP, _COLD_STARTS = 60, 15, 3


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


def small_checkpoint(bench: Bench) -> Result:
    """The median time of a checkpoint of ten rows, after the first ones."""
    bench.warm()
    name, work = "small_checkpoint/poundlock", bench.folder("small-checkpoint")
    count = 25 if bench.quick else _SMALL_CHECKPOINTS
    command = program("jobs/small_checkpoints.py", count, work / "out", work / "checkpoints", work / "times")
    usage = run(command, env=bench.environment(work), log=bench.log(name))
    took = json.loads((work / "times").read_text())
    lines = sum(p.read_bytes().count(b"\n") for p in (work / "out").rglob("part-*"))
    if lines != count * 10:
        raise WrongOutput(f"{lines} of {count * 10} rows came out")
    shutil.rmtree(work)
    return Result.of(name, lines, usage, median_ms=statistics.median(took[_WARM_UP:]))


def cold_start(bench: Bench) -> Result:
    """Process start to first commit, ten rows; the median of a few."""
    bench.warm()
    name, took, results = "cold_start/poundlock", list[float](), list[Result]()
    for _ in range(1 if bench.quick else _COLD_STARTS):
        work = bench.folder("cold-start")
        (work / "in").mkdir()
        rows = sorted(bench.lines.folder.iterdir())[0].open("rb").read(950)
        (work / "in" / "events.json").write_bytes(rows)
        command = program("jobs/cold_start.py", work / "in", work / "out", work / "checkpoints", work / "times")
        begin = time.time()
        usage = run(command, env=bench.environment(work), log=bench.log(name))
        took.append((float((work / "times").read_text()) - begin) * 1000)
        lines = b"".join(p.read_bytes() for p in (work / "out").rglob("part-*"))
        if lines != rows:
            raise WrongOutput(f"{len(lines)} of {len(rows)} bytes came out")
        shutil.rmtree(work)
        results.append(Result.of(name, 10, usage, median_ms=statistics.median(took)))
    return results[-1]


# In this order, engine after engine, so that what is compared ran in the same minutes.
CASES: tuple[Case, ...] = (
    Case("files_to_files/poundlock", lambda bench: event_log(bench, "files")),
    Case("files_to_files/flink", lambda bench: flink(bench, "files")),
    Case("files_to_files/spark_file_sink", lambda bench: spark_file_sink(bench, "files")),
    Case("files_to_files/poundlock_python_map", python_map),
    Case("kafka_to_files/poundlock", lambda bench: event_log(bench, "kafka")),
    Case("kafka_to_files/flink", lambda bench: flink(bench, "kafka")),
    Case("kafka_to_files/spark_file_sink", lambda bench: spark_file_sink(bench, "kafka")),
    *kafka_to_kafka.CASES,
    *latency.CASES,
    *keyed.CASES,
    *ledger_cost.CASES,
    *postgres_copy.CASES,
    *parquet_to_s3.CASES,
    *savepoint.CASES,
    *postgres.CASES,
    Case("small_checkpoint/poundlock", small_checkpoint),
    Case("cold_start/poundlock", cold_start),
)
