"""What one task of a keyed stage does with the blocks that came for it, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from poundlock import FileSink
from poundlock.checkpoint.capabilities import bound
from poundlock.formats.chunk import Batch
from poundlock.operators.chain import Edge, Pass, Step
from poundlock.operators.columns.joins import held_rows
from poundlock.operators.columns.joins.interval_join import ColumnIntervalJoin
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.operator import ResultColumns
from poundlock.operators.columns.partials import SliceAggregation, merges_by_time
from poundlock.operators.columns.records import layout_of
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.columns.windows import ColumnWindows
from poundlock.operators.records import RecordMaker
from poundlock.operators.stream_times import Advanced, StreamWatermark
from poundlock.operators.time_values import TimeDirective, TimeState
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.state import hashing
from poundlock.state.manifest import in_spaces
from poundlock.state.participant import StateParticipant
from poundlock.storage.local import LocalStorage
from poundlock.stream.windows.builtin_assigners import SlidingEventTimeWindows
from poundlock.tasks.columns import SPLIT
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange import received, waiting
from poundlock.tasks.exchange.arrivals import RowNumbers
from poundlock.tasks.exchange.blocks import Block, BlockWriter, Delivery, ExchangeInput
from poundlock.tasks.exchange.exits import ExchangeStep, ToSegment
from poundlock.tasks.exchange.partial_blocks import PartialWriter
from poundlock.tasks.exchange.segment_blocks import read_blocks
from poundlock.tasks.keyed_rows import KeyedInput, PairColumns, WindowRows
from poundlock.tasks.keyed_stage import KeyedHead, KeyedStage
from poundlock.tasks.report import Directive
from poundlock.tasks.stage import SinkStep, StageBody, StageRun
from support.running import run_to_end

JOB = "0" * 32
AT = pa.field("at", pa.timestamp("us", "UTC"))
SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string()), AT])


def sent(side: int, count: int) -> list[Block]:
    """Return blocks of rows of three keys."""
    to = ExchangeInput(operator="join", side=side, keys=("k",), max_parallelism=8)
    writer = BlockWriter(to, hashing)
    made: list[Block] = []
    for first in range(0, count, 10):
        numbers = range(first, min(first + 10, count))
        columns = [
            pa.array([n % 3 for n in numbers]),
            pa.array([f"{side}-{n}" for n in numbers]),
            pa.array(list(numbers)).cast(AT.type),
        ]
        made += writer.add(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), SplitPlace("in", "split", 0))
    return [*made, *writer.finish()]


def joining(folder: Path, steps: list[Step], sinks: dict[str, Any]) -> tuple[KeyedStage, dict[str, Any]]:
    """Return a stage that joins two inputs, and the state of its one task."""
    sides = (JoinSide(("k",), "at", layout_of(SCHEMA) or ""), JoinSide(("k",), "at", layout_of(SCHEMA) or ""))
    output = PairColumns([(0, "text", pa.field("l", pa.string())), (1, "text", pa.field("r", pa.string()))])
    taken = KeyedInput(keys=["k"], time="at", elements=RecordMaker(()), whole=SCHEMA.names)
    join = ColumnIntervalJoin(-1_000, 1_000, sides, output, hashing.key_hashes)
    head = KeyedHead("join", join.operator, [taken, taken], {"": output})
    body = StageBody(1, JOB, [Step("join", Pass(), []), *steps], sinks, "fail", [2])
    advanced = Advanced(TimeState(), {"join": StreamWatermark(0, 0)})
    times: Any = SimpleNamespace(advance=lambda *_: advanced)
    stage = KeyedStage(body, [head], "space", times, str(folder / "state"))
    (folder / "state").mkdir()
    manifest = in_spaces({}, {"space": ["join"]}, max_parallelism=8)["space"]
    participant = StateParticipant(LocalStorage(str(folder / "state")), job="job", epoch=1)
    state = {"space": participant.directive(manifest, checkpoint=1, parallelism=1)}
    return stage, state


@pytest.mark.parametrize(("at_once", "held"), [(1, 0), (400, 2_000), (1 << 27, 0), (1 << 27, 1 << 27)])
def test_a_join_takes_many_rows_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, held: int
) -> None:
    monkeypatch.setattr(received, "_AT_ONCE", at_once)
    monkeypatch.setattr(waiting, "HELD_BYTES", held)
    sinks = {"out": bound(FileSink(str(tmp_path / "out"), format="json"), job_id=JOB, sink="out")}
    stage, state = joining(tmp_path, [Step("out", SinkStep("out"), [Edge("join")])], sinks)
    directive = Directive(1, 1, 0, "run", {"out": {}}, TimeDirective(TimeState(), 0, {}), state=state)
    delivery = Delivery((), (*sent(0, 60), *sent(1, 45)))
    report, _ = run_to_end(stage.run(0, [delivery], directive, attempt="attempt"))
    assert (report.steps["join"].rows_in, report.steps["join"].rows_out[""]) == (105, 20 * 15 * 3)
    assert report.groups["join"].rows == 105
    (written,) = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    pairs = [json.loads(line) for line in written.read_bytes().splitlines()]
    assert {(row["l"], row["r"]) for row in pairs} == {
        (f"0-{n}", f"1-{m}") for n in range(60) for m in range(45) if n % 3 == m % 3
    }


def test_windows_that_go_by_the_order_of_rows_number_them_from_checkpoint_to_checkpoint(tmp_path: Path) -> None:
    aggregates = SqlAggregates([SqlAggregate(kind="collect_list", column=0)])
    assigner = SlidingEventTimeWindows("20 s", "10 s")
    spec = WindowSpec(assigner=assigner, function=aggregates, late_tag="late")
    own = ColumnAggregates(aggregates.aggregates, (pa.string(),), merges_by_time(assigner))
    rows = SliceAggregation(("k",), "at", ("text",), own, assigner, hashing.key_hashes)
    key, listed = pa.field("k", pa.int64()), pa.field("texts", pa.list_(pa.string()))
    windows = ColumnWindows(spec, rows, ResultColumns([key], [listed]), SCHEMA.names)
    taken = KeyedInput(keys=["k"], time="at", elements=RecordMaker(("text",), tuple), whole=SCHEMA.names)
    head = KeyedHead("w", windows.operator, [taken], {"": WindowRows([key], [listed])}, windows=windows)
    sinks = {"out": bound(FileSink(str(tmp_path / "out"), format="json"), job_id=JOB, sink="out")}
    body = StageBody(1, JOB, [Step("w", Pass(), []), Step("out", SinkStep("out"), [Edge("w")])], sinks, "fail")
    (tmp_path / "state").mkdir()
    participant = StateParticipant(LocalStorage(str(tmp_path / "state")), job="job", epoch=1)
    manifest = in_spaces({}, {"space": ["w"]}, max_parallelism=8)["space"]
    to = ExchangeInput(operator="w", keys=("k",), max_parallelism=8)
    fired_until = 10_000  # a row before is in a window that fired, and in one that is open: it comes as it is
    came = [[("b", 25_000), ("c", 5_000), ("d", 15_000)], [("f", 7_000), ("e", 12_000), ("g", 21_000)]]
    for checkpoint, (read, after) in enumerate(zip(came, (fired_until, 1 << 40), strict=True), 1):
        numbers, adding, writer = RowNumbers(), PartialWriter(to, rows, hashing, 0), BlockWriter(to, hashing)
        blocks: list[Block] = []
        for text, at in read:
            times = pa.array([at * 1000], pa.int64()).cast(AT.type)
            batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([text]), times], schema=SCHEMA)
            numbered, place = numbers.numbered(batch, SplitPlace("in", "split", 0)), SplitPlace("in", "split", 0)
            before = fired_until if checkpoint == 2 else 0
            alone = bool(windows.alone(rows.times(numbered, 0), before)[0])
            blocks += writer.add(numbered, place) if alone else adding.add(numbered, place)
        delivery = Delivery((), (*writer.finish(), *adding.finish(), *blocks))
        advanced = Advanced(TimeState(), {"w": StreamWatermark(before, after)})
        times_of: Any = SimpleNamespace(advance=lambda *_, now=advanced: now)
        stage = KeyedStage(body, [head], "space", times_of, str(tmp_path / "state"))
        state = {"space": participant.directive(manifest, checkpoint=checkpoint, parallelism=1)}
        directive = Directive(checkpoint, 1, 0, "run", {"out": {}}, TimeDirective(TimeState(), 0, {}), state=state)
        report, _ = run_to_end(stage.run(0, [delivery], directive, attempt=f"attempt-{checkpoint}"))
        assert report.state is not None
        _, manifest = participant.apply(state["space"], [report.state[1]])
        assert manifest.operators["w"].arrived == 3 * checkpoint
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    lists = [json.loads(line)["texts"] for path in files for line in path.read_bytes().splitlines()]
    assert sorted(lists) == [["b", "d", "e", "g"], ["b", "g"], ["c"], ["c", "d", "f", "e"]]


def test_what_is_full_goes_on_before_the_last_row_came_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poundlock.tasks.exchange.blocks._FLUSH_BYTES", (1, 1))
    monkeypatch.setattr("poundlock.tasks.exchange.blocks._FLUSH_EACH", 1)
    monkeypatch.setattr(held_rows, "PIECE_ROWS", 10)
    columns = pa.schema([("l", pa.string()), ("r", pa.string())])
    exchange = ExchangeStep(ExchangeInput(operator="next", keys=("l",), max_parallelism=8), 2, columns, ("l", "r"))
    stage, state = joining(tmp_path, [Step("next#0", exchange, [Edge("join")])], {})
    directive = Directive(1, 1, 0, "run", {}, TimeDirective(TimeState(), 0, {}), state=state)
    running = stage.run(0, [Delivery((), (*sent(0, 60), *sent(1, 45)))], directive, attempt="attempt")
    _, _, first = next(running)
    assert 0 < sum(block.count for block in first.blocks) < 100
    assert not list((tmp_path / "state").iterdir()), "the task is not at its end"
    report, parcels = run_to_end(running)
    counts = [block.count for _, _, delivery in parcels for block in delivery.blocks]
    assert sum(counts) + sum(block.count for block in first.blocks) == report.steps["join"].rows_out[""] == 20 * 15 * 3


def test_a_segment_gets_its_blocks_as_they_fill() -> None:
    schema = pa.schema([("text", pa.string()), (SPLIT, pa.int32())])
    step = ToSegment("rows", 2, schema)
    body = StageBody(0, JOB, [Step("in", Pass(), []), Step("out", step, [Edge("in")])], {}, "fail")
    with StageRun(body, Directive(1, 1, 0, "run", {}, TimeDirective(TimeState(), 0, {})), 0, "attempt") as run:
        rows = pa.RecordBatch.from_pydict({"text": ["x" * (1 << 20)] * 3})
        sizes = []
        for _ in range(4):
            run.chain.push(Batch(rows), "in")
            sizes.append([sum(b.num_rows for b in read_blocks(block.block)) for _, _, block in run.full_parcels()])
        left = [sum(b.num_rows for b in read_blocks(block.block)) for _, _, block in run.parcels()]
    assert (sizes, left) == ([[], [6], [], [6]], [])
