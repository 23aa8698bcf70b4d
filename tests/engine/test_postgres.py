"""Jobs from a real PostgreSQL server with a real Spark: the example in its three modes, and to S3; a server that dies, a refusal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from poundlock import FileSink, Job, PostgresSource
from poundlock.cli.job_loader import load_job
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.errors import DefinitionError
from poundlock.testing.s3 import EmbeddedS3
from support.fixtures import running_or_skipped
from support.jobs_in_threads import Running, settings
from support.lives import Lives

pytestmark = [pytest.mark.engine, pytest.mark.services, pytest.mark.usefixtures("shared_jvm")]

EXAMPLE = Path(__file__).parents[2] / "examples/postgres_to_parquet.py"


@pytest.fixture
def pg(postgres_server: Any) -> Any:
    postgres_server.start()
    postgres_server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datid > 0",
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
        "DROP PUBLICATION IF EXISTS postgres_to_parquet",
        "DROP TABLE IF EXISTS public.events",
        "CREATE TABLE public.events (id bigserial PRIMARY KEY, at timestamptz DEFAULT now(), price numeric(9,2) DEFAULT 1.25,"
        " tags text[] DEFAULT '{a,b}')",
        "ALTER TABLE public.events REPLICA IDENTITY FULL",
        "CREATE PUBLICATION postgres_to_parquet FOR TABLE public.events",
    )
    return postgres_server


@pytest.fixture
def own_s3() -> Iterator[EmbeddedS3]:
    with running_or_skipped("S3 server", EmbeddedS3) as server:
        yield server


def example(patch: pytest.MonkeyPatch, tmp_path: Path, dsn: str, **environment: str) -> Job:
    given = {"DSN": dsn, "TO": str(tmp_path / "out"), "CHECKPOINTS": str(tmp_path / "checkpoint"), "INTERVAL": "100 ms"}
    given |= environment
    for key, value in given.items():
        patch.setenv(f"POSTGRES_TO_PARQUET_{key}", value)
    return load_job(str(EXAMPLE))


def visible(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of finished files."""
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def as_rows(pg: Any) -> Counter[Any]:
    return Counter(
        (id, at, price, tuple(tags))
        for id, at, price, tags in pg.execute("SELECT id, at, price, tags FROM public.events")
    )


def of(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter((row["id"], row["at"], row["price"], tuple(row["tags"])) for row in rows)


def test_a_table_to_parquet_without_its_password(pg: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pg.execute(
        "INSERT INTO public.events SELECT FROM generate_series(1, 5000)", "GRANT SELECT ON public.events TO reader"
    )
    job = example(monkeypatch, tmp_path, pg.dsn_of("reader", "open sesame"))
    assert "sesame" not in job.explain()
    run(job, settings=settings(tmp_path))
    assert of(visible(tmp_path / "out")) == as_rows(pg)
    said = [p for p in tmp_path.rglob("*") if p.is_file() and b"sesame" in p.read_bytes()]
    assert said == []
    run(example(monkeypatch, tmp_path, pg.dsn), settings=settings(tmp_path))  # all was read: nothing comes twice
    assert len(visible(tmp_path / "out")) == 5000


def test_changes_to_parquet(pg: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pg.execute("INSERT INTO public.events SELECT FROM generate_series(1, 3)")
    running = Running(example(monkeypatch, tmp_path, pg.dsn, MODE="cdc"), settings(tmp_path))
    running.until(lambda: running.progress.rows_written >= 3)
    pg.execute("UPDATE public.events SET price = 2 WHERE id = 1", "DELETE FROM public.events WHERE id = 2")
    running.until(lambda: running.progress.rows_written >= 5)
    running.stop.stop()
    running.end()
    rows = visible(tmp_path / "out")
    assert Counter(row["op"] for row in rows) == {"read": 3, "update": 1, "delete": 1}
    update = next(row for row in rows if row["op"] == "update")
    assert (str(update["before"]["price"]), str(update["after"]["price"])) == ("1.25", "2.00")
    assert update["after"]["tags"] == ["a", "b"]


def test_a_server_that_dies_in_mid_job(pg: Any, tmp_path: Path) -> None:
    pg.execute("INSERT INTO public.events SELECT FROM generate_series(1, 2000)")
    source = PostgresSource(
        pg.dsn, table="public.events", mode="incremental", column="id", until=6000, settle="0 s", poll_every="50 ms",
        max_rows_per_checkpoint=500, rows_per_split=200,
    )  # fmt: skip
    restarts = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "200 ms"}
    job = Job("dies", checkpoint_interval="0 s", parallelism=2)
    # Through Spark, so that the rows of a reader stage are looked at too.
    stream = job.from_source(source, name="table").where("id % 2 = 0")
    stream.sink_to(FileSink(str(tmp_path / "out"), format="parquet"), name="files")
    more = load_settings(
        [f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/checkpoint", "master=local[2]"]
        + [f"{key}={value}" for key, value in restarts.items()]
        + ["restart-strategy.fixed-delay.attempts=100"]
    )
    running = Running(job, more)
    running.until(lambda: running.progress.rows_written >= 400)
    pg.restart()
    pg.execute("INSERT INTO public.events SELECT FROM generate_series(1, 4000)")
    running.end()
    found = Counter(row["id"] for row in visible(tmp_path / "out"))
    assert found == Counter(id for (id,) in pg.execute("SELECT id FROM public.events WHERE id % 2 = 0 AND id <= 6000"))


def test_a_job_that_cannot_run_is_refused_before_anything_is_touched(pg: Any, tmp_path: Path) -> None:
    job = Job("refused")
    job.from_source(PostgresSource(pg.dsn, table="public.absent"), name="table").sink_to(
        FileSink(str(tmp_path / "out"), format="parquet"), name="files"
    )
    with pytest.raises(DefinitionError, match=r"no table public\.absent") as caught:
        run(job, settings=settings(tmp_path))
    assert str(caught.value).count("\n") == 1
    assert not (tmp_path / "out").exists()


def on_s3(server: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each object that a reader of the example's folder sees."""
    with server.in_environment():
        files = server.storage("warehouse", "events")
        return {
            entry.path: pq.read_table(BytesIO(files.read(entry.path))).to_pylist()
            for entry in files.list()
            if not Path(entry.path).name.startswith((".", "_"))
        }


@pytest.mark.parametrize("mode", ["snapshot", "incremental"])
def test_a_table_to_parquet_on_s3_and_what_came_since(
    pg: Any, own_s3: EmbeddedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The example as it stands there: `poundlock run`, its own bucket, password and keys where the usual tools look for them."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "PG", "POUNDLOCK_S3_")):
            monkeypatch.delenv(name)
    own_s3.bucket("warehouse")
    keys = tmp_path / "credentials"
    keys.write_text(f"[etl]\naws_access_key_id = {own_s3.access_key}\naws_secret_access_key = {own_s3.secret_key}\n")
    environment = {
        "PGPASSWORD": "open sesame", "POSTGRES_TO_PARQUET_DSN": pg.dsn_of("reader"), "POSTGRES_TO_PARQUET_MODE": mode,
        "POSTGRES_TO_PARQUET_INTERVAL": "200 ms", "AWS_PROFILE": "etl", "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        "AWS_ENDPOINT_URL": own_s3.endpoint, "AWS_REGION": own_s3.region,
    }  # fmt: skip

    def write(rows: int) -> None:
        pg.execute(f"INSERT INTO public.events SELECT FROM generate_series(1, {rows})")

    def copied(lives: Lives, rows: int) -> dict[str, list[dict[str, Any]]]:
        """Run the example until it ends, or has written so many rows and is stopped."""
        job = lives.start()
        if mode == "incremental":
            told = job.wait_line(lambda value: (value.get("rows_written") or 0) >= rows, seconds=lives.patience_s)
            assert told is not None, job.log_tail()
            assert lives.stop(job) == 0, job.log_tail()
        assert lives.end(job) == 0, job.log_tail()
        return on_s3(own_s3)

    pg.execute("GRANT SELECT ON public.events TO reader")
    write(4000)
    with Lives(
        EXAMPLE, environment=environment, folder=tmp_path / "lives", arguments=["--master", "local[2]"]
    ) as lives:
        first = copied(lives, 4000)
        assert of([row for rows in first.values() for row in rows]) == as_rows(pg)
        write(1500)
        second = copied(lives, 1500)
    assert {path: rows for path, rows in second.items() if path in first} == first, "a finished file never changes"
    new = [row["id"] for path, rows in second.items() if path not in first for row in rows]
    if mode == "snapshot":
        assert new == [], "all of the table was copied: a snapshot is taken once"
    else:
        assert sorted(new) == list(range(4001, 5501))
        assert of([row for rows in second.values() for row in rows]) == as_rows(pg)
    said = [p for p in tmp_path.rglob("*") if p.is_file() and p != keys and b"sesame" in p.read_bytes()]
    assert said == []
