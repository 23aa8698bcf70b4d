"""DeltaSource on a local table: a snapshot, then commits, each row once; and what it refuses by name."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from poundlock import DeltaSource
from poundlock.connectors.base import ReaderContext
from poundlock.errors import DefinitionError, SourceGoneError, TerminalError
from poundlock.formats import ddl
from poundlock.formats.convert import to_records
from poundlock.storage import LocalStorage
from poundlock.testing import source_conformance

FEED = {"delta.enableChangeDataFeed": "true"}


def make(folder: Path, columns: str = "id bigint, day date, word string", **settings: Any) -> str:
    path = str(folder / "t")
    DeltaTable.create(path, Schema.from_arrow(ddl.parse(columns)), **settings)
    return path


def add(path: str, *numbers: int, **more: Any) -> None:
    day = [datetime.date(2026, 1, 1 + n % 3) for n in numbers]
    rows = {"id": pa.array(numbers, pa.int64()), "day": day, "word": [f"w{n}" for n in numbers], **more}
    write_deltalake(path, pa.table(rows), mode="append")


class Reading:
    """A job's reading of a source, checkpoint by checkpoint, with a new enumerator each time."""

    def __init__(self, folder: Path, source: DeltaSource) -> None:
        self.source, self.storage = source, LocalStorage(str(folder / "workspace"))
        self.position: Any = None
        self.splits: list[int] = []

    def next(self, *, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """Read one checkpoint."""
        enumerator = self.source.enumerator(self.storage)
        start = enumerator.initial() if self.position is None else self.position
        end = json.loads(json.dumps(enumerator.latest(start)))
        splits = enumerator.splits(start, end)
        self.splits.append(len(splits))
        rows: list[dict[str, Any]] = []
        for split in splits:
            reader = self.source.reader(ReaderContext(None, columns))
            rows += [row for chunk in reader.read(split) for row in to_records(chunk).rows]
        self.position = end
        return rows


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_a_snapshot_then_each_commit_once(tmp_path: Path) -> None:
    path = make(tmp_path, partition_by=["day"])
    add(path, 0, 1, 2)
    add(path, 3, 4)
    reading = Reading(tmp_path, DeltaSource(path, watch=True, max_files_per_checkpoint=2))
    seen = [ids(reading.next()) for _ in range(3)]
    assert sorted(number for numbers in seen for number in numbers) == [0, 1, 2, 3, 4]
    assert reading.splits == [2, 2, 1]
    assert reading.next() == []
    add(path, 5)
    DeltaTable(path).optimize.compact()  # rewrites files, and changes no row
    add(path, 6, 7, 8)
    rows = reading.next()
    assert 5 in ids(rows)
    assert {row["day"] for row in rows if row["id"] == 5} == {datetime.date(2026, 1, 3)}
    assert ids(rows + reading.next()) == [5, 6, 7, 8]
    assert reading.next() == []


def test_one_version_is_read_to_its_end(tmp_path: Path) -> None:
    path = make(tmp_path)
    add(path, 0, 1)
    add(path, 2)
    for settings, wanted in (({}, [0, 1, 2]), ({"version_as_of": 1}, [0, 1]), ({"version_as_of": 0}, [])):
        source = DeltaSource(path, **settings)
        reading = Reading(tmp_path, source)
        assert ids(reading.next()) == wanted
        assert source.enumerator(reading.storage).finished(reading.position)
        assert reading.next() == []
    with pytest.raises(DefinitionError, match="has no version 9"):
        DeltaSource(path, version_as_of=9).enumerator(LocalStorage("/tmp")).initial()


def test_where_to_begin(tmp_path: Path) -> None:
    path = make(tmp_path)
    add(path, 0)
    add(path, 1)
    assert ids(Reading(tmp_path, DeltaSource(path, watch=True, starting_version=2)).next()) == [1]
    latest = Reading(tmp_path, DeltaSource(path, watch=True, starting_version="latest"))
    assert latest.next() == []
    add(path, 2)
    assert ids(latest.next()) == [2]
    time = DeltaTable(path).history(1)[0]["timestamp"]
    then = datetime.datetime.fromtimestamp((time - 1) / 1000, datetime.UTC).isoformat()
    assert ids(Reading(tmp_path, DeltaSource(path, watch=True, starting_timestamp=then)).next()) == [2]
    assert ids(Reading(tmp_path, DeltaSource(path, timestamp_as_of=then)).next()) == [0, 1]
    long_ago = "2020-01-01"
    assert ids(Reading(tmp_path, DeltaSource(path, watch=True, starting_timestamp=long_ago)).next()) == [0, 1, 2]
    with pytest.raises(DefinitionError, match="was not there yet at 2020-01-01"):
        DeltaSource(path, timestamp_as_of=long_ago).enumerator(LocalStorage("/tmp")).initial()
    with pytest.raises(DefinitionError, match="'yesterday' is no time"):
        DeltaSource(path, timestamp_as_of="yesterday").enumerator(LocalStorage("/tmp")).initial()


def test_columns_are_pruned_and_those_of_older_files_are_null(tmp_path: Path) -> None:
    path = make(tmp_path)
    add(path, 0)
    write_deltalake(
        path,
        pa.table({"id": pa.array([1], pa.int64()), "day": [None], "word": ["w"], "more": pa.array([7], pa.int32())}),
        mode="append",
        schema_mode="merge",
    )
    rows = Reading(tmp_path, DeltaSource(path, columns=["more", "id"])).next()
    assert sorted(rows, key=lambda row: row["id"]) == [{"more": None, "id": 0}, {"more": 7, "id": 1}]
    assert Reading(tmp_path, DeltaSource(path)).next(columns=["word"])[0].keys() == {"word"}


def test_changes_are_read_from_the_feed(tmp_path: Path) -> None:
    path = make(tmp_path, configuration=FEED)
    add(path, 0, 1, 2)
    reading = Reading(tmp_path, DeltaSource(path, watch=True, change_feed=True))
    assert {(row["id"], row["_change_type"], row["_commit_version"]) for row in reading.next()} == {
        (0, "insert", 1), (1, "insert", 1), (2, "insert", 1),
    }  # fmt: skip
    DeltaTable(path).update({"word": "'new'"}, predicate="id = 1")
    DeltaTable(path).delete("id = 2")
    add(path, 3)
    rows = reading.next()
    assert [(row["id"], row["word"], row["_change_type"], row["_commit_version"]) for row in rows] == [
        (1, "w1", "update_preimage", 2), (1, "new", "update_postimage", 2), (2, "w2", "delete", 3), (3, "w3", "insert", 4),
    ]  # fmt: skip
    assert rows[0]["_commit_timestamp"].tzinfo is not None
    assert reading.splits == [1, 1], "one task reads all changes, in their order"


def test_without_the_feed_a_commit_that_changes_rows_is_refused(tmp_path: Path) -> None:
    def begun(**settings: Any) -> tuple[str, Reading]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        path = make(folder)
        add(path, 0, 1, 2)
        reading = Reading(folder, DeltaSource(path, watch=True, **settings))
        assert ids(reading.next()) == [0, 1, 2]
        return path, reading

    path, reading = begun()
    DeltaTable(path).update({"word": "'new'"}, predicate="id = 1")
    with pytest.raises(TerminalError, match=r"version 2 changes rows that are there \(UPDATE\)"):
        reading.next()
    path, reading = begun(ignore_changes=True)
    DeltaTable(path).update({"word": "'new'"}, predicate="id = 1")
    assert ids(reading.next()) == [0, 1, 2]
    path, reading = begun()
    DeltaTable(path).delete()
    with pytest.raises(TerminalError, match=r"version 2 deletes rows \(DELETE\)"):
        reading.next()
    path, reading = begun(ignore_deletes=True)
    DeltaTable(path).delete()
    assert reading.next() == []


def test_vacuumed_files_and_versions_are_refused_by_name(tmp_path: Path) -> None:
    path = make(tmp_path)
    add(path, 0)
    add(path, 1)
    reading = Reading(tmp_path, DeltaSource(path, version_as_of=1))
    enumerator = reading.source.enumerator(reading.storage)
    start = enumerator.initial()
    end = enumerator.latest(start)
    enumerator.check_range(start, end, {})
    write_deltalake(path, pa.table({"id": pa.array([9], pa.int64()), "day": [None], "word": ["x"]}), mode="overwrite")
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceGoneError, match=r"of version 1 is gone, as after VACUUM"):
        reading.next()
    with pytest.raises(SourceGoneError, match="is gone, as after VACUUM"):
        enumerator.check_range(start, end, {})
    DeltaTable(path).create_checkpoint()
    for version in (0, 1, 2):
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(SourceGoneError, match="has no version 1 that could be read: the log begins at 3"):
        Reading(tmp_path, DeltaSource(path, watch=True, starting_version=1)).next()
    with pytest.raises(SourceGoneError, match="has no version 1 that could be read"):
        Reading(tmp_path, DeltaSource(path, version_as_of=1)).next()


def test_another_table_at_the_same_place_stops_the_job(tmp_path: Path) -> None:
    import shutil

    path = make(tmp_path)
    add(path, 0)
    enumerator = DeltaSource(path, watch=True).enumerator(LocalStorage("/tmp"))
    known: Mapping[str, Any] = enumerator.identity({}, {}, {})
    assert enumerator.identity({}, {}, known) == known
    shutil.rmtree(path)
    make(tmp_path)
    with pytest.raises(SourceGoneError, match="is another one than the job has read"):
        enumerator.identity({}, {}, known)


def test_a_column_that_changes_stops_the_job_and_one_that_is_added_does_not(tmp_path: Path) -> None:
    path = make(tmp_path)
    add(path, 0)
    reading = Reading(tmp_path, DeltaSource(path, watch=True, columns=["id", "word"]))
    reading.next()
    source = reading.source
    enumerator = source.enumerator(reading.storage)
    write_deltalake(
        path,
        pa.table({"id": pa.array([1], pa.int64()), "day": [None], "word": ["w"], "more": pa.array([7], pa.int32())}),
        mode="append",
        schema_mode="merge",
    )
    assert ids(reading.next()) == [1]
    write_deltalake(path, pa.table({"id": ["text"], "word": ["w"]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TerminalError, match="gives column 'id' another type"):
        enumerator.latest(reading.position)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"change_feed": True}, "change_feed=True has no effect"),
        ({"starting_version": 3}, "starting_version=3 has no effect"),
        ({"watch": True, "version_as_of": 1, "starting_version": 3}, "both say where to begin"),
        ({"watch": True, "change_feed": True, "ignore_deletes": True}, "ignore_deletes=True has no effect"),
        ({"columns": []}, r"columns=\[\] names no column"),
        ({"max_files_per_checkpoint": 0}, "a limit of a checkpoint is zero"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_written_down(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        DeltaSource("/tmp/t", **settings)


def test_what_cannot_be_read_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(DefinitionError, match="there is no Delta table in"):
        DeltaSource(str(tmp_path / "none")).preflight()
    with pytest.raises(DefinitionError, match="keeps no change data feed"):
        DeltaSource(path, watch=True, change_feed=True).preflight()
    with pytest.raises(DefinitionError, match="has no column 'wird'"):
        DeltaSource(path, columns=["wird"]).preflight()


FEW = ("reads-all", "positions", "ends", "splits-pure", "replay-promise")


@pytest.mark.parametrize("only", [FEW, pytest.param(None, marks=pytest.mark.torture)], ids=["few", "all"])
def test_the_contract_of_a_source(only: tuple[str, ...] | None) -> None:
    rows = [{"id": n, "word": f"w{n}"} for n in range(12)]

    def make_source(folder: Path) -> DeltaSource:
        path = make(folder, "id bigint, word string")
        for first in range(0, 12, 3):
            write_deltalake(path, pa.Table.from_pylist(rows[first : first + 3]), mode="append")
        return DeltaSource(path, max_files_per_checkpoint=1)

    def change(source: DeltaSource) -> None:
        DeltaTable(source.path).update({"word": "'other'"})

    assert source_conformance(make_source, rows=rows, change=change, only=only).passed
