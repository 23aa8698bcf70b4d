"""What checkpoints of many files cost on a store that takes 20 ms a call: verify, commit, abort, sweep, the driver's memory, the ledger's
records; a thousand files and ten thousand. A file of the ten thousand has to cost what one of the thousand does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.bench import Bench, Case, program
from benchmarks.jobs.many_commits import BUCKETS, SMALL, Band
from benchmarks.measure import run
from benchmarks.result import Result

__all__ = ["CASES", "figures_of", "growth"]

_TASKS, _QUICK_TASKS = (100, 1000), (20, 60)
_PER_FILE = ("verify_s", "commit_s", "cpu_s", "abort_s", "sweep_s", "end_s", "record_bytes", "pending_bytes", "peak_kb")


def many_commits(bench: Bench, store: str) -> Result:
    """The checkpoints of a job with ten files a task; the program proves what came out."""
    name, work = f"many_commits/{store}", bench.folder(f"many-files-{store}")
    tasks = _QUICK_TASKS if bench.quick else _TASKS
    words = program("jobs/many_commits.py", store, work / "job", work / "bands", *tasks)
    usage = run(words, env=bench.environment(work), log=bench.log(name))
    bands = [Band(**band) for band in json.loads((work / "bands").read_text())]
    shutil.rmtree(work)
    last = bands[-1]
    whole_ms = (last.verify_s + last.commit_s) * 1000
    return Result.of(name, sum(band.files for band in bands), usage, median_ms=whole_ms, figures=figures_of(bands))


def figures_of(bands: Sequence[Band]) -> Mapping[str, float]:
    """Return what a run found, by name."""
    figures: dict[str, float] = {}
    for band in bands:
        seen = {
            "verify s": band.verify_s, "commit s": band.commit_s, "CPU s": band.cpu_s, "abort s": band.abort_s, "sweep s": band.sweep_s,
            "end s": band.end_s, "record bytes a file": band.record_bytes / band.files,
            "pending bytes a file": band.pending_bytes / band.files, "kB a file": band.peak_kb / band.files,
            f"ms of {SMALL * BUCKETS} files": band.few_ms, f"ms of {SMALL * BUCKETS} touched": band.touch_ms,
            f"bytes of {SMALL * BUCKETS} touched": band.touch_bytes, "calls at once": band.most_calls,
        }  # fmt: skip
        figures |= {f"{what} at {band.files:,}": value for what, value in seen.items()}
    before, after = bands[-2:]
    return {**figures, "growth": growth(before, after), "touch bytes growth": after.touch_bytes / before.touch_bytes}


def growth(before: Band, after: Band) -> float:
    """Return how many times as much a file costs, of the costliest measure, where there are more of them."""
    return max(
        (getattr(after, what) / after.files) / (getattr(before, what) / before.files)
        for what in _PER_FILE
        if getattr(before, what) > 0
    )


CASES: tuple[Case, ...] = (
    Case("many_commits/moves", partial(many_commits, store="moves")),
    Case("many_commits/uploads", partial(many_commits, store="uploads")),
)
