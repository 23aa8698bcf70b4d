"""Small files of an Iceberg table written together: the rows stay, readers of changes pass over it, and nothing is lost where it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from poundlock import DefinitionError, IcebergSink, IcebergSource
from poundlock.connectors import ReaderContext
from poundlock.storage import LocalStorage
from support.iceberg_tables import SCHEMA, SinkSteps, catalog_in, rows_of

Make = Callable[..., IcebergSink]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(**arguments: Any) -> IcebergSink:
        return IcebergSink(catalog_in(tmp_path), "db.t", **{"create": SCHEMA, "compact_every": 6, **arguments})

    return made


def words(*ids: int) -> list[dict[str, Any]]:
    return [{"id": n, "word": f"w{n % 2}"} for n in ids]


def files_of(steps: SinkSteps) -> list[Any]:
    return [task.file for task in steps.sink.place.load().scan().plan_files()]


def ids_read_as_it_grew(folder: Path) -> list[int]:
    """Return what a source reads of each snapshot of the table, from its first one on."""
    source: Any = IcebergSource(
        catalog_in(folder), "db.t", mode="incremental", starting_strategy="incremental_from_earliest_snapshot"
    )
    enumerator = source.enumerator(LocalStorage("unused"))
    splits = enumerator.splits({}, enumerator.latest(enumerator.initial()))
    reader = source.reader(ReaderContext(lambda reject: None))
    return [n for split in splits for chunk in reader.read(split) for n in chunk.batch.column("id").to_pylist()]


@pytest.mark.parametrize("partitions", [(), ("word",)], ids=["whole", "by-partition"])
def test_small_files_become_few(make: Make, tmp_path: Path, partitions: tuple[str, ...]) -> None:
    steps = SinkSteps(make(partition_by=partitions, sort_by=["-id"]))
    details = [steps.take(n, words(n, n + 101)).detail for n in range(1, 7)]
    each = [*range(1, 7), *range(102, 108)]
    assert rows_of(steps.sink) == words(*each)
    count = 2 if partitions else 1
    assert details[-1]["compaction"] == f"{6 * count} files into {count}"
    assert [detail for detail in details[:-1] if "compaction" in detail] == []
    assert len(files_of(steps)) == count
    last = steps.sink.place.load().current_snapshot()
    assert last is not None
    assert last.summary is not None
    assert last.summary.operation.value == "replace"
    assert last.summary["total-records"] == "12"
    assert sorted(ids_read_as_it_grew(tmp_path)) == each
    steps.take(7, words(7))
    assert rows_of(steps.sink) == words(*range(1, 8), *range(102, 108))
    assert steps.sink.sweep(steps.state, remove=False) == []


def test_files_with_other_columns_are_written_in_those_of_now(make: Make) -> None:
    steps = SinkSteps(make())
    for n in range(1, 5):
        steps.take(n, words(n))
    wide = pa.schema([*SCHEMA, ("n", pa.int64())])
    later = SinkSteps(make(create=wide, add_columns=True), state=steps.state)
    later.take(5, [{**words(5)[0], "n": 5}])
    later.take(6, [{**words(6)[0], "n": 6}])
    assert len(files_of(later)) == 1
    assert rows_of(later.sink) == [{**row, "n": row["id"] if row["id"] > 4 else None} for row in words(*range(1, 7))]


def test_few_files_and_large_ones_are_left(make: Make) -> None:
    steps = SinkSteps(make(compact_every=2))
    assert "no small files" in [steps.take(n, words(n)).detail.get("compaction") for n in range(1, 5)]
    assert len(files_of(steps)) == 4
    large = SinkSteps(make(compact_every=1, target_file_size=100), state=steps.state)
    assert [large.take(n, words(n)).detail["compaction"] for n in range(5, 8)] == ["no small files"] * 3


def test_rows_by_key_and_a_branch(make: Make) -> None:
    steps = SinkSteps(make(key=["id"], branch="work", compact_every=1))
    made = [steps.take(n, words(n)).detail["compaction"] for n in range(1, 6)]
    assert made == [*["no small files"] * 4, "5 files into 1"]
    steps.take(6, [{"id": 3, "word": "new"}])
    table = steps.sink.place.load()
    rows = table.scan(snapshot_id=table.metadata.refs["work"].snapshot_id).to_arrow().to_pylist()
    assert {row["id"]: row["word"] for row in rows} == {**{n: f"w{n % 2}" for n in range(1, 6)}, 3: "new"}


def test_a_writer_that_was_quicker_is_left_alone(make: Make, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    steps = SinkSteps(make())
    for n in range(1, 6):
        steps.take(n, words(n))
    decided = steps.decide(steps.write(6, words(6)))
    right, asked = SqlCatalog.commit_table, list[int]()

    def late(self: Any, *arguments: Any, **named: Any) -> Any:
        asked.append(1)
        if len(asked) == 2:
            with mock.patch.object(SqlCatalog, "commit_table", right):
                steps.sink.place.load().append(pa.Table.from_pylist(words(50), schema=SCHEMA))
        return right(self, *arguments, **named)

    with mock.patch.object(SqlCatalog, "commit_table", late):
        assert steps.sink.commit(decided).detail["compaction"] == "not done: another writer was quicker"
    assert rows_of(steps.sink) == words(*range(1, 7), 50)
    assert list(tmp_path.rglob("compacted/*")) == [], "its files are removed: nothing can name them any more"


def test_an_answer_that_is_lost_leaves_the_files(make: Make, tmp_path: Path) -> None:
    """Nobody knows whether the table names them; the rows are the same in either case."""
    from pyiceberg.catalog.sql import SqlCatalog

    steps = SinkSteps(make())
    for n in range(1, 6):
        steps.take(n, words(n))
    decided = steps.decide(steps.write(6, words(6)))
    right, asked = SqlCatalog.commit_table, list[int]()

    def lost(self: Any, *arguments: Any, **named: Any) -> Any:
        asked.append(1)
        made = right(self, *arguments, **named)
        if len(asked) == 2:
            raise ConnectionError("the answer was lost")
        return made

    with mock.patch.object(SqlCatalog, "commit_table", lost):
        assert "the answer was lost" in steps.sink.commit(decided).detail["compaction"]
    assert rows_of(steps.sink) == words(*range(1, 7))
    assert len(files_of(steps)) == 1
    assert steps.sink.sweep(steps.state, remove=True) == []
    assert rows_of(steps.sink) == words(*range(1, 7))


def test_a_number_that_says_nothing(make: Make) -> None:
    with pytest.raises(DefinitionError, match="compact_every=0 is not a number of checkpoints"):
        make(compact_every=0)
