"""Rows that leave a stage for an operator that makes Python values of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from poundlock import FileSink
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.participant import DEAD_LETTER
from poundlock.formats.chunk import Batch, FileOrigin
from poundlock.operators.chain import Edge, Pass, Step
from poundlock.operators.time_values import TimeDirective, TimeState
from poundlock.tasks.exchange.blocks import ExchangeInput
from poundlock.tasks.exchange.exits import ExchangeStep
from poundlock.tasks.exchange.received import grouped, inputs_of
from poundlock.tasks.report import Directive
from poundlock.tasks.stage import StageBody, StageRun

SCHEMA = pa.schema({"k": pa.int64(), "seen": pa.timestamp("us", "UTC"), "kept": pa.timestamp("us", "UTC")})
BEYOND = 253_402_300_800_000_000


def test_a_row_with_a_time_that_python_has_not_is_a_dead_letter_of_the_operator_that_would_see_it(
    tmp_path: Path,
) -> None:
    """It ended the job; where only the other columns have such a time, the row goes on."""
    exchange = ExchangeStep(ExchangeInput(operator="count", keys=("k",)), 1, SCHEMA, tuple(SCHEMA.names))
    exchange.seen = frozenset({"k", "seen"})
    sink: Any = bound(FileSink(str(tmp_path), row="value"), job_id="0" * 32, sink=DEAD_LETTER)
    steps = [Step("in", Pass(), []), Step("count#0", exchange, [Edge("in")])]
    body = StageBody(0, "0" * 32, steps, {DEAD_LETTER: sink}, "dead_letter", [1])
    directive = Directive(3, 1, 0, "run", {DEAD_LETTER: {}}, TimeDirective(TimeState(), 0, {}))
    rows = pa.RecordBatch.from_pydict({"k": [1, 2, 3], "seen": [0, BEYOND, 0], "kept": [0, 0, BEYOND]}, schema=SCHEMA)
    with StageRun(body, directive, 0, "attempt") as run:
        run.chain.push(Batch(rows, FileOrigin("/in/a", range(3))), "in")
        [(_, _, delivery)] = list(run.parcels())
        report = run.finish()
    arrived = grouped(inputs_of(delivery.blocks)["count", 0])
    assert arrived is not None
    assert sorted(arrived["k"].to_pylist()) == [1, 3]
    assert (report.steps["count"].rows_in, report.steps["count"].rejected) == (1, 1)
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert path.read_text().startswith('{"source":"","file":"/in/a","offset":1,"operator":"count","checkpoint":3,')
    assert "column 'seen': a value of the type timestamp[us, tz=UTC] that Python has not" in path.read_text()
