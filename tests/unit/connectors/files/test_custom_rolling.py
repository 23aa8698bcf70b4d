"""Rolling policies of the user's: part files are finished by rows, size, time and checkpoint as they say."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.custom_rolling import CustomRollingPolicy, PartFile
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import TerminalError
from support.sinks import JOB, FileSinkHarness, batch, lines


class BeforeEachBegin(CustomRollingPolicy):
    """A line that begins with # begins a file."""

    def __init__(self) -> None:
        self.seen: list[tuple[PartFile, list[bytes]]] = []

    def should_roll_on_event(self, part: PartFile, rows: pa.RecordBatch) -> int | None:
        self.seen.append((part, rows["value"].to_pylist()))
        begins = pc.equal(pc.binary_slice(rows["value"], 0, 1), pa.scalar(b"#", rows["value"].type))
        at = pc.index(begins, True).as_py()
        if at == 0 and not part.rows:
            at = pc.index(begins.slice(1), True).as_py() + 1 or -1
        return None if at < 0 else int(at)


class EveryRows(CustomRollingPolicy):
    """So many rows a file."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def should_roll_on_event(self, part: PartFile, rows: pa.RecordBatch) -> int | None:
        left = self.rows - part.rows
        return left if left < rows.num_rows else None


class ByTimeAndSize(CustomRollingPolicy):
    """A minute after the first row, or at a checkpoint with more than 10 bytes."""

    def should_roll_on_checkpoint(self, part: PartFile) -> bool:
        return part.bytes > 10

    def roll_at_ms(self, part: PartFile) -> int | None:
        return part.created_ms + 60_000


def harness(folder: Path, rolling: Any, **given: Any) -> FileSinkHarness:
    sink = FileSink(str(folder), rolling=rolling, **{"row": "value", **given})
    return FileSinkHarness(sink.bind(job_id=JOB, sink="out"))


def test_rows_begin_files(tmp_path: Path) -> None:
    policy = BeforeEachBegin()
    h = harness(tmp_path, policy)
    h.write(lines(b"#1", b"a", b"#2", b"#3", b"b"))
    h.end_checkpoint()
    assert h.finished() == {"part-0-0": b"#1\na\n", "part-0-1": b"#2\n"}
    assert policy.seen[0] == (PartFile("", 0, 0, 0, 0), [b"#1\n", b"a\n", b"#2\n", b"#3\n", b"b\n"])
    h.write(lines(b"c", b"#4"))
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"part-0-0": b"#1\na\n", "part-0-1": b"#2\n", "part-0-2": b"#3\nb\nc\n", "part-0-3": b"#4\n"}


def test_a_part_goes_on_with_its_rows_behind_a_checkpoint_and_a_crash(tmp_path: Path) -> None:
    h = harness(tmp_path, EveryRows(3))
    h.write(lines(b"a", b"b"))
    h.end_checkpoint()
    h.write(lines(b"lost", b"too"))
    h.crash()
    h.write(lines(b"c", b"d", b"e", b"f", b"g"))
    h.end_checkpoint()
    assert h.finished() == {"part-0-0": b"a\nb\nc\n", "part-0-1": b"d\ne\nf\n"}
    h.end_checkpoint(Occasion.END)
    assert h.finished()["part-0-2"] == b"g\n"


def test_each_bucket_has_parts_of_its_own(tmp_path: Path) -> None:
    h = harness(tmp_path, EveryRows(2), bucket=lambda line: f"b={line[:1].decode()}")
    h.write(lines(b"x1", b"y1", b"x2", b"x3", b"y2", b"y3"))
    h.end_checkpoint()
    assert h.finished() == {"b=x/part-0-0": b"x1\nx2\n", "b=y/part-0-1": b"y1\ny2\n"}


def test_files_of_columns_are_cut_within_a_batch(tmp_path: Path) -> None:
    h = harness(tmp_path, EveryRows(2), row=None, format="parquet")
    h.write(batch(n=[1, 2, 3, 4, 5]))
    h.end_checkpoint()
    assert [pq.read_table(tmp_path / path)["n"].to_pylist() for path in h.finished()] == [[1, 2], [3, 4], [5]]


def test_time_and_checkpoints_finish_a_part(tmp_path: Path) -> None:
    h = harness(tmp_path, ByTimeAndSize())
    h.clock.set(1_000)
    h.write(lines(b"short"))
    h.end_checkpoint()
    assert (h.finished(), h.sink.next_roll_ms(h.state)) == ({}, 61_000)
    h.clock.set(60_999)
    assert h.end_checkpoint(Occasion.ROLL) == []
    h.clock.set(61_000)
    h.end_checkpoint(Occasion.ROLL)
    assert h.finished() == {"part-0-0": b"short\n"}
    h.write(lines(b"longer than ten"))
    h.end_checkpoint()
    assert len(h.finished()) == 2


@pytest.mark.parametrize("given", [-1, True, "2"])
def test_an_answer_that_is_no_row_is_refused(given: Any, tmp_path: Path) -> None:
    class Wrong(CustomRollingPolicy):
        def should_roll_on_event(self, part: PartFile, rows: pa.RecordBatch) -> int | None:
            return given  # type: ignore[no-any-return]

    with pytest.raises(TerminalError, match="should_roll_on_event gives"):
        harness(tmp_path, Wrong()).write(lines(b"a"))


def test_it_travels_to_tasks_and_is_described() -> None:
    sink = FileSink("out", row="value", rolling=EveryRows(2))
    assert pickle.loads(pickle.dumps(sink)).rolling.rows == 2
    assert "roll by EveryRows" in sink.describe()
