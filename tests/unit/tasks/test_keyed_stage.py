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
from poundlock.operators.chain import Edge, Pass, Step
from poundlock.operators.columns.joins.interval_join import ColumnIntervalJoin
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.records import layout_of
from poundlock.operators.records import RecordMaker
from poundlock.operators.stream_times import Advanced, StreamWatermark
from poundlock.operators.time_values import TimeDirective, TimeState
from poundlock.state import hashing
from poundlock.state.manifest import in_spaces
from poundlock.state.participant import StateParticipant
from poundlock.storage.local import LocalStorage
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange import blocks
from poundlock.tasks.exchange.blocks import BlockWriter, Delivery, ExchangeInput
from poundlock.tasks.keyed_rows import KeyedInput, PairColumns
from poundlock.tasks.keyed_stage import KeyedHead, KeyedStage
from poundlock.tasks.report import Directive
from poundlock.tasks.stage import SinkStep, StageBody

JOB = "0" * 32
AT = pa.field("at", pa.timestamp("us", "UTC"))
SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string()), AT])


def sent(side: int, count: int) -> list[blocks.Block]:
    """Return blocks of rows of three keys."""
    to = ExchangeInput(operator="join", side=side, keys=("k",), max_parallelism=8)
    writer = BlockWriter(to, hashing)
    made: list[blocks.Block] = []
    for first in range(0, count, 10):
        numbers = range(first, min(first + 10, count))
        columns = [
            pa.array([n % 3 for n in numbers]),
            pa.array([f"{side}-{n}" for n in numbers]),
            pa.array(list(numbers)).cast(AT.type),
        ]
        made += writer.add(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), SplitPlace("in", "split", 0))
    return [*made, *writer.finish()]


@pytest.mark.parametrize("at_once", [1, 400, 1 << 27])
def test_a_join_takes_many_rows_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(blocks, "_AT_ONCE", at_once)
    sides = (JoinSide(("k",), "at", layout_of(SCHEMA) or ""), JoinSide(("k",), "at", layout_of(SCHEMA) or ""))
    output = PairColumns([(0, "text", pa.field("l", pa.string())), (1, "text", pa.field("r", pa.string()))])
    taken = KeyedInput(keys=["k"], time="at", elements=RecordMaker(()), whole=SCHEMA.names)
    join = ColumnIntervalJoin(-1_000, 1_000, sides, output, hashing.key_hashes)
    head = KeyedHead("join", join.operator, [taken, taken], {"": output})
    sinks = {"out": bound(FileSink(str(tmp_path / "out"), format="json"), job_id=JOB, sink="out")}
    body = StageBody(1, JOB, [Step("join", Pass(), []), Step("out", SinkStep("out"), [Edge("join")])], sinks, "fail")
    advanced = Advanced(TimeState(), {"join": StreamWatermark(0, 0)})
    times: Any = SimpleNamespace(advance=lambda *_: advanced)
    stage = KeyedStage(body, [head], "space", times, str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    manifest = in_spaces({}, {"space": ["join"]}, max_parallelism=8)["space"]
    participant = StateParticipant(LocalStorage(str(tmp_path / "state")), job="job", epoch=1)
    state = {"space": participant.directive(manifest, checkpoint=1, parallelism=1)}
    directive = Directive(1, 1, 0, "run", {"out": {}}, TimeDirective(TimeState(), 0, {}), state=state)
    received = Delivery((), (*sent(0, 60), *sent(1, 45)))
    report, _ = stage.run(0, [received], directive, attempt="attempt")
    assert (report.steps["join"].rows_in, report.steps["join"].rows_out[""]) == (105, 20 * 15 * 3)
    assert report.groups["join"].rows == 105
    (written,) = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    pairs = [json.loads(line) for line in written.read_bytes().splitlines()]
    assert {(row["l"], row["r"]) for row in pairs} == {
        (f"0-{n}", f"1-{m}") for n in range(60) for m in range(45) if n % 3 == m % 3
    }
