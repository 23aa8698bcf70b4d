"""Steps through which rows leave a stage for a keyed operator of a later one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from poundlock.formats import convert
from poundlock.formats.chunk import Chunk, Records
from poundlock.operators.chain import Emit
from poundlock.plan.hidden import visible_schema
from poundlock.state import hashing
from poundlock.tasks.columns import conformed
from poundlock.tasks.exchange.blocks import Block, BlockWriter, ExchangeInput
from poundlock.tasks.stage import StageRun, TaskStep


@dataclass(frozen=True, slots=True)
class ExchangeStep(TaskStep):
    """Sends rows to the tasks that have their key groups.

    Args:
        schema: the columns of the rows, the hidden one of event time included where they may have it.
    """

    to: ExchangeInput
    stage: int
    schema: Any
    columns: tuple[str, ...]

    def open(self, run: StageRun, step: str) -> RunningExchange:
        """Return the running exchange."""
        exchange = RunningExchange(self, run)
        run.exchanges.append(exchange)
        return exchange


class RunningExchange:
    """An exchange within one attempt of a task."""

    def __init__(self, step: ExchangeStep, run: StageRun) -> None:
        self.stage = step.stage
        self._step, self._run = step, run
        self._writer = BlockWriter(step.to, hashing)
        self._own = visible_schema(step.schema)
        self._sent = pa.schema([step.schema.field(name) for name in step.columns])
        self._blocks: list[Block] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Take rows."""
        batch: pa.RecordBatch = convert.to_batch(chunk, self._own if isinstance(chunk, Records) else None).batch
        batch = conformed(batch, self._sent)
        self._blocks += self._writer.add(batch, self._run.place)

    def blocks(self) -> list[Block]:
        """Return all that was taken; called once, behind the last row."""
        return [*self._blocks, *self._writer.finish()]
