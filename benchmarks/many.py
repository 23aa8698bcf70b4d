"""What a job costs that reads very many things: 10,000 Kafka partitions, a million files, 200 topics by pattern.

What is to stay flat is compared with a tenth of it: the record of a checkpoint in which as many partitions moved, the plan and
the position over files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.jobs.many_partitions import ROWS, SOURCE, Load, positions
from benchmarks.measure import Usage, run
from benchmarks.result import Result
from benchmarks.topics import produce_to
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka

__all__ = ["CASES", "prove_offsets"]

_PARTITIONS, _FEW = (1_000, 10_000), 100
_COUNT, _QUICK_COUNT = 120, 10
_FILES, _QUICK_FILES = (100_000, 1_000_000), (10_000, 50_000)
_TOPICS, _EACH, _ROWS = 200, 10, 5


def few_move(bench: Bench) -> Result:
    """A hundred partitions move from one checkpoint to the next, of 1,000 and of 10,000 that there are."""
    name, found = "many_partitions/few_move", list[Mapping[str, float]]()
    for partitions in _PARTITIONS:
        rows, usage, cost = _partitions(bench, name, partitions, _FEW)
        found.append(cost)
    figures = {f"{what} of {n:,}": each[what] for n, each in zip(_PARTITIONS, found, strict=True) for what in each}
    figures["record growth"] = found[-1]["record bytes"] / found[0]["record bytes"]
    return Result.of(name, rows, usage, median_ms=found[-1]["ms"], max_ms=found[-1]["longest ms"], figures=figures)


def all_move(bench: Bench) -> Result:
    """All of 10,000 partitions move from one checkpoint to the next."""
    name, partitions = "many_partitions/all_move", _PARTITIONS[-1]
    rows, usage, figures = _partitions(bench, name, partitions, partitions)
    return Result.of(name, rows, usage, median_ms=figures["ms"], max_ms=figures["longest ms"], figures=figures)


def _partitions(bench: Bench, name: str, partitions: int, moved: int) -> tuple[int, Usage, Mapping[str, float]]:
    work, load = bench.folder(name.replace("/", "-")), Load(partitions, partitions // 50, moved)
    count = _QUICK_COUNT if bench.quick else _COUNT
    words = (work / "checkpoints", work / "found", partitions, partitions // 50, moved, count)
    usage = run(program("jobs/many_partitions.py", *words), env=bench.environment(work), log=bench.log(name))
    prove_offsets(work / "checkpoints", load, count)
    figures = json.loads((work / "found").read_text())
    shutil.rmtree(work)
    return count * moved * ROWS, usage, figures


def prove_offsets(folder: Path, load: Load, last: int) -> None:
    """Compare every decision of a ledger with what there was to read. Raises WrongOutput."""
    checkpoint, names = -1, {f"{topic}-{partition}" for topic, partition in load.places}
    before = positions(load)
    position = next(before)
    for decision in Ledger(LocalStorage(str(folder))):
        if decision.occasion != "checkpoint":
            continue
        checkpoint += 1
        span, times = decision.sources[SOURCE], decision.watermarks
        begins = span.start == position
        position = next(before)
        if decision.checkpoint != checkpoint or not begins or span.end != position:
            raise WrongOutput(f"decision {decision.number} is not what there was to read in checkpoint {checkpoint}")
        if times is None or times.state.sources["time"][SOURCE].partitions.keys() != names:
            raise WrongOutput(f"decision {decision.number} does not have the event time of all partitions")
    if checkpoint != last:
        raise WrongOutput(f"{checkpoint} checkpoints of {last} were decided")


def many_files(bench: Bench) -> Result:
    """Files of a folder that is listed are taken, remembered and planned, ten thousand a checkpoint."""
    name, sizes = "many_files/poundlock", _QUICK_FILES if bench.quick else _FILES
    found: list[dict[str, float]] = []
    for files in sizes:
        work = bench.folder("many-files")
        words = (work / "workspace", work / "found", files)
        usage = run(program("jobs/many_files.py", *words), env=bench.environment(work), log=bench.log(name))
        _prove_files(work / "workspace" / "log", files)
        found.append(json.loads((work / "found").read_text()))
        shutil.rmtree(work)
    figures = {f"{what} of {n:,}": each[what] for n, each in zip(sizes, found, strict=True) for what in each}
    figures |= {f"{what} growth": found[-1][what] / found[0][what] for what in ("plan ms", "position bytes")}
    figures["peak MB"] = found[-1]["peak MB"]
    return Result.of(name, files, usage, median_ms=found[-1]["plan ms"], figures=figures)


def _prove_files(log: Path, files: int) -> None:
    """Read the log without poundlock: every file once, the oldest first."""
    paths: set[str] = set()
    newest = -1
    for entry in sorted(log.glob("*.json")):
        for path, _, modified_ms in json.loads(entry.read_text())["files"]:
            if modified_ms < newest:
                raise WrongOutput(f"{path} is older than the file before it")
            newest = modified_ms
            paths.add(path)
    if len(paths) != files:
        raise WrongOutput(f"{len(paths)} of {files} files are in the log")


def many_topics(bench: Bench) -> Result:
    """A job over 200 topics of ten partitions, by pattern, on a real broker of its own."""
    name, work = "many_topics/poundlock", bench.folder("many-topics")
    topics = 20 if bench.quick else _TOPICS
    bench.warm()
    with EmbeddedKafka(home=work / "kafka", heap="1g") as broker:
        names = [f"events-{topic:03d}" for topic in range(topics)]
        rows = produce_to(broker, names, _EACH, _ROWS)
        words = (broker.bootstrap_servers, "events-.*", work / "out", work / "checkpoints", work / "found")
        usage = run(program("jobs/many_topics.py", *words), env=bench.environment(work), log=bench.log(name))
    lines = sorted(line for path in (work / "out").rglob("part-*") for line in path.read_bytes().splitlines())
    if lines != sorted(rows):
        raise WrongOutput(f"{len(lines)} lines of {len(rows)} came out, or others")
    figures = json.loads((work / "found").read_text())
    if figures["partitions"] != topics * _EACH:
        raise WrongOutput(f"{figures['partitions']} partitions of {topics * _EACH} were planned")
    shutil.rmtree(work)
    return Result.of(name, len(lines), usage, median_ms=figures["plan ms"], figures=figures)


CASES: tuple[Case, ...] = (
    Case("many_partitions/few_move", few_move),
    Case("many_partitions/all_move", all_move),
    Case("many_files/poundlock", many_files),
    Case("many_topics/poundlock", many_topics),
)
