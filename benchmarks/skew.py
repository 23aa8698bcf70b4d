"""Uneven and large: a key with half of all rows, one record of 100 MB, a bucket for each of 10,000 rows, a window that holds 50 million.

Each runs to its end in bounded memory; a hot key shows in the share of its key group.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.measure import Usage, run
from benchmarks.result import Result

__all__ = ["CASES", "sums"]

_SHORT = 100_000  # records beside the large one
_SHORT_BYTES = 20


@dataclass(frozen=True)
class _Work:
    """One kind of work: how many rows, how many in a quick run, and by what their output is proven."""

    rows: int
    quick: int
    wanted: Callable[[int], int]


_WORK: Mapping[str, _Work] = {
    "hot": _Work(10_000_000, 100_000, lambda rows: rows),
    "uniform": _Work(10_000_000, 100_000, lambda rows: rows),
    "large": _Work(100_000_000, 5_000_000, lambda size: size + _SHORT * _SHORT_BYTES),
    "buckets": _Work(10_000, 1_000, lambda rows: rows * (rows - 1) // 2),
    "window": _Work(50_000_000, 200_000, lambda rows: rows),
    "elements": _Work(5_000_000, 100_000, lambda rows: rows),
}


def sums(folder: Path) -> tuple[int, int]:
    """Return the sum of the column n of all finished files, and how many files there are."""
    files = list(folder.rglob("part-*"))
    return sum(json.loads(line)["n"] for path in files for line in path.read_bytes().splitlines()), len(files)


def _run(bench: Bench, work: str) -> tuple[int, Usage, Mapping[str, float]]:
    """Run one kind of work; return its rows, what it cost and its figures. Raises WrongOutput."""
    given = _WORK[work]
    rows, folder = given.quick if bench.quick else given.rows, bench.folder(f"skew-{work}")
    words = [work, rows, folder / "out", folder / "checkpoints", folder / "found"]
    if work == "large":
        words.append(_with_a_large_record(folder / "in", rows))
    usage = run(program("jobs/skew.py", *words), env=bench.environment(folder), log=bench.log(f"skew/{work}"))
    total, files = sums(folder / "out")
    if total != given.wanted(rows) or (work == "buckets" and files != rows):
        raise WrongOutput(f"{work}: the sum is {total} in {files} files instead of {given.wanted(rows)}")
    figures = json.loads((folder / "found").read_text())
    shutil.rmtree(folder)
    return rows, usage, figures


def _with_a_large_record(folder: Path, size: int) -> Path:
    folder.mkdir()
    short = json.dumps({"key": "short", "text": "y" * _SHORT_BYTES}) + "\n"
    with (folder / "lines.json").open("w") as file:
        file.write(short * (_SHORT // 2))
        file.write('{"key": "large", "text": "')
        for first in range(0, size, 1_000_000):
            file.write("z" * min(1_000_000, size - first))
        file.write('"}\n')
        file.write(short * (_SHORT // 2))
    return folder


def skew(bench: Bench, work: str) -> Result:
    """One kind of work."""
    bench.warm()
    rows, usage, figures = _run(bench, work)
    return Result.of(f"skew/{work}", rows, usage, figures=figures)


def hot_key(bench: Bench) -> Result:
    """Half of all rows under one key, against the same without: how much more memory that takes, and what shows it."""
    bench.warm()
    _, _, even = _run(bench, "uniform")
    rows, usage, found = _run(bench, "hot")
    figures = {**found, "memory / uniform": found["memory MB"] / even["memory MB"]}
    figures["largest of sums / uniform"] = found["largest of sums"] / even["largest of sums"]
    if found["largest of sums"] < 0.5:
        raise WrongOutput(f"the hot key's group shows {found['largest of sums']} of the rows")
    return Result.of("skew/hot_key", rows, usage, figures=figures)


CASES: tuple[Case, ...] = (
    Case("skew/hot_key", hot_key),
    Case("skew/large", partial(skew, work="large")),
    Case("skew/buckets", partial(skew, work="buckets")),
    Case("skew/window", partial(skew, work="window")),
    Case("skew/elements", partial(skew, work="elements")),
)
