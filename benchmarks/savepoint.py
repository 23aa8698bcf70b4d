"""What a savepoint costs a job that goes on: how long its checkpoints wait, against how long one takes, by size of the state.

100,000 rows a second flow meanwhile. The state is 1 MB, 100 MB and 1 GB of half a kilobyte for each key.
"""

from __future__ import annotations

import json
import shutil
from functools import partial

from benchmarks.bench import Bench, Case, program
from benchmarks.measure import run
from benchmarks.result import Result

__all__ = ["CASES"]

_RATE = 100_000
_KEYS = {"1MB": 2_000, "100MB": 200_000, "1GB": 2_000_000}
_MB = 1_000_000


def savepoint(bench: Bench, size: str) -> Result:
    """Three savepoints of a job with a state of this size, each between ordinary checkpoints."""
    name, work = f"savepoint/{size}", bench.folder(f"savepoint-{size}")
    found = work / "found"
    keys = min(_KEYS[size], 20_000) if bench.quick else _KEYS[size]
    words = program("jobs/savepoint_state.py", keys, _RATE, work / "checkpoints", work / "out", found)
    usage = run(words, env=bench.environment(work), log=bench.log(name))
    value = json.loads(found.read_text())
    shutil.rmtree(work)
    figures = {
        "rows/s meanwhile": value["rows_per_s"],
        "savepoint MB": value["savepoint_bytes"] / _MB,
        "checkpoint ms": value["checkpoint_ms"],
        "pause ms": value["pause_ms"],
        "savepoint ms": value["savepoint_ms"],
        "pause / checkpoint": value["pause_max_ms"] / value["checkpoint_ms"],
    }
    return Result.of(
        name, value["rows"], usage, median_ms=value["pause_ms"], max_ms=value["pause_max_ms"], figures=figures
    )


CASES: tuple[Case, ...] = tuple(Case(f"savepoint/{size}", partial(savepoint, size=size)) for size in _KEYS)
