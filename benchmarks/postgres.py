"""A table of PostgreSQL to Parquet files: poundlock's snapshot, and Spark's JDBC reader.

The table is the same, two tasks read it, and the rows of the files are added up and held against the server's own sums.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.bench import Bench, Case, program
from benchmarks.data import WrongOutput, finished
from benchmarks.measure import run
from benchmarks.result import Result
from poundlock.spark.launch.jars import jar_set
from poundlock.testing.postgres import EmbeddedPostgres

__all__ = ["CASES"]

_NAME = "postgres_to_parquet"
_TABLE = "public.events"
_PARTS = 16


def _table(rows: int) -> Sequence[str]:
    return (
        f"""CREATE TABLE {_TABLE} AS SELECT i AS id, i % 1000 AS kind, random() AS score, md5(i::text) AS name,
            timestamptz '2024-01-01' + i * interval '1 second' AS at, (i % 100000)::numeric(12,2) / 100 AS amount,
            i % 2 = 0 AS done FROM generate_series(1, {rows}) i""",
        f"ALTER TABLE {_TABLE} ALTER id TYPE bigint, ADD PRIMARY KEY (id)",
        f"VACUUM ANALYZE {_TABLE}",
    )


def _measured(bench: Bench, engine: str) -> Result:
    rows = 100_000 if bench.quick else 4_000_000
    name, work = f"{_NAME}/{engine}", bench.folder(f"{_NAME}-{engine}")
    with EmbeddedPostgres(settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
        server.execute(*_table(rows))
        expected = server.execute(f"SELECT count(*), sum(id), sum(kind) FROM {_TABLE}")[0]
        env: dict[str, str] = {}
        if engine == "poundlock":
            bench.warm()
            command = program("jobs/postgres_to_parquet.py", server.dsn, _TABLE, work / "out", work / "checkpoints")
        else:
            env["BASELINE_JARS"] = ",".join(jar_set("postgresql-jdbc", progress=print))
            out = work / "out"
            command = program("spark_jdbc.py", server.jdbc_url, _TABLE, "id", 1, rows, _PARTS, out)
        usage = run(command, env=bench.environment(work, **env), log=bench.log(name))
    _prove(work / "out", expected)
    shutil.rmtree(work)
    return Result.of(name, rows, usage)


def _prove(out: Path, expected: tuple[int, ...]) -> None:
    files = finished(out)
    tables = [pq.read_table(path, columns=["id", "kind"]) for path in files]
    found = (
        sum(table.num_rows for table in tables),
        sum(pc.sum(table["id"]).as_py() or 0 for table in tables),
        sum(pc.sum(table["kind"]).as_py() or 0 for table in tables),
    )
    if found != tuple(int(value) for value in expected):
        raise WrongOutput(f"rows and sums are {found}, and in the table {expected}")


CASES: tuple[Case, ...] = (
    Case(f"{_NAME}/poundlock", partial(_measured, engine="poundlock")),
    Case(f"{_NAME}/spark_jdbc", partial(_measured, engine="spark_jdbc")),
)
