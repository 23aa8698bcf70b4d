"""A streaming query of the user's own with our sinks: a batch that comes again, other queries, bad rows, several sinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    DefinitionError,
    EventTimeBucketAssigner,
    ExpressionBucketAssigner,
    FileSink,
    RollingPolicy,
    foreach_batch,
)
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.two_phase_sink import TempFileSink, TempFileWriter

pytestmark = pytest.mark.engine


def _sink(folder: Path, **settings: Any) -> FileSink:
    return FileSink(str(folder), rolling=RollingPolicy(on_checkpoint=True), **settings)


def _put(folder: Path, number: int, *rows: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _run(
    jvm: Any, folder: Path, write: Any, *, checkpoint: str = "spark", schema: str = "n bigint, text string"
) -> None:
    rows = jvm.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    started = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / checkpoint))
    started.trigger(availableNow=True).start().awaitTermination()


def _written(folder: Path) -> list[Any]:
    paths = sorted(path for path in folder.rglob("*.jsonl") if not path.name.startswith("."))
    return sorted((json.loads(line) for path in paths for line in path.read_text().splitlines()), key=repr)


def test_a_batch_that_is_delivered_again_is_not_written_again(jvm: Any, tmp_path: Path) -> None:
    for number in range(3):
        _put(tmp_path / "in", number, {"n": number, "text": "a"})
    ledger = str(tmp_path / "ledger")
    for _ in range(2):
        write = foreach_batch(_sink(tmp_path / "out"), checkpoint_dir=ledger)
        _run(jvm, tmp_path, write)
        write.finish()
        (tmp_path / "spark" / "commits" / "2").unlink()  # as if the driver had died before Spark wrote it
        (tmp_path / "spark" / "commits" / ".2.crc").unlink(missing_ok=True)
    _put(tmp_path / "in", 3, {"n": 3, "text": "b"})
    write = foreach_batch(_sink(tmp_path / "out"), checkpoint_dir=ledger)
    _run(jvm, tmp_path, write)
    write.finish()
    assert [row["n"] for row in _written(tmp_path / "out")] == [0, 1, 2, 3]


def test_another_query_with_the_same_ledger_is_refused(jvm: Any, tmp_path: Path) -> None:
    _put(tmp_path / "in", 0, {"n": 0})
    ledger = str(tmp_path / "ledger")
    first = foreach_batch(_sink(tmp_path / "out"), checkpoint_dir=ledger)
    _run(jvm, tmp_path, first)
    first.finish()
    with pytest.raises(Exception, match="is the ledger of another query"):
        _run(jvm, tmp_path, foreach_batch(_sink(tmp_path / "out"), checkpoint_dir=ledger), checkpoint="other")
    assert len(_written(tmp_path / "out")) == 1


def test_without_a_query_it_is_refused(jvm: Any, tmp_path: Path) -> None:
    write = foreach_batch(_sink(tmp_path / "out"), checkpoint_dir=str(tmp_path / "ledger"))
    with pytest.raises(DefinitionError, match="no query has called it"):
        write(jvm.createDataFrame([(1,)], "n int"), 0)


def test_several_sinks_see_only_what_they_have_asked_for(jvm: Any, tmp_path: Path) -> None:
    _put(tmp_path / "in", 0, {"n": 1, "text": "x"}, {"n": 2, "text": "y"})
    write = foreach_batch(
        plain=_sink(tmp_path / "plain"),
        buckets=_sink(tmp_path / "buckets", bucket=ExpressionBucketAssigner("text")),
        checkpoint_dir=str(tmp_path / "ledger"),
    )
    _run(jvm, tmp_path, write)
    write.finish()
    rows = [{"n": 1, "text": "x"}, {"n": 2, "text": "y"}]
    assert _written(tmp_path / "plain") == _written(tmp_path / "buckets") == rows
    assert [row["n"] for row in _written(tmp_path / "buckets" / "x")] == [1]


def test_rows_that_a_sink_cannot_take(jvm: Any, tmp_path: Path) -> None:
    _put(tmp_path / "in", 0, {"t": "2024-01-02T03:04:05Z", "n": 1}, {"n": 2})

    def write(ledger: str, **settings: Any) -> Any:
        sink = _sink(tmp_path / ledger / "out", bucket=EventTimeBucketAssigner("t", zone="UTC"))
        return foreach_batch(sink, checkpoint_dir=str(tmp_path / ledger), **settings)

    schema = "t timestamp, n bigint"
    with pytest.raises(Exception, match="bad record"):
        _run(jvm, tmp_path, write("strict"), schema=schema, checkpoint="spark1")
    lenient = write("lenient", dead_letters=str(tmp_path / "dead"))
    _run(jvm, tmp_path, lenient, schema=schema, checkpoint="spark2")
    lenient.finish()
    assert [row["n"] for row in _written(tmp_path / "lenient" / "out")] == [1]
    (letter,) = _written(tmp_path / "dead")
    assert (letter["sink"], json.loads(letter["value"])["n"]) == ("sink", 2)
    assert _written(tmp_path / "strict" / "out") == []


def test_what_is_held_back_comes_with_finish(jvm: Any, tmp_path: Path) -> None:
    _put(tmp_path / "in", 0, {"n": 1})
    sink = FileSink(str(tmp_path / "out"), rolling=RollingPolicy(size="1 MB"))
    write = foreach_batch(sink, checkpoint_dir=str(tmp_path / "ledger"))
    _run(jvm, tmp_path, write)
    assert _written(tmp_path / "out") == []
    write.finish()
    assert [row["n"] for row in _written(tmp_path / "out")] == [1]


def test_definitions_that_cannot_be_meant(tmp_path: Path) -> None:
    sink, ledger = _sink(tmp_path / "out"), str(tmp_path / "ledger")
    with pytest.raises(DefinitionError, match="without a sink"):
        foreach_batch(checkpoint_dir=ledger)
    with pytest.raises(DefinitionError, match="one sink without a name beside others"):
        foreach_batch(sink, other=sink, checkpoint_dir=ledger)
    with pytest.raises(DefinitionError, match="is no sink"):
        foreach_batch(print, checkpoint_dir=ledger)
    with pytest.raises(DefinitionError, match="is not a name"):
        foreach_batch(sink, checkpoint_dir=ledger, name="a b")


class _RowsWriter(TempFileWriter):
    """Writes rows as JSON."""

    def write(self, chunk: Any) -> int:
        self._handle.write("".join(json.dumps(row) + "\n" for row in chunk.batch.to_pylist()).encode())
        self._rows += len(chunk)
        return len(chunk)


class _RowsSink(TempFileSink):
    """A user's own two-phase sink of rows."""

    def open_writer(self, context: Any) -> Any:
        return _RowsWriter(self.storage, f"temp/{context.attempt}", self.clock.now_ms())


def test_a_two_phase_sink_of_the_users_own(jvm: Any, tmp_path: Path) -> None:
    """Its newest batch is delivered again each time, and moved once."""
    for number in range(3):
        _put(tmp_path / "in", number, {"n": number, "text": "a"})
    own = LocalStorage(str(tmp_path / "own"))
    for number in range(3, 5):
        write = foreach_batch(_RowsSink(own, SystemClock()), checkpoint_dir=str(tmp_path / "ledger"))
        _run(jvm, tmp_path, write)
        write.finish()
        _put(tmp_path / "in", number, {"n": number, "text": "a"})
        newest = max(int(path.name) for path in (tmp_path / "spark" / "commits").iterdir() if path.name.isdigit())
        (tmp_path / "spark" / "commits" / str(newest)).unlink()  # as if the driver had died before Spark wrote it
        (tmp_path / "spark" / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    write = foreach_batch(_RowsSink(own, SystemClock()), checkpoint_dir=str(tmp_path / "ledger"))
    _run(jvm, tmp_path, write)
    write.finish()
    rows = [json.loads(line)["n"] for path in (tmp_path / "own" / "target").iterdir() for line in path.open()]
    assert sorted(rows) == [0, 1, 2, 3, 4]
    assert list((tmp_path / "own" / "temp").iterdir()) == []
