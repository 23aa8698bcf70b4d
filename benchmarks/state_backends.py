"""State backends side by side: counts by key with few keys and with many, of which each checkpoint changes some."""

from __future__ import annotations

import json
import shutil
import statistics
from functools import partial

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.measure import run
from benchmarks.result import Result
from poundlock.values import STATE_BACKENDS

__all__ = ["CASES"]

_SIZES = {"small": (10_000, 1_000), "large": (1_000_000, 10_000)}
_QUICK = {"small": (1_000, 100), "large": (10_000, 1_000)}
_CHECKPOINTS, _QUICK_CHECKPOINTS, _WARM_UP = 30, 4, 5


def counts(bench: Bench, backend: str, size: str) -> Result:
    """Counts by key on one backend; every row is in a count in the end."""
    bench.warm()
    name, work = f"state_backends/{backend}_{size}", bench.folder(f"state-{backend}-{size}")
    keys, changed = (_QUICK if bench.quick else _SIZES)[size]
    checkpoints = _QUICK_CHECKPOINTS if bench.quick else _CHECKPOINTS
    command = program("jobs/keyed_counts.py", backend, keys, changed, checkpoints, work)
    usage = run(command, env=bench.environment(work), log=bench.log(name))
    found = json.loads((work / "figures").read_text())
    rows = keys + changed * (checkpoints + 1)
    if found["rows"] != rows:
        raise WrongOutput(f"{found['rows']} of {rows} rows were counted")
    shutil.rmtree(work)
    took = found["ms"][0 if bench.quick else _WARM_UP :]
    figures = {
        "state on disk, MB": found["state_bytes"] / 2**20,
        "first checkpoint after a start, ms": found["start_ms"],
    }
    return Result.of(
        name, rows, usage, median_ms=statistics.median(took), max_ms=max(took),
        figures={what: round(value, 1) for what, value in figures.items()},
    )  # fmt: skip


CASES: tuple[Case, ...] = tuple(
    Case(f"state_backends/{backend}_{size}", partial(counts, backend=backend, size=size))
    for size in _SIZES
    for backend in STATE_BACKENDS
)
