"""The cases: what is run, on which rows, and how its output is proven right before a figure is taken.

Every engine of a case gets the same rows, two tasks, a heap of 2 GB and the meter over its whole process tree.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.data import Input, WrongOutput, check, files
from benchmarks.flink.install import Installed, installed
from benchmarks.measure import process_cpu_s, run
from benchmarks.result import Result
from poundlock.errors import PoundlockError
from poundlock.runtime import cds
from poundlock.runtime.jars import jar_set
from poundlock.runtime.java import find_java
from poundlock.testing.kafka import EmbeddedKafka

__all__ = ["CASES", "Bench", "Case"]

ROOT = Path(__file__).resolve().parents[1]
TOPIC = "flink_test"
_SMALL_CHECKPOINTS, _WARM_UP, _COLD_STARTS = 60, 15, 3


@dataclass
class Bench:
    """Where one run of the benchmarks keeps its things.

    Args:
        home: folder for inputs, outputs and logs.
        quick: small inputs: shows that everything runs, its figures mean little.
    """

    home: Path
    quick: bool = False
    _exits: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Bench:
        self.home.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
        shutil.rmtree(self.home / "out", ignore_errors=True)

    @cached_property
    def lines(self) -> Input:
        """10 million lines in 40 files; quick: 200 000 in 8."""
        return files(self.home / "data", 200_000) if self.quick else files(self.home / "data", 2_000_000, copies=5)

    @cached_property
    def kafka_lines(self) -> Input:
        """What the topic holds."""
        return files(self.home / "data", 200_000) if self.quick else files(self.home / "data", 2_000_000, copies=2)

    @cached_property
    def broker(self) -> EmbeddedKafka:
        """A broker with the lines in a topic of three partitions."""
        home = self.home / "kafka"
        shutil.rmtree(home, ignore_errors=True)
        broker = self._exits.enter_context(EmbeddedKafka(home=home, heap="512m"))
        self._exits.callback(shutil.rmtree, home, ignore_errors=True)
        broker.create_topic(TOPIC, partitions=3)
        producer = broker.producer(linger_ms=50, batch_size=500_000, queue_buffering_max_messages=500_000)
        for number, file in enumerate(sorted(self.kafka_lines.folder.iterdir())):
            for i, line in enumerate(file.read_bytes().splitlines()):
                if i % 10_000 == 0:
                    producer.poll(0)
                while True:
                    try:
                        producer.produce(TOPIC, line, partition=(number + i // 100) % 3)
                        break
                    except BufferError:
                        producer.poll(0.1)
        if producer.flush(300):
            raise WrongOutput("the broker did not take all rows")
        return broker

    @cached_property
    def flink(self) -> Installed | None:
        """Flink, where it was installed."""
        return installed()

    def folder(self, name: str) -> Path:
        """Return an empty folder's path for an output."""
        path = self.home / "out" / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def warm(self, jar_sets: Sequence[str] = ()) -> None:
        """Have what `poundlock warm` makes once per installation; where it cannot be had, the figures are those without."""
        jars = [jar for name in jar_sets for jar in jar_set(name, progress=print)]
        try:
            cds.train(find_java(), jars, progress=print)
        except PoundlockError as error:
            print(f"measured without a class archive: {error}", flush=True)

    def environment(self, work: Path, **more: str) -> Mapping[str, str]:
        """Return the environment of a measured program: this package, and nothing of the user's poundlock."""
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return {**os.environ, "PYTHONPATH": path, "POUNDLOCK_STATE_DIR": str(work / "state"), **more}

    def log(self, name: str) -> Path:
        """Return the file for what a program prints."""
        path = self.home / "logs" / f"{name.replace('/', '-')}.log"
        path.parent.mkdir(exist_ok=True)
        return path

    def place(self, kind: str) -> str:
        """Return where a source is, as the programs take it."""
        return str(self.lines.folder) if kind == "files" else f"{self.broker.bootstrap_servers}/{TOPIC}"

    def given(self, kind: str) -> Input:
        """Return what a source holds."""
        return self.lines if kind == "files" else self.kafka_lines


def _measured(
    bench: Bench, name: str, kind: str, command: Sequence[str], work: Path, *, rewritten: bool = False, **env: str
) -> Result:
    """Run one program, prove its output, return its figures."""
    given = bench.given(kind)
    pid = bench.broker.pid if kind == "kafka" else None
    before = process_cpu_s(pid) if pid else 0.0
    usage = run(command, env=bench.environment(work, **env), log=bench.log(name))
    broker_cpu_s = process_cpu_s(pid) - before if pid else None
    check(work / "out", given, rewritten=rewritten)
    shutil.rmtree(work)
    return Result.of(name, given.rows, usage, broker_cpu_s=broker_cpu_s)


def _program(path: str, *arguments: object) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks" / path), *map(str, arguments)]


def event_log(bench: Bench, kind: str) -> Result:
    """The reference job on poundlock."""
    bench.warm(["kafka"] if kind == "kafka" else [])
    work = bench.folder(f"{kind}-poundlock")
    command = _program("jobs/event_log.py", kind, bench.place(kind), work / "out", work / "checkpoints")
    return _measured(bench, f"{kind}_to_files/poundlock", kind, command, work)


def python_map(bench: Bench) -> Result:
    """A Python function per record."""
    bench.warm()
    work = bench.folder("python-map")
    command = _program("jobs/python_map.py", bench.place("files"), work / "out", work / "checkpoints")
    return _measured(bench, "files_to_files/poundlock_python_map", "files", command, work, rewritten=True)


def spark_file_sink(bench: Bench, kind: str) -> Result:
    """The reference job on Spark's own file sink."""
    work = bench.folder(f"{kind}-spark")
    command = _program("spark_file_sink.py", kind, bench.place(kind), work / "out", work / "checkpoints")
    jars = ",".join(jar_set("kafka", progress=print)) if kind == "kafka" else ""
    return _measured(bench, f"{kind}_to_files/spark_file_sink", kind, command, work, BASELINE_JARS=jars)


def flink(bench: Bench, kind: str) -> Result | None:
    """The reference job on Flink, Java; None where it is not installed."""
    if bench.flink is None:
        return None
    work = bench.folder(f"{kind}-flink")
    opens = [word for p in ("util", "lang", "time") for word in ("--add-opens", f"java.base/java.{p}=ALL-UNNAMED")]
    command = [bench.flink.java, "-Xmx2g", "-XX:+UseSerialGC", *opens, "-cp", bench.flink.classpath, "EventLog"]
    command += [kind, bench.place(kind), str(work / "out"), str(work / "checkpoints")]
    return _measured(bench, f"{kind}_to_files/flink", kind, command, work)


def small_checkpoint(bench: Bench) -> Result:
    """The median time of a checkpoint of ten rows, after the first ones."""
    bench.warm()
    name, work = "small_checkpoint/poundlock", bench.folder("small-checkpoint")
    count = 25 if bench.quick else _SMALL_CHECKPOINTS
    command = _program("jobs/small_checkpoints.py", count, work / "out", work / "checkpoints", work / "times")
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
        command = _program("jobs/cold_start.py", work / "in", work / "out", work / "checkpoints", work / "times")
        begin = time.time()
        usage = run(command, env=bench.environment(work), log=bench.log(name))
        took.append((float((work / "times").read_text()) - begin) * 1000)
        lines = b"".join(p.read_bytes() for p in (work / "out").rglob("part-*"))
        if lines != rows:
            raise WrongOutput(f"{len(lines)} of {len(rows)} bytes came out")
        shutil.rmtree(work)
        results.append(Result.of(name, 10, usage, median_ms=statistics.median(took)))
    return results[-1]


@dataclass(frozen=True, slots=True)
class Case:
    """One figure: its name and how to get it; None where it cannot be had on this machine."""

    name: str
    measure: Callable[[Bench], Result | None]


# In this order, engine after engine, so that what is compared ran in the same minutes.
CASES: tuple[Case, ...] = (
    Case("files_to_files/poundlock", lambda bench: event_log(bench, "files")),
    Case("files_to_files/flink", lambda bench: flink(bench, "files")),
    Case("files_to_files/spark_file_sink", lambda bench: spark_file_sink(bench, "files")),
    Case("files_to_files/poundlock_python_map", python_map),
    Case("kafka_to_files/poundlock", lambda bench: event_log(bench, "kafka")),
    Case("kafka_to_files/flink", lambda bench: flink(bench, "kafka")),
    Case("kafka_to_files/spark_file_sink", lambda bench: spark_file_sink(bench, "kafka")),
    Case("small_checkpoint/poundlock", small_checkpoint),
    Case("cold_start/poundlock", cold_start),
)
