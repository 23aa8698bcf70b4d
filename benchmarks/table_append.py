"""Lines of JSON into tables of Delta and Iceberg: poundlock by its sinks, Spark by the streaming sinks of the two projects.

All cut the input into as many checkpoints, with a commit each, on the local disk. The tables are read afterwards, poundlock's and Spark's by the
same library: the rows are written as the lines they came from, and the hash of all of them has to be that of the input.

Spark's Iceberg is made for an older Spark than the one here: it runs in an environment of its own, made by `make bench-peers`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import ROOT, Bench, Case, program
from benchmarks.data import LINE_BYTES, Input, WrongOutput, files, fingerprint
from benchmarks.measure import run
from benchmarks.parquet_to_s3 import as_lines
from benchmarks.peers.install import SPARK_ICEBERG, installed
from benchmarks.result import Result
from poundlock.errors import PoundlockError
from poundlock.spark.launch.jars import JarPins, Pin, jar_set

__all__ = ["CASES"]

Format = Literal["delta", "iceberg"]
_CHECKPOINTS = 4
_FILES = 8  # of the input; two of them are a checkpoint
_DELTA = JarPins(
    what="Delta for Spark",
    pins=(
        Pin(
            "io.delta",
            "delta-spark_4.2_2.13",
            "4.4.0",
            "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        ),
        Pin("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    ),
)


def _given(bench: Bench) -> Input:
    return files(bench.home / "data", 200_000 if bench.quick else 2_000_000)


def _files_of(format_: Format, place: Path) -> Sequence[str]:
    """Return the data files of a table's newest version."""
    if format_ == "delta":
        from deltalake import DeltaTable

        named = DeltaTable(str(place / "events")).file_uris()
    else:
        from pyiceberg.table import StaticTable

        versions = place.glob("db*/events/metadata/*.metadata.json")
        newest = max(versions, key=lambda path: path.stat().st_mtime_ns)
        named = [task.file.file_path for task in StaticTable.from_metadata(str(newest)).scan().plan_files()]
    return [f"/{name.removeprefix('file:').lstrip('/')}" for name in named]


def _prove(format_: Format, place: Path, given: Input) -> int:
    """Read a table, and return how many files it has. Raises WrongOutput where a row is missing, twice or changed."""
    rows, total = 0, 0
    paths = _files_of(format_, place)
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=200_000):
            block = as_lines(pa.Table.from_batches([batch]))
            rows += len(block) // LINE_BYTES
            total = (total + fingerprint(block)) % (1 << 64)
    if (rows, total) != (given.rows, given.fingerprint):
        raise WrongOutput(f"{rows} rows came out of {given.rows}, or others than went in")
    return len(paths)


def _measured(
    bench: Bench, format_: Format, engine: str, command: Callable[[Path], list[str]], jars: str = ""
) -> Result:
    name, given = f"{format_}_append/{engine}", _given(bench)
    work = bench.folder(name.replace("/", "-"))
    (work / "tables").mkdir(parents=True, exist_ok=True)
    usage = run(command(work), env=bench.environment(work, BASELINE_JARS=jars), log=bench.log(name))
    count = _prove(format_, work / "tables", given)
    shutil.rmtree(work)
    return Result.of(name, given.rows, usage, figures={"files": count})


def poundlock(bench: Bench, format_: Format) -> Result:
    """The rows on poundlock, exactly once."""
    bench.warm()
    folder = _given(bench).folder
    size = sum(file.stat().st_size for file in folder.iterdir()) // _CHECKPOINTS + 1

    def command(work: Path) -> list[str]:
        return program("jobs/table_append.py", format_, folder, work / "tables", work / "checkpoints", f"{size} B")

    return _measured(bench, format_, "poundlock", command)


def spark(bench: Bench, format_: Format) -> Result | None:
    """The rows on Spark's sink; None where its jars, or the Spark that they are for, are not there."""
    try:
        if format_ == "delta":
            python, jars = sys.executable, jar_set("delta-spark", progress=print, pins=_DELTA)
        elif installed(SPARK_ICEBERG):
            python, jars = str(SPARK_ICEBERG.bin / "python"), SPARK_ICEBERG.jars()
        else:
            return None
    except PoundlockError as error:
        print(f"not measured: {error}", flush=True)
        return None
    folder = _given(bench).folder

    def command(work: Path) -> list[str]:
        script = str(ROOT / "benchmarks" / "spark_table_sink.py")
        batch = str(_FILES // _CHECKPOINTS)
        return [python, script, format_, str(folder), str(work / "tables"), str(work / "checkpoints"), batch]

    return _measured(bench, format_, "spark", command, ",".join(map(str, jars)))


CASES: tuple[Case, ...] = tuple(
    Case(f"{format_}_append/{engine.__name__}", partial(engine, format_=format_))
    for format_ in ("delta", "iceberg")
    for engine in (poundlock, spark)
)
