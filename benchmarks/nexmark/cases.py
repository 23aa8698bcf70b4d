"""Nexmark's queries on poundlock and on Flink: the same events, in files and in Kafka, and the same text of SQL.

Results go into a blackhole, those of q10 into files. That both engines give the same rows is for tests/engine/test_nexmark.py to show.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks.bench import Bench, Case
from benchmarks.data import WrongOutput, finished
from benchmarks.measure import process_cpu_s, run
from benchmarks.nexmark.events import Events, events, lines_of, side_input
from benchmarks.nexmark.scripts import QUERIES, script
from benchmarks.result import Result
from benchmarks.topics import fill

__all__ = ["CASES", "TOPIC", "given"]

From = Literal["files", "kafka"]
TOPIC = "nexmark"
_PARALLELISM = 2
_JSON = {"format": "json"}
_NEEDS_HEAP = "-Xmx6g"  # of Flink, whose state is on the heap: q7 and q20 keep all bids


def given(bench: Bench) -> Events:
    """Return the events: 2 million; quick: 50,000."""
    return events(bench.home / "data", 50_000 if bench.quick else 2_000_000)


def poundlock(bench: Bench, query: str, source: From) -> Result:
    """A query on poundlock."""
    bench.warm()
    name, work = f"{_case(query, source)}/poundlock", bench.folder(f"nexmark-{query}-poundlock")
    settings = {"execution.checkpointing.interval": "0 s", "execution.checkpointing.dir": str(work / "checkpoints")}
    path = _written(bench, work, query, source, settings)
    words = [sys.executable, "-m", "poundlock", "sql", str(path), "--parallelism", str(_PARALLELISM)]
    return _measured(bench, name, words, work, query, source)


def flink(bench: Bench, query: str, source: From) -> Result | None:
    """The same on Flink; None where it is not installed."""
    if bench.flink is None:
        return None
    name, work = f"{_case(query, source)}/flink", bench.folder(f"nexmark-{query}-flink")
    path = _written(bench, work, query, source, {})
    command = bench.flink.command("SqlScript", path, work / "checkpoints", _PARALLELISM, options=[_NEEDS_HEAP])
    return _measured(bench, name, command, work, query, source)


def _case(query: str, source: From) -> str:
    return f"nexmark_{query}" if source == "files" else f"nexmark_{source}_{query}"


def _written(bench: Bench, work: Path, query: str, source: From, settings: Mapping[str, str]) -> Path:
    """Write the script of a query; return where it is."""
    side = {"connector": "filesystem", "path": str(side_input(bench.home / "data")), "format": "csv"}
    files = {"connector": "filesystem", "path": str(work / "out"), "format": "csv"}
    text = script([query], _source(bench, source), {"connector": "blackhole"}, files, side)
    sets = "".join(f"SET '{key}' = '{value}';\n" for key, value in settings.items())
    path = work / f"{query}.sql"
    path.write_text(sets + text)
    return path


def _source(bench: Bench, source: From) -> Mapping[str, str]:
    if source == "files":
        return {"connector": "filesystem", "path": str(given(bench).folder), **_JSON}
    return {
        "connector": "kafka",
        "topic": _topic(bench),
        "properties.bootstrap.servers": bench.broker.bootstrap_servers,
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        **_JSON,
    }


def _topic(bench: Bench) -> str:
    """Return the topic of the events, filled at its first use."""
    if TOPIC not in bench.broker.admin.list_topics(timeout=30).topics:
        fill(bench.broker, TOPIC, lines_of(given(bench)))
    return TOPIC


def _measured(bench: Bench, name: str, command: list[str], work: Path, query: str, source: From) -> Result:
    pid = bench.broker.pid if source == "kafka" else None
    before = process_cpu_s(pid) if pid else 0.0
    usage = run(command, env=bench.environment(work), log=bench.log(name))
    broker_cpu_s = process_cpu_s(pid) - before if pid else None
    if query == "q10" and (found := _lines_in(work / "out")) != given(bench).bids:
        raise WrongOutput(f"{found} of {given(bench).bids} bids were written")
    shutil.rmtree(work)
    return Result.of(name, given(bench).count, usage, broker_cpu_s=broker_cpu_s)


def _lines_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in finished(folder))


# Engine after engine on each query, so that what is compared ran in the same minutes.
CASES: tuple[Case, ...] = tuple(
    Case(f"{_case(query, source)}/{engine.__name__}", partial(engine, query=query, source=source))
    for source in ("files", "kafka")
    for query in QUERIES
    for engine in (poundlock, flink)
)
