"""IcebergSource step by step, on a catalog in SQLite: which rows come, in which checkpoint, and what is refused."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, IcebergSource, TerminalError
from poundlock.connectors import ReaderContext, SourceGoneError
from poundlock.storage import LocalStorage
from support.iceberg_tables import SCHEMA, catalog_in, table_with

A, B, C = ([{"id": n, "word": f"w{n}"} for n in ids] for ids in ((1, 2), (3,), (4, 5)))


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return table_with(catalog_in(tmp_path), A, B)


class Way:
    """A source read checkpoint by checkpoint."""

    def __init__(self, source: IcebergSource, folder: Path, at: dict[str, Any] | None = None) -> None:
        self.source = source
        self.enumerator: Any = source.enumerator(LocalStorage(str(folder)))
        self.at = at or self.enumerator.initial()

    def step(self) -> list[Any]:
        """Return the ids of the next checkpoint."""
        start, self.at = self.at, self.enumerator.latest(self.at)
        return self.read(start, self.at)

    def read(self, start: dict[str, Any], end: dict[str, Any], **context: Any) -> list[Any]:
        reader = self.source.reader(ReaderContext(lambda reject: None, **context))
        splits = self.enumerator.splits(start, end)
        batches = [chunk.batch for split in splits for chunk in reader.read(split)]
        return [row["id"] for batch in batches for row in batch.to_pylist()]


def append(table: Any, rows: list[dict[str, Any]]) -> None:
    table.refresh()
    table.append(pa.Table.from_pylist(rows, schema=SCHEMA))


def source(tmp_path: Path, **arguments: Any) -> IcebergSource:
    return IcebergSource(catalog_in(tmp_path), "db.t", **arguments)


def growing(tmp_path: Path, **arguments: Any) -> IcebergSource:
    return source(tmp_path, mode="incremental", poll_every="0 s", **arguments)


def test_a_snapshot_is_read_once_and_stays_what_it_was(table: Any, tmp_path: Path) -> None:
    way = Way(source(tmp_path, files_per_checkpoint=1), tmp_path)
    first = way.step()
    append(table, C)
    second = way.step()
    assert (sorted(first + second), way.step()) == ([1, 2, 3], [])
    assert way.enumerator.finished(way.at)
    assert sorted(way.read(way.enumerator.initial(), way.at)) == [1, 2, 3]
    assert way.source.describe(way.at).startswith("db.t up to snapshot ")
    assert way.source.schema() == pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])


def test_a_snapshot_by_id_by_time_and_by_name(table: Any, tmp_path: Path) -> None:
    old = table.snapshots()[0]
    table.manage_snapshots().create_tag(old.snapshot_id, "first").commit()
    then = dt.datetime.fromtimestamp(old.timestamp_ms / 1000, dt.UTC)
    for arguments in ({"snapshot_id": old.snapshot_id}, {"ref": "first"}, {"as_of": then}):
        assert Way(source(tmp_path, **arguments), tmp_path).step() == [1, 2]
    with pytest.raises(DefinitionError, match="has no such snapshot"):
        Way(source(tmp_path, snapshot_id=5), tmp_path).step()


def test_only_what_is_wanted_is_read(table: Any, tmp_path: Path) -> None:
    way = Way(source(tmp_path, where="id > 2"), tmp_path)
    assert way.step() == [3]
    (split,) = way.enumerator.splits(way.enumerator.initial(), way.at)
    reader = way.source.reader(ReaderContext(lambda reject: None, columns=["word"]))
    (chunk,) = reader.read(split)
    assert chunk.batch.to_pylist() == [{"word": "w3"}]
    with pytest.raises(DefinitionError, match="is no condition"):
        source(tmp_path, where="nothing = 1").preflight()
    with pytest.raises(DefinitionError, match="no column 'x'"):
        source(tmp_path, columns=["x"]).preflight()


@pytest.mark.parametrize(
    ("strategy", "ids"),
    [
        ("table_scan_then_incremental", [1, 2, 3]),
        ("incremental_from_earliest_snapshot", [1, 2, 3]),
        ("incremental_from_latest_snapshot", [3]),
    ],
)
def test_increments(table: Any, tmp_path: Path, strategy: Any, ids: list[int]) -> None:
    way = Way(growing(tmp_path, starting_strategy=strategy), tmp_path)
    assert sorted(way.step()) == ids
    assert way.step() == []
    append(table, C)
    append(table, A)
    assert way.enumerator.lag(way.at) == 4
    before = way.at
    assert sorted(way.step()) == [1, 2, 4, 5]
    assert way.enumerator.lag(way.at) == 0
    again = Way(way.source, tmp_path, before)
    assert sorted(again.read(before, way.at)) == [1, 2, 4, 5]
    assert not way.enumerator.finished(way.at)


def test_increments_from_an_id_up_to_another(table: Any, tmp_path: Path) -> None:
    append(table, C)
    append(table, A)
    ids = [each.snapshot_id for each in table.snapshots()]
    way = Way(
        growing(
            tmp_path,
            starting_strategy="incremental_from_snapshot_id",
            start_snapshot_id=ids[1],
            end_snapshot_id=ids[2],
            files_per_checkpoint=1,
        ),
        tmp_path,
    )
    assert (way.step(), way.step()) == ([3], [4, 5])
    assert way.enumerator.finished(way.at)
    assert way.step() == []


def test_an_empty_table_is_waited_for(tmp_path: Path) -> None:
    table = table_with(catalog_in(tmp_path))
    once = Way(source(tmp_path), tmp_path)
    assert once.step() == []
    assert once.enumerator.finished(once.at)
    way = Way(growing(tmp_path, starting_strategy="incremental_from_latest_snapshot"), tmp_path)
    assert way.step() == []
    append(table, A)
    append(table, B)
    assert way.step() == [1, 2, 3]


def test_snapshots_that_change_rows_are_refused_or_skipped(table: Any, tmp_path: Path) -> None:
    way = Way(growing(tmp_path), tmp_path)
    way.step()
    table.refresh()
    table.delete("id = 1")
    append(table, C)
    with pytest.raises(TerminalError, match="of the kind"):
        way.step()
    skipping = Way(growing(tmp_path, on_overwrite="skip"), tmp_path, way.at)
    assert skipping.step() == [4, 5]


def test_expired_snapshots_are_refused_by_name(table: Any, tmp_path: Path) -> None:
    way = Way(growing(tmp_path, files_per_checkpoint=1), tmp_path)
    way.step()
    ids = [each.snapshot_id for each in table.snapshots()]
    append(table, C)
    append(table, A)
    table.refresh()
    table.maintenance.expire_snapshots().by_id(ids[1]).commit()
    with pytest.raises(SourceGoneError, match=f"snapshot {ids[1]} .* has expired"):
        way.step()


def test_a_gap_of_expired_snapshots_is_refused(table: Any, tmp_path: Path) -> None:
    way = Way(growing(tmp_path), tmp_path)
    way.step()
    append(table, C)
    append(table, A)
    table.refresh()
    lost = table.snapshots()[2].snapshot_id
    table.maintenance.expire_snapshots().by_id(lost).commit()
    with pytest.raises(SourceGoneError, match="some in between have expired"):
        way.step()


def test_what_was_read_already_may_expire(table: Any, tmp_path: Path) -> None:
    way = Way(growing(tmp_path), tmp_path)
    way.step()
    append(table, C)
    table.refresh()
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:2]]).commit()
    assert way.step() == [4, 5]


def test_a_file_that_is_gone_is_refused_by_name(table: Any, tmp_path: Path) -> None:
    way = Way(source(tmp_path), tmp_path)
    end = way.enumerator.latest(way.at)
    gone = next(iter(table.scan().plan_files())).file.file_path
    Path(gone.removeprefix("file://")).unlink()
    with pytest.raises(SourceGoneError, match="is gone, and the job has still to read it"):
        way.read(way.at, end)


def test_another_table_of_the_name_is_not_read_on(table: Any, tmp_path: Path) -> None:
    way = Way(growing(tmp_path), tmp_path)
    way.step()
    known = way.enumerator.identity(way.at, way.at, {})
    assert way.enumerator.identity(way.at, way.at, known) == known
    table.catalog.drop_table("db.t")
    table_with(catalog_in(tmp_path), A)
    for step in (way.step, lambda: way.enumerator.identity(way.at, way.at, known)):
        with pytest.raises(SourceGoneError, match="was made again"):
            step()


def test_columns_that_are_added_while_a_job_runs_are_left_out(table: Any, tmp_path: Path) -> None:
    way = Way(growing(tmp_path), tmp_path)
    way.step()
    with table.update_schema() as update:
        from pyiceberg.types import LongType

        update.add_column("n", LongType())
    table.append(pa.Table.from_pylist([{"id": 9, "word": "x", "n": 1}], schema=pa.schema([*SCHEMA, ("n", pa.int64())])))
    assert way.step() == [9]
    assert way.source.schema().names == ["id", "word"]
    assert growing(tmp_path).schema().names == ["id", "word", "n"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"on_overwrite": "skip"}, 'mode is "snapshot"'),
        ({"mode": "incremental", "snapshot_id": 5}, 'mode is "incremental"'),
        ({"snapshot_id": 5, "ref": "main"}, "both say which snapshot"),
        ({"mode": "incremental", "start_snapshot_id": 5}, "go together"),
        ({"as_of": dt.datetime(2024, 1, 1)}, "no time with a zone"),
        ({"mode": "changes"}, "is not known"),
    ],
)
def test_arguments_that_contradict_each_other(tmp_path: Path, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        source(tmp_path, **arguments)


def test_a_source_is_a_value(tmp_path: Path) -> None:
    made = growing(tmp_path)
    assert pickle.loads(pickle.dumps(made)) == made
    assert (made.replay.kind, made.bounded, source(tmp_path).bounded) == ("exact", False, True)
