"""Iceberg tables behind servers: Iceberg's REST catalog, PostgreSQL and Glue's API as catalogs, S3 as a warehouse; read by DuckDB too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import IcebergSink, IcebergSource
from poundlock.audit.read_back import AuditScope, Decided
from poundlock.connectors import ReaderContext
from poundlock.storage import LocalStorage
from poundlock.testing import sink_conformance, source_conformance
from support.duckdb_reader import duckdb_query
from support.iceberg_rest import IcebergRest, LosingProxy
from support.iceberg_tables import SCHEMA, SinkSteps, catalog_in, rows_of, table_with

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]
MORE = [{"id": n, "word": "later"} for n in range(100, 103)]


@pytest.fixture(scope="module")
def rest() -> Iterator[IcebergRest]:
    with IcebergRest() as running:
        yield running


def duckdb_rows(table: Any) -> list[tuple[int, str]]:
    """Return the rows that DuckDB sees of a table's newest metadata, by its own implementation of Iceberg."""
    place = table.metadata_location.removeprefix("file://")
    rows = duckdb_query(f"SELECT id, word FROM iceberg_scan('{place}') ORDER BY id", "avro", "iceberg")
    return [(int(i), str(w)) for i, w in rows]


def test_a_rest_catalog_takes_each_decision_once(rest: IcebergRest) -> None:
    with LosingProxy(rest) as proxy:
        steps = SinkSteps(IcebergSink(proxy.properties, "db.once", create=SCHEMA, partition_by=["bucket(2, id)"]))
        steps.take(0, ROWS[:4])
        decided = steps.decide(steps.write(1, ROWS[4:8]))
        proxy.lose = 1
        steps.sink.commit(decided)  # the catalog has it, and its answer is lost
        assert proxy.lost == [200]
        assert rows_of(steps.sink) == ROWS[:8]
        steps.sink.place.load().append(pa.Table.from_pylist(MORE, schema=SCHEMA))
        steps.sink.commit(decided)
        steps.take(2, ROWS[8:12])
    table = IcebergSink(rest.properties, "db.once").place.load()
    expected = ROWS[:12] + MORE
    assert duckdb_rows(table) == [(row["id"], row["word"]) for row in expected]
    assert len(table.snapshots()) == 4


def test_a_rest_catalog_loses_answers_by_key_and_takes_compactions(rest: IcebergRest) -> None:
    with LosingProxy(rest) as proxy:
        sink = IcebergSink(proxy.properties, "db.keyed", create=SCHEMA, key=["id"], compact_every=5)
        steps = SinkSteps(sink)
        decided = []
        for n in range(1, 5):
            decided.append(steps.decide(steps.write(n, ROWS[n : n + 1])))
            steps.sink.commit(decided[-1])
        decided.append(steps.decide(steps.write(5, [{"id": 1, "word": "new"}, ROWS[5]])))
        proxy.lose = 1
        steps.sink.commit(decided[-1])  # the mark says that it was made, so nothing is compacted behind it
        assert proxy.lost == [200]
        for n in range(6, 11):
            decided.append(steps.decide(steps.write(n, ROWS[n : n + 1])))
            detail = steps.sink.commit(decided[-1]).detail  # type: ignore[union-attr]
        reading = steps.sink.open_audit(AuditScope(complete=True, progress=print))
        for number, each in enumerate(decided):
            reading.take(Decided(record=number, checkpoint=number, committable=each, compared=True, committed=True))
        reading.read()
        assert (reading.result().compared, reading.result().disagreements) == (len(decided), [])
    assert str(detail["compaction"]).endswith("files into 1")
    table = IcebergSink(rest.properties, "db.keyed").place.load()
    assert [each.summary.operation.value for each in table.snapshots() if each.summary][-1] == "replace"
    expected = [(row["id"], "new" if row["id"] == 1 else row["word"]) for row in ROWS[1:11]]
    assert duckdb_rows(table) == expected


def test_a_rest_catalog_that_restarts(rest: IcebergRest) -> None:
    sink = IcebergSink(rest.properties, "db.again", create=SCHEMA, key=["id"])
    steps = SinkSteps(sink)
    steps.take(0, ROWS)
    rest.restart()
    steps.take(1, [{"id": 3, "word": "new"}])
    assert [row["word"] for row in rows_of(steps.sink) if row["id"] == 3] == ["new"]
    assert len(duckdb_rows(steps.sink.place.load())) == 16
    source: Any = IcebergSource(rest.properties, "db.again", columns=["id"])
    enumerator = source.enumerator(LocalStorage("unused"))
    splits = enumerator.splits({}, enumerator.latest(enumerator.initial()))
    reader = source.reader(ReaderContext(lambda reject: None))
    assert sum(len(chunk) for split in splits for chunk in reader.read(split)) == 16


def test_a_catalog_in_postgres_and_a_warehouse_on_s3(postgres_server: Any, s3_server: Any) -> None:
    postgres_server.start()
    uri = f"postgresql+psycopg://postgres@127.0.0.1:{postgres_server.port}/postgres"
    on_s3({"type": "sql", "uri": uri}, s3_server)


def test_a_catalog_of_glues_api_and_a_warehouse_on_s3(s3_server: Any) -> None:
    access = {"access-key-id": s3_server.access_key, "secret-access-key": s3_server.secret_key}
    glue = {"endpoint": s3_server.endpoint, "region": s3_server.region, **access}
    on_s3({"type": "glue", **{f"glue.{name}": value for name, value in glue.items()}}, s3_server)


def on_s3(catalog: dict[str, str], s3_server: Any) -> None:
    """Write a table of a catalog whose files are on S3, and sweep what a dead attempt left."""
    properties = {
        **catalog,
        "warehouse": f"{s3_server.bucket(f'b-{uuid.uuid4().hex[:12]}')}/warehouse",
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
    }
    steps = SinkSteps(IcebergSink(properties, "db.t", create=SCHEMA, partition_by=["truncate(1, word)"]))
    dead = steps.write(0, MORE)
    steps.take(0, ROWS)
    assert rows_of(steps.sink) == ROWS
    paths = {file["path"] for item in dead for file in item.payload["files"]}
    assert {orphan.path for orphan in steps.sink.sweep(steps.state, remove=True)} == paths
    assert steps.sink.sweep(steps.state, remove=False) == []
    assert rows_of(steps.sink) == ROWS


FEW = ("commits", "zombie-of-older-driver", "crash.decision.recorded")
MODES: dict[str, dict[str, Any]] = {"append": {"partition_by": ["bucket(2, id)"]}, "by key": {"key": ["id"]}}


@pytest.mark.parametrize(
    ("mode", "only"),
    [
        ("append", FEW),
        pytest.param("append", None, marks=pytest.mark.torture),
        pytest.param("by key", None, marks=pytest.mark.torture),
    ],
    ids=["some", "every", "every-by-key"],
)
def test_iceberg_sink(mode: str, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> IcebergSink:
        return IcebergSink(catalog_in(folder), "db.t", create=SCHEMA, **MODES[mode])

    def read(sink: IcebergSink) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = sink.place.load().scan().to_arrow().to_pylist()
        return rows

    bad = [{"id": None, "word": "x"}]
    assert sink_conformance(make, read=read, rows=ROWS, bad_rows=bad, only=only).passed


PROMISE = ("reads-all", "replay-promise")


@pytest.mark.parametrize(
    ("strategy", "only"),
    [
        ("incremental_from_earliest_snapshot", PROMISE),
        pytest.param("incremental_from_earliest_snapshot", None, marks=pytest.mark.torture),
        pytest.param("table_scan_then_incremental", None, marks=pytest.mark.torture),
    ],
    ids=["some", "every", "every-after-a-scan"],
)
def test_iceberg_source(strategy: Any, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> IcebergSource:
        table_with(catalog_in(folder), *(ROWS[n : n + 4] for n in range(0, 16, 4)))
        return IcebergSource(
            catalog_in(folder),
            "db.t",
            mode="incremental",
            starting_strategy=strategy,
            poll_every="0 s",
            files_per_checkpoint=1,
        )

    def more(source: IcebergSource) -> list[dict[str, Any]]:
        source.place.load().append(pa.Table.from_pylist(MORE, schema=SCHEMA))
        return MORE

    def expire(source: IcebergSource) -> None:
        table = source.place.load()
        table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:2]]).commit()

    report = source_conformance(make, rows=ROWS, more=more, change=expire, patience_s=2, only=only)
    assert report.passed
