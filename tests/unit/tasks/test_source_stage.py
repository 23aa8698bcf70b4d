"""What one task does with the rows of its splits, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import FileSink, RichFunction
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.participant import DEAD_LETTER
from poundlock.connectors.base import PartitionRead, ReaderContext, Split
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, Records
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Edge, Pass, Step
from poundlock.operators.time_values import TimeDirective, TimeState
from poundlock.operators.user_functions import MapRecords
from poundlock.tasks.exchange.blocks import ExchangeInput
from poundlock.tasks.exchange.exits import ExchangeStep
from poundlock.tasks.report import Directive, SourceSplit, TaskReport, TaskWork
from poundlock.tasks.rows_stage import SourceHead, SourceStage
from poundlock.tasks.sinks import SinkGroup
from poundlock.tasks.stage import SinkStep, StageBody
from support.running import run_to_end

JOB = "0" * 32


WORK = TaskWork(0, [SourceSplit("in", Split("a", {}), 0)])


class Read:
    """A source whose splits are whatever a function says."""

    def __init__(self, read: Callable[[Callable[[Reject], None]], Iterator[Chunk]]) -> None:
        self.yielded = read

    def reader(self, context: ReaderContext) -> Read:
        self.reject = context.reject
        return self

    def read(self, split: Split) -> Iterator[Chunk]:
        return self.yielded(self.reject)


def run(tmp_path: Path, steps: list[Step], read: Callable[[Callable[[Reject], None]], Iterator[Chunk]]) -> TaskReport:
    sinks = {
        "out": bound(FileSink(str(tmp_path / "out"), format="json"), job_id=JOB, sink="out"),
        DEAD_LETTER: bound(FileSink(str(tmp_path / "dead"), row="value"), job_id=JOB, sink=DEAD_LETTER),
    }
    body = StageBody(0, JOB, [Step("in", Pass(), []), *steps], sinks, "dead_letter")
    source: Any = Read(read)
    stage = SourceStage(body, {"in": SourceHead(source, "records")})
    time = TimeDirective(TimeState(), 0, {})
    directive = Directive(3, 1, 0, "run", {"out": {}, DEAD_LETTER: {}}, time)
    running = stage.run(WORK, directive, attempt="attempt")
    with pytest.raises(StopIteration) as ended:
        next(running)
    report: TaskReport = ended.value.value
    return report


def test_a_dead_letter_may_come_from_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    def read(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
        reject(Reject("bad", "ü".encode(), {"file": "/in/a-\udcff", "offset": 7}))
        yield from ()

    report = run(tmp_path, [Step("out", SinkStep("out"), [Edge("in")])], read)
    assert [item.payload["rows"] for item in report.prepared] == [1]
    (written,) = [path for path in (tmp_path / "dead").rglob("*") if path.is_file()]
    letter = json.loads(written.read_bytes())
    assert letter["file"] == "/in/a-\udcff"
    assert letter["value"] == "ü"
    assert (report.steps["in"].rows_in, report.steps["in"].rejected, report.reads["in"].splits) == (1, 1, 1)


def test_dead_letters_are_written_once_they_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    flush = SinkGroup._flush
    monkeypatch.setattr(SinkGroup, "_flush", lambda group: (flushed.append(len(group._letters)), flush(group))[1])

    def read(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
        for number in range(5):
            reject(Reject("bad", b"x" * (400 << 10), {"offset": number}))
        yield from ()

    report = run(tmp_path, [Step("out", SinkStep("out"), [Edge("in")])], read)
    assert [item.payload["rows"] for item in report.prepared] == [5]
    assert [count for count in flushed if count] == [3, 2], "a megabyte, and the rest"


class Halves(RichFunction):
    """Halves even numbers; notes what is called."""

    def __init__(self, calls: list[str], closes: bool = True) -> None:
        self.calls, self.closes = calls, closes

    def open(self) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")
        if not self.closes:
            raise OSError("cannot be closed")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] % 2:
            raise ValueError("odd")
        return {"n": row["n"] // 2}


def halved(tmp_path: Path, function: Halves, *, rejects: bool) -> TaskReport:
    half = MapRecords("half", function, pa.schema([("n", pa.int64())]), rejects=rejects)
    return run(tmp_path, [Step("half", half, [Edge("in")]), Step("out", SinkStep("out"), [Edge("half")])], numbers)


def numbers(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
    yield Records([{"n": n} for n in range(5)], FileOrigin("/in/a", range(5)))


def test_records_that_a_function_fails_for_are_dead_letters_and_counted(tmp_path: Path) -> None:
    calls: list[str] = []
    steps = halved(tmp_path, Halves(calls), rejects=True).steps
    assert (steps["half"].rows_in, steps["half"].rejected, steps["half"].rows_out[""]) == (5, 2, 3)
    assert steps["out"].rows_out[""] == 3
    assert steps[DEAD_LETTER].rows_out[""] == 2
    letters = [
        json.loads(x) for p in (tmp_path / "dead").rglob("*") if p.is_file() for x in p.read_bytes().splitlines()
    ]
    assert [(x["operator"], x["offset"], x["reason"], x["value"]) for x in letters] == [
        ("half", n, "half raised ValueError: odd", f'{{"n": {n}}}') for n in (1, 3)
    ]
    assert calls == ["open", "close"]


@pytest.mark.parametrize("closes", [True, False])
def test_a_task_that_fails_closes_its_functions_and_leaves_nothing(tmp_path: Path, closes: bool) -> None:
    calls: list[str] = []
    with pytest.raises(ValueError, match="odd"):
        halved(tmp_path, Halves(calls, closes), rejects=False)
    assert calls == ["open", "close"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_function_that_cannot_be_closed_fails_its_task(tmp_path: Path) -> None:
    calls: list[str] = []
    with pytest.raises(OSError, match="cannot be closed"):
        halved(tmp_path, Halves(calls, False), rejects=True)
    assert calls == ["open", "close"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_is_full_goes_to_the_next_stage_before_the_last_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poundlock.tasks.exchange.blocks._FLUSH_BYTES", (1, 1))
    monkeypatch.setattr("poundlock.tasks.exchange.blocks._FLUSH_EACH", 1)
    schema, read = pa.schema([("n", pa.int64())]), []

    def chunks(_: Callable[[Reject], None]) -> Iterator[Chunk]:
        for first in (0, 100, 200):
            read.append(first)
            yield Batch(pa.record_batch([pa.array(range(first, first + 100))], schema=schema))

    exchange = ExchangeStep(ExchangeInput(operator="op", keys=("n",)), 1, schema, ("n",))
    body = StageBody(0, JOB, [Step("in", Pass(), []), Step("op#0", exchange, [Edge("in")])], {}, "fail", [1])
    source: Any = Read(chunks)
    directive = Directive(3, 1, 0, "run", {}, TimeDirective(TimeState(), 0, {}), parallelism=2)
    running = SourceStage(body, {"in": SourceHead(source, "batch")}).run(WORK, directive, attempt="attempt")
    parcels, seen = [], []
    for stage, target, delivery in running:
        parcels.append((stage, target, delivery))
        seen.append(len(read))
    assert seen == sorted(seen)
    assert seen[0] == 1
    assert {(stage, target) for stage, target, _ in parcels} == {(1, 0), (1, 1)}
    blocks = [block for _, _, delivery in parcels for block in delivery.blocks]
    assert sorted(n for block in blocks for n in block.batch().column("n").to_pylist()) == list(range(300))
    assert len({(block.target, block.part) for block in blocks}) == len(blocks), "each has a place of its own"


def test_a_reader_that_counts_bytes_has_them_counted_by_partition() -> None:
    class Counting(Read):
        bytes_read = 0

        def read(self, split: Split) -> Iterator[Chunk]:
            self.bytes_read += int(split.id)
            yield Batch(pa.RecordBatch.from_pydict({"n": [1]}))

    def split(id: str, name: str) -> SourceSplit:
        return SourceSplit("in", Split(id, {}, weight=4, name=name), 0)

    work = TaskWork(0, [split("10", "a"), split("7", "b"), split("1", "a")])
    body = StageBody(0, JOB, [Step("in", Pass(), [])], {}, "fail")
    source: Any = Counting(lambda _: iter(()))
    directive = Directive(3, 1, 0, "run", {}, TimeDirective(TimeState(), 0, {}))
    report, _ = run_to_end(SourceStage(body, {"in": SourceHead(source, "batch")}).run(work, directive, attempt="a"))
    read = report.reads["in"]
    assert (read.splits, read.bytes) == (3, 18)
    assert read.partitions == {"a": PartitionRead(8, 11), "b": PartitionRead(4, 7)}
