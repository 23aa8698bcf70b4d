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
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput
from benchmarks.measure import run
from benchmarks.result import Result

__all__ = ["CASES"]

_BASE_MS, _FILES = 1_545_184_224_000, 8
_KEYS = {"1k": 1_000, "100k": 100_000}
_WORK = ("window_native", "window_python", "process", "sessions_native", "sessions_python")


def rows_of(bench: Bench) -> int:
    """Return how many rows there are."""
    return 200_000 if bench.quick else 4_000_000


def given(bench: Bench, keys: int) -> Path:
    """Return the folder with the rows, made once."""
    rows = rows_of(bench)
    folder = bench.home / "data" / f"keyed-{rows}-{keys}"
    if (folder / "_done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = pa.array([f"key-{number}" for number in range(keys)])
    half = rows // 2
    for number in range(_FILES):
        js = np.arange(half * number // _FILES, half * (number + 1) // _FILES, dtype=np.uint64)
        i = np.ravel(np.column_stack([js, js + np.uint64(half)]))
        j = (i % np.uint64(half)).astype(np.int64)
        at = _BASE_MS + j // 50 - (j * 7919) % 4000
        key = ((i * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) % np.uint64(keys)
        columns = {
            "at": pa.array(at * 1000, pa.timestamp("us", "UTC")),
            "key": names.take(pa.array(key.astype(np.int64))),
            "n": pa.array((i % np.uint64(1000)).astype(np.int64)),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", use_dictionary=False)
    (folder / "_done").touch()
    return folder


def counted(folder: Path) -> int:
    """Return the sum of all counts in the finished files."""
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return sum(json.loads(line)["n"] for path in files for line in path.read_bytes().splitlines())


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
    return found


CASES: tuple[Case, ...] = tuple(_cases())
