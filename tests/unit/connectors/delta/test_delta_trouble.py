"""DeltaSink where the disk is full: while files are written, and while the commit is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock import CommitUnknown, DeltaSink, TransientError
from poundlock.checkpoint.participant import Writer
from poundlock.formats.chunk import Batch
from support.delta_tables import SinkRig, rows_of
from support.small_disk import small_disk

KINDS: dict[str, dict[str, Any]] = {"added": {}, "merged": {"key": "id"}}


def noise(count: int) -> pa.RecordBatch:
    texts = [bytes(each).hex() for each in np.random.default_rng(7).integers(0, 256, (count, 40), np.uint8)]
    return pa.record_batch({"id": pa.array(range(count), pa.int64()), "word": texts})


def write_all(writer: Writer, rows: pa.RecordBatch) -> None:
    writer.write(Batch(rows))
    writer.prepare()


@pytest.mark.parametrize("kind", KINDS)
def test_while_files_are_written(tmp_path: Path, kind: str) -> None:
    with small_disk(tmp_path / "full", "size=600k") as disk:
        rig = SinkRig(DeltaSink(str(disk.path / "t"), schema="id bigint, word string", **KINDS[kind]))
        writer = rig.sink.open_writer(rig.context())
        with pytest.raises(TransientError, match="disk full while") as caught:
            write_all(writer, noise(20_000))
        assert "free some space" in caught.value.next
        writer.abandon()
        assert list(disk.path.rglob("*.parquet")) == []
        disk.mount("remount,size=64m")
        columns = noise(20_000)
        rig.end({name: columns.column(name) for name in columns.schema.names})
        assert len(rows_of(rig.sink.path)) == 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_while_the_commit_is_made(tmp_path: Path, kind: str) -> None:
    with small_disk(tmp_path / "full", "size=1m,nr_inodes=2000") as disk:
        rig = SinkRig(DeltaSink(str(disk.path / "t"), schema="id bigint, word string", **KINDS[kind]))
        rig.end({"id": [1, 2], "word": ["a", "b"]})
        (decided,) = rig.decide({"id": [2], "word": ["new"]})
        disk.fill()
        with pytest.raises(CommitUnknown, match="No space left on device"):
            rig.sink.commit(decided)
        disk.free()
        rig.sink.commit(decided)
        rig.sink.commit(decided)
        wanted = [(1, "a"), (2, "b"), (2, "new")] if kind == "added" else [(1, "a"), (2, "new")]
        assert sorted((row["id"], row["word"]) for row in rows_of(rig.sink.path)) == wanted
