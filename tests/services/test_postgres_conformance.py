"""PostgresSink keeps the contract of a sink, on a real server: each way of writing, with tasks and drivers that are killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import PostgresSink
from poundlock.testing import sink_conformance
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
