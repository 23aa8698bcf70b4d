"""Lines of JSON into a table of PostgreSQL: poundlock by COPY in prepared transactions, Spark by its JDBC writer.

Both cut the input into as many checkpoints. The table is read afterwards by SQL: count, and the sum of a hash of every row.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench import Bench, Case, program
from benchmarks.data import Input, WrongOutput, files
from benchmarks.measure import run
from benchmarks.result import Result
from poundlock.errors import PoundlockError
from poundlock.spark.launch.jars import jar_set
from poundlock.testing.postgres import EmbeddedPostgres

__all__ = ["CASES"]

_NAME = "postgres_copy"
_FILES = 8  # of the input; two of them are a checkpoint
_SUM = "SELECT count(*), sum(('x' || left(md5(event || uuid), 8))::bit(32)::bigint) FROM events"


def _given(bench: Bench) -> Input:
    return files(bench.home / "data", 200_000 if bench.quick else 2_000_000)


def _expected(folder: Path) -> tuple[int, int]:
    rows, total = 0, 0
    for file in sorted(folder.iterdir()):
        for line in file.read_bytes().splitlines():
            row = json.loads(line)
            text = row["event"] + row["uuid"]
            total += int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16)
            rows += 1
    return rows, total


def _measured(bench: Bench, engine: str, command: Callable[[EmbeddedPostgres, Path], list[str]], jars: str) -> Result:
    name, given = f"{_NAME}/{engine}", _given(bench)
    work = bench.folder(name.replace("/", "-"))
    with EmbeddedPostgres() as server:
        server.execute("CREATE TABLE events (timestamp double precision, event text, uuid text)")
        # The server's work is in processes of its own, one a connection: only the wall time has it.
        usage = run(command(server, work), env=bench.environment(work, BASELINE_JARS=jars), log=bench.log(name))
        ((rows, total),) = server.execute(_SUM)
    if (rows, int(total)) != _expected(given.folder):
        raise WrongOutput(f"{rows} rows came out of {given.rows}, or others than went in")
    shutil.rmtree(work)
    return Result.of(name, given.rows, usage)


def poundlock(bench: Bench) -> Result:
    """The rows on poundlock, exactly once."""
    bench.warm()
    folder = _given(bench).folder
    size = sum(file.stat().st_size for file in folder.iterdir()) // (_FILES // 2) + 1

    def command(server: EmbeddedPostgres, work: Path) -> list[str]:
        return program("jobs/postgres_copy.py", folder, server.dsn, "events", work / "checkpoints", f"{size} B")

    return _measured(bench, "poundlock", command, "")


def spark(bench: Bench) -> Result | None:
    """The rows on Spark's JDBC writer; None where PostgreSQL's driver cannot be had."""
    try:
        jars = ",".join(jar_set("postgresql-jdbc", progress=print))
    except PoundlockError as error:
        print(f"not measured: {error}", flush=True)
        return None
    folder = _given(bench).folder

    def command(server: EmbeddedPostgres, work: Path) -> list[str]:
        return program("spark_jdbc_sink.py", folder, server.jdbc_url, "events", work / "checkpoints", 2)

    return _measured(bench, "spark_jdbc", command, jars)


CASES: tuple[Case, ...] = (Case(f"{_NAME}/poundlock", poundlock), Case(f"{_NAME}/spark_jdbc", spark))
