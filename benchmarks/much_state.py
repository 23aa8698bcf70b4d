"""What much state costs: checkpoints that touch a thousand keys of a million, of ten and of a hundred million, a start, a savepoint, a
start with other parallelism, and the answer for one key. The state is written in bulk, by the writer of tasks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.jobs.much_state import TOUCHED, expected
from benchmarks.measure import Usage, run
from benchmarks.result import Result

__all__ = ["CASES", "much_state"]

_KEYS = {"1M": 1_000_000, "10M": 10_000_000, "100M": 100_000_000}
_CHECKPOINTS, _AFTER = 60, 20
_BYTES = 230  # that the disk needs for a key, at most
_GROW = ("first s", "ms", "CPU ms", "kB written", "memory MB", "savepoint ms", "key ms")
_RESCALED = 3


def much_state(bench: Bench) -> Result:
    """A hundred million keys, 20 GB of runs, against a million; with fewer where the disk has no room."""
    bench.warm()
    sizes = {size: keys // (200 if bench.quick else 1) for size, keys in _KEYS.items()}
    room = shutil.disk_usage(bench.folder("much-state")).free * 2 // 3 // _BYTES
    sizes = {size: min(keys, room) for size, keys in sizes.items()}
    found = {size: _of(bench, size, keys) for size, keys in sizes.items()}
    usage = found["100M"][0]
    few, many = found["1M"][1], found["100M"][1]
    figures = {f"{size} {name}": value for size, (_, each) in found.items() for name, value in each.items()}
    figures |= {f"{name} growth": many[name] / few[name] for name in _GROW}
    figures |= {"rescaled / first": many["rescaled first s"] / many["first s"]}
    return Result.of(
        "much_state/100M", sizes["100M"], usage, median_ms=many["ms"], max_ms=many["first key ms"], figures=figures
    )


def _of(bench: Bench, size: str, keys: int) -> tuple[Usage, Mapping[str, float]]:
    """Return what the job took that goes on from a state of so many keys, and its figures."""
    work = bench.folder(f"much-state-{size}")
    out, checkpoints = work / "out", work / "checkpoints"
    env, log = bench.environment(work), bench.log(f"much_state/{size}")
    run(program("jobs/much_state.py", "make", keys, out, checkpoints), env=env, log=log, timeout_s=7200)
    usage, figures = Usage(code=0, wall_s=0, cpu_s=0, peak_mb=0, load=0), dict[str, float]()
    for before, count, parallelism in ((0, _CHECKPOINTS, 2), (_CHECKPOINTS, _AFTER, _RESCALED)):
        words = ("run", keys, before, count, out, checkpoints, parallelism, work / "found")
        used = run(program("jobs/much_state.py", *words), env=env, log=log)
        each = json.loads((work / "found").read_text())
        if before:
            figures |= {"rescaled first s": each["first s"], "rescaled ms": each["ms"]}
        else:
            usage, figures = used, each
    prove(out, keys, _CHECKPOINTS + _AFTER)
    size_of = sum(file.stat().st_size for file in checkpoints.rglob("*.arrow"))
    shutil.rmtree(work)
    return usage, {**figures, "state MB": size_of / 1e6}


def prove(out: Path, keys: int, checkpoints: int) -> None:
    """Compare what was sent on with what every touched key has to have been counted as. Raises WrongOutput."""
    counts = sum(json.loads(line)["n"] for path in out.rglob("part-*") for line in path.read_bytes().splitlines())
    if counts != (wanted := expected(keys, checkpoints)):
        raise WrongOutput(
            f"{checkpoints} checkpoints of {TOUCHED} keys of {keys} counted {counts} rows instead of {wanted}"
        )


CASES: tuple[Case, ...] = (Case("much_state/100M", much_state),)
