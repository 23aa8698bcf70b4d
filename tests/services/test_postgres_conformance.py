"""PostgresSink and PostgresSource keep their contracts on a real server: each way of writing and reading, with processes killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import PostgresSink, PostgresSource
from poundlock.testing import sink_conformance, source_conformance
from poundlock.testing.conformance import ConformanceError
from poundlock.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]
KILLS = ("crash.sink.writing", "crash.sink.prepared", "crash.decision.recorded")
MODES: dict[str, tuple[dict[str, Any], Sequence[str] | None]] = {
    "exactly-once": (
        {},
        ("commits", "rejects", "hidden", "commit-twice", "sweep-orphans", "crash-within-commit", *KILLS),
    ),
    "by key": ({"key": ["id"]}, ("commits", "rejects", *KILLS)),
    "at-least-once": ({"guarantee": "at-least-once"}, ("commits", "rejects", *KILLS)),
}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as running:
        yield running


@pytest.mark.parametrize("mode", MODES)
def test_postgres_sink(mode: str, server: EmbeddedPostgres) -> None:
    check(mode, server, MODES[mode][1])


@pytest.mark.torture
def test_postgres_sink_in_all(server: EmbeddedPostgres) -> None:
    check("exactly-once", server, None)


def check(mode: str, server: EmbeddedPostgres, only: Sequence[str] | None) -> None:
    settings = MODES[mode][0]

    def make(folder: Path) -> PostgresSink:
        table = "t_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
        unique = " PRIMARY KEY" if "key" in settings else ""
        server.execute(f'CREATE TABLE IF NOT EXISTS "{table}" (id bigint{unique}, word varchar(9))')
        return PostgresSink(server.dsn, f'"{table}"', **settings)

    def read(sink: PostgresSink) -> list[dict[str, Any]]:
        return [{"id": i, "word": w} for i, w in server.execute(f"SELECT id, word FROM {sink.table}")]

    report = sink_conformance(make, read=read, rows=ROWS, bad_rows=[{"id": 99, "word": "far too long"}], only=only)
    assert report.passed


PROMISE = ("reads-all", "splits-pure", "replay", "replay-promise", "ranges")


def growing(server: EmbeddedPostgres, folder: Path, **settings: Any) -> PostgresSource:
    table = "s_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
    server.execute(f'CREATE TABLE "{table}" (id bigint PRIMARY KEY, word text)')
    for row in ROWS:
        server.execute(f"INSERT INTO \"{table}\" VALUES ({row['id']}, '{row['word']}')")
    return PostgresSource(
        server.dsn,
        table=f'"{table}"',
        mode="incremental",
        column="id",
        until=15,
        settle="1 ms",
        rows_per_split=3,
        max_rows_per_checkpoint=6,
        **settings,
    )


def test_incremental_reading_keeps_its_promise_while_rows_are_only_added(server: EmbeddedPostgres) -> None:
    def add(source: PostgresSource) -> None:
        server.execute(f"INSERT INTO {source.table} VALUES (99, 'behind the end')")

    report = source_conformance(
        lambda folder: growing(server, folder, append_only=True), rows=ROWS, change=add, patience_s=10, only=PROMISE
    )
    assert set(report.passed) == set(PROMISE)


def test_a_table_whose_rows_change_is_not_append_only(server: EmbeddedPostgres) -> None:
    def update(source: PostgresSource) -> None:
        server.execute(f"UPDATE {source.table} SET word = 'changed' WHERE id = 3")

    def check_with(**settings: Any) -> Any:
        return source_conformance(
            lambda folder: growing(server, folder, **settings),
            rows=ROWS,
            change=update,
            patience_s=10,
            only=["replay-promise"],
        )

    with pytest.raises(ConformanceError, match='rows were changed, and it declares "exact"'):
        check_with(append_only=True)
    assert check_with().passed == ["replay-promise"]
