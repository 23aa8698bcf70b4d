"""What small checkpoints cost: ten rows, a thousand keys of a large state, four rows into many branches; and the start of a job."""

from __future__ import annotations

import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.bench import ROOT, Bench, Case, program
from benchmarks.data import LINE_BYTES, WrongOutput
from benchmarks.jobs import many_branches as many_branches_job
from benchmarks.jobs import state_keys
from benchmarks.jobs.life import durations_ms
from benchmarks.jobs.many_branches import ROWS
from benchmarks.measure import Usage, run
from benchmarks.result import Result

__all__ = ["CASES"]

_FIRST_EDITION = "e409480"  # the last revision of the repository before the loop of our own
_CHECKPOINTS, _WARM_UP, _COLD_STARTS = 60, 15, 3
_STATE_CHECKPOINTS = 40
_KEYS = {"10k": 10_000, "1M": 1_000_000, "10M": 10_000_000}
_BRANCHES, _BRANCH_CHECKPOINTS = (5, 10, 20), 40


def _counted(folder: Path) -> int:
    return sum(p.read_bytes().count(b"\n") for p in folder.rglob("part-*"))


def _sum(folder: Path) -> int:
    return sum(json.loads(line)["n"] for p in folder.rglob("part-*") for line in p.read_bytes().splitlines())


def small_checkpoint(bench: Bench, engine: str, env: Mapping[str, str], folder: Path) -> Result:
    """The median time of a checkpoint of ten rows, after the first ones."""
    name, work = f"small_checkpoint/{engine}", bench.folder(f"small-checkpoint-{engine}")
    count = 25 if bench.quick else _CHECKPOINTS
    words = (count, work / "out", work / "checkpoints", work / "times")
    command = [sys.executable, str(folder / "benchmarks" / "jobs" / "small_checkpoints.py"), *map(str, words)]
    usage = run(command, env={**bench.environment(work), **env}, log=bench.log(name))
    took = json.loads((work / "times").read_text())
    if (lines := _counted(work / "out")) != count * 10:
        raise WrongOutput(f"{lines} of {count * 10} rows came out")
    shutil.rmtree(work)
    return Result.of(name, lines, usage, median_ms=statistics.median(took[_WARM_UP:]))


def ours(bench: Bench) -> Result:
    """Ten rows a checkpoint on what is here."""
    bench.warm()
    return small_checkpoint(bench, "poundlock", {}, ROOT)


def first_edition(bench: Bench) -> Result | None:
    """The same on the first edition, in the same minutes; None where the history of the repository does not have it."""
    folder = bench.home / "first-edition"
    if not folder.exists():
        packed = subprocess.run(["git", "-C", str(ROOT), "archive", _FIRST_EDITION], capture_output=True, check=False)
        if packed.returncode:
            return None
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it since 3.11.4
            archive.extractall(folder)
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    return small_checkpoint(bench, "first_edition", {"PYTHONPATH": path}, folder)


def cold_start(bench: Bench) -> Result:
    """Process start to first committed file, ten rows; the median of a few."""
    bench.warm()

    def command(work: Path) -> list[str]:
        return program("jobs/cold_start.py", work / "in", work / "out", work / "checkpoints", work / "parts")

    return _cold_start(bench, "poundlock", command)


def flink_cold_start(bench: Bench) -> Result | None:
    """The same on Flink, Java, in a cluster of one process; None where it is not installed."""
    installed = bench.flink
    if installed is None:
        return None

    def command(work: Path) -> list[str]:
        words = ("EventLog", "files", work / "in", work / "out", work / "checkpoints")
        # So short a job ends sooner where Java compiles less; ours starts its JVM so too.
        return installed.command(*words, options=["-XX:TieredStopAtLevel=1"])

    return _cold_start(bench, "flink", command)


def _cold_start(bench: Bench, engine: str, command: Callable[[Path], Sequence[str]]) -> Result:
    name, took, parts = f"cold_start/{engine}", list[float](), list[Mapping[str, float]]()
    for _ in range(1 if bench.quick else _COLD_STARTS):
        work = bench.folder(f"cold-start-{engine}")
        (work / "in").mkdir()
        rows = sorted(bench.lines.folder.iterdir())[0].open("rb").read(10 * LINE_BYTES)
        (work / "in" / "events.json").write_bytes(rows)
        begin = time.time()
        with ThreadPoolExecutor(1) as thread:
            visible = thread.submit(_first_file, work)
            try:
                usage = run(command(work), env=bench.environment(work), log=bench.log(name))
            finally:
                (work / "ended").touch()
            took.append((visible.result() - begin) * 1000)
        lines = b"".join(path.read_bytes() for path in (work / "out").rglob("part-*"))
        if lines != rows:
            raise WrongOutput(f"{len(lines)} of {len(rows)} bytes came out")
        if (over := work / "parts").exists():
            parts.append(durations_ms(begin, json.loads(over.read_text())))
        shutil.rmtree(work)
    figures = {part: statistics.median(each[part] for each in parts) for part in parts[0]} if parts else {}
    return Result.of(name, 10, usage, median_ms=statistics.median(took), max_ms=max(took), figures=figures)


def _first_file(work: Path) -> float:
    """Return when the first finished file is seen in the output, seconds since 1970; `ended` is there when no more will come."""
    while True:
        last = (work / "ended").exists()
        if any((work / "out").rglob("part-*")):
            return time.time()
        if last:
            raise WrongOutput("no file came out")
        time.sleep(0.01)


def state_cost(bench: Bench) -> Result:
    """A checkpoint touches 1,000 keys of ten thousand, of a million, of ten million: how much more the most costs than the fewest."""
    bench.warm()
    found: dict[str, Mapping[str, float]] = {}
    for size, keys in _KEYS.items():
        keys = keys // 100 if bench.quick else keys
        work = bench.folder(f"state-cost-{size}")
        words = (keys, _STATE_CHECKPOINTS, work / "out", work / "checkpoints", work / "found")
        usage = run(
            program("jobs/state_keys.py", *words), env=bench.environment(work), log=bench.log(f"state_cost/{size}")
        )
        if (counts := _sum(work / "out")) != (wanted := state_keys.expected(keys, _STATE_CHECKPOINTS)):
            raise WrongOutput(f"the keys were counted as {counts} rows instead of {wanted}")
        found[size] = json.loads((work / "found").read_text())
        shutil.rmtree(work)
    few, *_, many = found.values()
    figures = {f"{size} {name}": value for size, each in found.items() for name, value in each.items()}
    figures |= {f"{what} growth": many[name] / few[name] for what, name in (("CPU", "CPU ms"), ("bytes", "kB written"))}
    return Result.of("state_cost/10M", keys, usage, median_ms=many["ms"], figures=figures)


def many_branches(bench: Bench) -> Result:
    """Four rows a checkpoint into 5, 10 and 20 keyed branches: the median of the most, and how it grows with them."""
    bench.warm()
    count = 20 if bench.quick else _BRANCH_CHECKPOINTS
    figures: dict[str, float] = {}
    for branches in _BRANCHES:
        usage, took, cpu = _many_branches(bench, branches, count)
        figures |= {f"{branches} branches ms": took, f"{branches} branches CPU ms": cpu}
    few, most = min(_BRANCHES), max(_BRANCHES)
    for what in ("ms", "CPU ms"):
        growth = figures[f"{most} branches {what}"] / figures[f"{few} branches {what}"]
        figures[f"{what} growth / branches"] = growth / (most / few)
    return Result.of("many_branches/20", count * ROWS, usage, median_ms=took, figures=figures)


def _many_branches(bench: Bench, branches: int, count: int) -> tuple[Usage, float, float]:
    """Return what the run cost, and of the checkpoints after the first ones the median ms and the mean CPU ms."""
    work = bench.folder(f"many-branches-{branches}")
    words = (branches, count, work / "out", work / "checkpoints", work / "times")
    log = bench.log(f"many_branches/{branches}")
    usage = run(program("jobs/many_branches.py", *words), env=bench.environment(work), log=log)
    for branch in range(branches):
        counts, wanted = _sum(work / "out" / str(branch)), many_branches_job.expected(branch, count * ROWS)
        if counts != wanted:
            raise WrongOutput(f"branch {branch} of {branches} counted {counts} rows instead of {wanted}")
    marks = json.loads((work / "times").read_text())[min(_WARM_UP, count // 2) :]
    shutil.rmtree(work)
    return usage, statistics.median(ms for ms, _ in marks), (marks[-1][1] - marks[0][1]) / (len(marks) - 1)


CASES: tuple[Case, ...] = (
    Case("small_checkpoint/poundlock", ours),
    Case("small_checkpoint/first_edition", first_edition),
    Case("state_cost/10M", state_cost),
    Case("many_branches/20", many_branches),
    Case("cold_start/poundlock", cold_start),
    Case("cold_start/flink", flink_cold_start),
)
