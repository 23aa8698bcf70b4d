"""Work by key: counts in windows, a function with a state and a timer, sessions; 1,000 and 100,000 keys, every engine on the same rows.

Row i of n: j = i mod n/2, its time j/50 ms after the first, up to 4 s out of order, its key one of K at random: 100,000 rows a
second of event time. poundlock and Spark read the rows from Parquet, Flink makes them in memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput, finished
from benchmarks.keyed_rows import BASE_MS, columns_of
from benchmarks.measure import Usage, run
from benchmarks.result import Result

__all__ = ["CASES", "rows_of"]

_FILES = 20
_KEYS = {"1k": 1_000, "100k": 100_000}
_WORK = ("window_native", "window_python", "process", "sessions")


def rows_of(bench: Bench) -> int:
    """Return how many rows there are."""
    return 200_000 if bench.quick else 10_000_000


def given(bench: Bench, keys: int) -> Path:
    """Return the folder with the rows, made once."""
    rows = rows_of(bench)
    folder = bench.home / "data" / f"keyed-{rows}-{keys}"
    if (folder / "_done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = pa.array([f"key-{number}" for number in range(keys)])
    for number in range(_FILES):
        at, key, value = columns_of(rows, keys, number, _FILES)
        columns = {
            "at": pa.array(at * 1000, pa.timestamp("us", "UTC")),
            "key": names.take(pa.array(key)),
            "n": pa.array(value),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", use_dictionary=False)
    (folder / "_done").touch()
    return folder


def counted(folder: Path) -> int:
    """Return the sum of all counts in the finished files."""
    return sum(json.loads(line)["n"] for path in finished(folder) for line in path.read_bytes().splitlines())


def poundlock(bench: Bench, work: str, size: str) -> Result:
    """One kind of work on poundlock; every row is counted once."""
    bench.warm()
    name, folder = f"keyed/{work}_{size}", bench.folder(f"keyed-{work}-{size}")
    keys = _KEYS[size]
    words = (work, keys, given(bench, keys), folder / "out", folder / "checkpoints")
    usage = run(program("jobs/keyed_work.py", *words), env=bench.environment(folder), log=bench.log(name))
    if (found := counted(folder / "out")) != rows_of(bench):
        raise WrongOutput(f"{found} of {rows_of(bench)} rows were counted")
    shutil.rmtree(folder)
    return Result.of(name, rows_of(bench), usage)


def spark(bench: Bench, work: str, size: str) -> Result:
    """The same on Spark alone; what is open at its end stays out, so that only most of the rows are counted."""
    name, folder = f"keyed/spark_{work}_{size}", bench.folder(f"keyed-spark-{work}-{size}")
    keys = _KEYS[size]
    words = (work, keys, given(bench, keys), folder / "out", folder / "checkpoints")
    usage = run(program("spark_keyed.py", *words), env=bench.environment(folder), log=bench.log(name))
    found, rows = counted(folder / "out"), rows_of(bench)
    least = 0 if bench.quick or work == "sessions" else rows // 2
    if not least <= found <= rows:
        raise WrongOutput(f"{found} of {rows} rows were counted")
    shutil.rmtree(folder)
    return Result.of(name, rows, usage)


def flink(bench: Bench, work: str, size: str) -> Result | None:
    """The same on Flink; None where it is not installed."""
    if bench.flink is None:
        return None
    name, folder = f"keyed/flink_{work}_{size}", bench.folder(f"keyed-flink-{work}-{size}")
    rows, keys = rows_of(bench), _KEYS[size]
    log = bench.log(name)
    words = (work, rows, keys, folder / "out", folder / "checkpoints")
    usage = run(bench.flink.command("KeyedWork", *words), env=bench.environment(folder), log=log)
    if (found := counted(folder / "out")) != rows:
        raise WrongOutput(f"{found} of {rows} rows were counted")
    shutil.rmtree(folder)
    return Result.of(name, rows, usage)


def _open_at_once(bench: Bench, keys: int) -> Path:
    """Return a folder with one row for each key, all in one window, and behind them a row an hour later."""
    folder = bench.folder(f"keyed-open-{keys}-in")
    names = pa.array([f"key-{number}" for number in range(keys)])
    for number, first in enumerate(range(0, keys, 250_000)):
        some = names.slice(first, 250_000)
        _write(folder / f"{number}.parquet", np.full(len(some), BASE_MS), some)
    _write(folder / "9.parquet", np.array([BASE_MS + 3_600_000]), names.slice(0, 1))
    return folder


def _write(path: Path, at_ms: npt.NDArray[np.int64], key: pa.Array) -> None:
    n = pa.array(np.zeros(len(key), np.int64))
    at = pa.array(at_ms * 1000, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "key": key, "n": n}), path, use_dictionary=False)


def open_windows(bench: Bench) -> Result:
    """A hundred thousand windows are open at once, then a million, and one watermark closes all of them: what state takes grows as they do."""
    bench.warm()
    few, many = (1_000, 10_000) if bench.quick else (100_000, 1_000_000)
    _, before = _open_windows(bench, few)
    usage, after = _open_windows(bench, many)
    figures = {"state bytes a window": after / many, "growth": (after / many) / (before / few)}
    return Result.of("keyed/open_windows", many + 1, usage, figures=figures)


def _open_windows(bench: Bench, keys: int) -> tuple[Usage, int]:
    """Return what it took, and the bytes of state there were at most."""
    folder, source = bench.folder(f"keyed-open-{keys}"), _open_at_once(bench, keys)
    words = ("window_python", keys, source, folder / "out", folder / "checkpoints", folder / "state-bytes")
    log = bench.log(f"keyed/open_windows_{keys}")
    usage = run(program("jobs/keyed_work.py", *words), env=bench.environment(folder), log=log)
    if (found := counted(folder / "out")) != keys + 1:
        raise WrongOutput(f"{found} of {keys + 1} rows were counted")
    state = int((folder / "state-bytes").read_text())
    shutil.rmtree(folder)
    shutil.rmtree(source)
    return usage, state


def _cases() -> Sequence[Case]:
    """Return the cases, what is compared side by side."""
    found: list[Case] = []
    for size in _KEYS:
        for work in ("window", "process", "sessions"):
            for mine in (each for each in _WORK if each.startswith(work)):
                found.append(Case(f"keyed/{mine}_{size}", partial(poundlock, work=mine, size=size)))
            if work != "process":
                found.append(Case(f"keyed/spark_{work}_{size}", partial(spark, work=work, size=size)))
            found.append(Case(f"keyed/flink_{work}_{size}", partial(flink, work=work, size=size)))
    return [*found, Case("keyed/open_windows", open_windows)]


CASES: tuple[Case, ...] = tuple(_cases())
