"""IcebergSink where the disk is full, a catalog takes a commit late, or a copy of the checkpoint folder goes on."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from poundlock import CommitUnknown, IcebergSink, TerminalError, TransientError
from poundlock.checkpoint.participant import Writer, WriterContext
from poundlock.formats.chunk import Batch
from support.iceberg_tables import JOB, SCHEMA, SinkSteps, catalog_in, rows_of
from support.small_disk import small_disk

Make = Callable[..., IcebergSink]
KINDS: dict[str, dict[str, Any]] = {"append": {}, "by key": {"key": ["id"]}}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(**arguments: Any) -> IcebergSink:
        return IcebergSink(catalog_in(tmp_path), "db.t", **{"create": SCHEMA, **arguments})

    return made


def words(*ids: int, word: str = "w") -> list[dict[str, Any]]:
    return [{"id": n, "word": f"{word}{n}"} for n in ids]


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_taken_late_keeps_its_files(make: Make, kind: str) -> None:
    """The request of the first try arrives when the second one has been staged: what it names must be there still."""
    from pyiceberg.catalog.sql import SqlCatalog

    steps = SinkSteps(make(**KINDS[kind]))
    steps.take(0, words(1, 2, 3))
    decided = steps.decide(steps.write(1, words(2, 9, word="new")))
    right, asked = SqlCatalog.commit_table, list[Any]()

    def late(self: Any, *arguments: Any, **named: Any) -> Any:
        asked.append((arguments, named))
        if len(asked) == 1:
            raise ConnectionError("no answer")
        if len(asked) == 2:
            first, its = asked[0]
            right(self, *first, **its)
        return right(self, *arguments, **named)

    with mock.patch.object(SqlCatalog, "commit_table", late):
        steps.sink.commit(decided)
    assert len(asked) == 2
    new = words(2, 9, word="new")
    expected = [*words(1, 2, 3), *new] if kind == "append" else [*words(1, 3), *new]
    found = rows_of(steps.sink)
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert steps.sink.sweep(steps.state, remove=False) == [], "the files of the try that came second are removed"


def test_another_decision_with_the_same_mark_is_refused(make: Make) -> None:
    first = SinkSteps(make())
    first.take(0, words(1))
    copied = SinkSteps(make(), state=first.state)
    first.take(1, words(2))
    with pytest.raises(TerminalError, match="has another commit of checkpoint 1 of this job") as caught:
        copied.take(1, words(3))
    assert "two copies of the checkpoint folder" in caught.value.next
    table = first.sink.place.load()
    for snapshot in table.snapshots()[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    behind = SinkSteps(make(), state=copied.state)
    first.take(2, words(4))
    with pytest.raises(TerminalError, match="has another commit of checkpoint 2"):
        behind.take(2, words(5))
    assert rows_of(first.sink) == words(1, 2, 4)


def noise(count: int) -> pa.RecordBatch:
    texts = [bytes(each).hex() for each in np.random.default_rng(7).integers(0, 256, (count, 40), np.uint8)]
    return pa.record_batch({"id": pa.array(range(count), pa.int64()), "word": texts}, schema=SCHEMA)


def write_all(writer: Writer, rows: pa.RecordBatch) -> None:
    writer.write(Batch(rows))
    writer.prepare()


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_full_while_files_are_written(tmp_path: Path, kind: str) -> None:
    catalog, full = catalog_in(tmp_path), tmp_path / "warehouse"
    with small_disk(full, "size=600k") as disk:
        steps = SinkSteps(IcebergSink(catalog, "db.t", create=SCHEMA, **KINDS[kind]))
        context = WriterContext(
            job_id=JOB,
            sink="out",
            epoch=1,
            checkpoint=0,
            subtask=0,
            attempt=uuid.uuid4().hex[:12],
            directive=steps.sink.directive({}),
            reject=steps.rejects.append,
            started_ms=0,
        )
        writer = steps.sink.open_writer(context)
        with pytest.raises(TransientError, match="No space left on device") as caught:
            write_all(writer, noise(20_000))
        assert "free space" in caught.value.next
        writer.abandon()
        assert [path for path in full.rglob("c0-*") if path.is_file()] == []
        disk.mount("remount,size=64m")
        steps.take(0, noise(20_000))
        assert len(rows_of(steps.sink)) == 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_full_while_the_commit_is_made(tmp_path: Path, kind: str) -> None:
    from poundlock.connectors.iceberg.sink import committer

    with small_disk(tmp_path / "warehouse", "size=4m,nr_inodes=2000") as disk:
        steps = SinkSteps(IcebergSink(catalog_in(tmp_path), "db.t", create=SCHEMA, **KINDS[kind]))
        steps.take(0, words(1, 2))
        decided = steps.decide(steps.write(1, words(2, word="new")))
        disk.fill()
        with (
            mock.patch.object(committer, "TRIES", 2),
            pytest.raises(CommitUnknown, match="No space left on device"),
        ):
            steps.sink.commit(decided)
        disk.free()
        steps.sink.commit(decided)
        steps.sink.commit(decided)
        kept = words(1, 2) if kind == "append" else words(1)
        assert sorted(rows_of(steps.sink), key=str) == sorted([*kept, *words(2, word="new")], key=str)
        assert len(steps.sink.place.load().snapshots()) == 2
