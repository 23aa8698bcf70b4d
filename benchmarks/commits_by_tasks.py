"""What checkpoints of very many files cost on S3, played: verify, commit, abort and sweep by the driver, and by tasks of Spark, in one run.

A call takes 20 ms on its way and 1.4 ms of CPU of whoever makes it, as S3's client does, so that the driver's one core is what it all waits
for. With tasks it has to wait for the cores of the cluster instead, which are two here, and the driver has next to nothing to do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence

from benchmarks.bench import Bench, Case, program
from benchmarks.jobs.commits_by_tasks import Way
from benchmarks.measure import run
from benchmarks.result import Result

__all__ = ["CASES", "figures_of", "growth"]

_WRITERS, _QUICK_WRITERS = (1_000, 10_000), (150, 300)
_PER_FILE = ("verify_s", "commit_s", "abort_s", "sweep_s", "cpu_s")
_MOST_S = 4 * 3600.0


def commits_by_tasks(bench: Bench) -> Result:
    """Ten thousand files a checkpoint, and a hundred thousand; the program proves what came out, and who did it."""
    name, work = "commits_by_tasks/poundlock", bench.folder("commits-by-tasks")
    writers = _QUICK_WRITERS if bench.quick else _WRITERS
    words = program("jobs/commits_by_tasks.py", work / "job", work / "ways", *writers)
    usage = run(words, env=bench.environment(work), log=bench.log(name), timeout_s=_MOST_S)
    ways = [Way(**way) for way in json.loads((work / "ways").read_text())]
    shutil.rmtree(work)
    last = ways[-1]
    whole_ms = (last.verify_s + last.commit_s) * 1000
    return Result.of(name, sum(way.files for way in ways), usage, median_ms=whole_ms, figures=figures_of(ways))


def figures_of(ways: Sequence[Way]) -> Mapping[str, float]:
    """Return what a run found, by name: by the driver and by tasks in turn, the most files last."""
    figures: dict[str, float] = {}
    for way in ways:
        seen = {
            "verify s": way.verify_s, "commit s": way.commit_s, "abort s": way.abort_s, "sweep s": way.sweep_s,
            "driver's CPU s": way.cpu_s, "driver's kB a file": way.peak_kb / way.files, "pieces": float(way.pieces),
        }  # fmt: skip
        figures |= {f"by {way.by}, {what} at {way.files:,}": value for what, value in seen.items()}
    driver, tasks = ways[-2:]
    return {
        **figures,
        "tasks / driver": (tasks.verify_s + tasks.commit_s) / (driver.verify_s + driver.commit_s),
        "driver's CPU, tasks / driver": tasks.cpu_s / driver.cpu_s,
        "driver, by tasks MB": tasks.peak_kb / 1000,
        "growth": growth(*(way for way in ways if way.by == "tasks")),
    }


def growth(before: Way, after: Way) -> float:
    """Return how many times as much a file costs, of the costliest measure but memory, where there are more of them."""
    return max((getattr(after, what) / after.files) / (getattr(before, what) / before.files) for what in _PER_FILE)


CASES: tuple[Case, ...] = (Case("commits_by_tasks/poundlock", commits_by_tasks),)
