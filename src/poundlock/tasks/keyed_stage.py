"""A keyed stage: a task takes the blocks of its key groups, applies them to their state, and sends on what operators emit.

Blocks are applied in the order of source, split and position, so the same ranges over the same state give the same output in
any attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.checkpoint.skew import Shares
from poundlock.formats.chunk import Batch, NoOrigin
from poundlock.operators.columns.operator import (
    ColumnChunk,
    ColumnOperator,
    ColumnWork,
    PartialsOperator,
    TwoInputColumnOperator,
)
from poundlock.operators.columns.sent import SentPartials
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import OutputChunk
from poundlock.operators.pieces import slices
from poundlock.operators.stream_times import StreamTimes
from poundlock.state.hashing import groups_of
from poundlock.state.runs.files import run_files
from poundlock.state.task_state import TaskState
from poundlock.tasks.exchange.arrivals import with_places
from poundlock.tasks.exchange.blocks import Block, Delivery
from poundlock.tasks.exchange.partial_blocks import PARTIAL_SIDE, partials_of
from poundlock.tasks.exchange.received import grouped_batches, grouped_pieces, inputs_of
from poundlock.tasks.exchange.waiting import Received, receive
from poundlock.tasks.keyed_rows import KeyedInput, KeyedOutput, with_time, with_times
from poundlock.tasks.report import Directive, TaskReport
from poundlock.tasks.stage import Parcel, StageBody, StageRun

_OVER = object()


@dataclass(frozen=True)
class KeyedHead:
    """A keyed operator of a stage.

    Args:
        make: makes the operator; each attempt of a task has one of its own.
        inputs: by side.
        outputs: by tag; what is emitted under another tag goes nowhere.
        first: the side whose rows are applied first.
        broadcast: the sides whose rows come to every task.
        windows: those that rows are added up for before they come; None = they come as they are.
    """

    id: str
    make: Callable[[], KeyedOperator]
    inputs: Sequence[KeyedInput]
    outputs: Mapping[str, KeyedOutput]
    first: int = 0
    broadcast: frozenset[int] = frozenset()
    windows: ColumnWork | None = None


@dataclass(frozen=True)
class KeyedStage:
    """What every task of a keyed stage runs.

    Args:
        body: the steps behind the operators; each operator is also a step without inputs.
        operators: in the order in which they run.
        space: under which name its state stands in the decision.
        state_dir: the job's checkpoint folder, below which it keeps its state.
    """

    body: StageBody
    operators: Sequence[KeyedHead]
    space: str
    times: StreamTimes
    state_dir: str

    def run(
        self, task: int, deliveries: Iterable[Delivery], directive: Directive, *, attempt: str
    ) -> Generator[Parcel, None, TaskReport]:
        """Apply what came for one task, write, prepare; yield what goes to later stages as soon as it is full, return the report.

        Args:
            task: its index, which says which key groups it has.
            deliveries: all that earlier stages sent to it, in any order.
        """
        with StageRun(self.body, directive, task, attempt) as run:
            work = _KeyedTask(self, run, receive(deliveries))
            used = yield from work.apply()
            yield from run.parcels()
            report = run.finish(state=(self.space, work.state.finish()), watermarks=used, groups=work.shares())
        return report


class _KeyedTask:
    """One attempt of one task, and what was sent to it."""

    def __init__(self, stage: KeyedStage, run: StageRun, received: Received) -> None:
        self._stage, self._run = stage, run
        files = run_files(stage.state_dir)
        self.state = TaskState(run.directive.state[stage.space], run.subtask, files, run.attempt)
        self._blocks = inputs_of(received.blocks)
        run.received_times = received.reports
        self._groups = run.directive.state[stage.space].manifest.max_parallelism
        self._rows_by_group: dict[str, npt.NDArray[np.int64]] = {}

    def shares(self) -> dict[str, Shares]:
        """Return how the rows of each operator lay over key groups."""
        return {
            name: Shares.of({str(group): int(rows[group]) for group in np.flatnonzero(rows).tolist()})
            for name, rows in self._rows_by_group.items()
        }

    def _count(self, operator: str, groups: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
        """Note rows of key groups; those of all groups are left out."""
        known = self._rows_by_group.setdefault(operator, np.zeros(self._groups, np.int64))
        there = groups >= 0
        known += np.bincount(groups[there], rows[there], self._groups).astype(np.int64)

    def apply(self) -> Generator[Parcel, None, str]:
        """Run every operator over its rows; return the watermarks that they ran by, see `Advanced.used`."""
        run, operators = self._run, self._stage.operators
        advanced = self._stage.times.advance(run.directive.time, run.received_times)
        for head in operators:
            watermark = advanced.watermarks[head.id]
            operator = head.make()
            run.chain.timed(head.id, operator.open)
            try:
                work = self._work(head, operator, watermark.before, watermark.after)
                while run.chain.timed(head.id, partial(next, work, _OVER)) is not _OVER:
                    yield from run.full_parcels()
            finally:
                run.chain.timed(head.id, operator.close)
            run.chain.tallies[head.id].late += operator.late_dropped
        return advanced.used(head.id for head in operators)

    def _work(self, head: KeyedHead, operator: KeyedOperator, before: int, after: int) -> Iterator[None]:
        """Run an operator over its rows; yield whenever it has emitted some."""
        clock = self._run.directive.time.clock
        if head.windows is not None:
            before, after, clock = map(head.windows.partial.reached, (before, after, clock))
        group = self.state.operator(head.id, watermark=before, processing_time=clock)
        if head.windows is not None:
            group.due = head.windows.partial.due
        came = [block for (name, _), blocks in self._blocks.items() if name == head.id for block in blocks]
        if came:
            self._run.chain.tallies[head.id].bytes_in = sum(len(block.rows) for block in came)
        yield from self._emit(head, operator.advance_processing_time(group, clock))
        if isinstance(operator, ColumnOperator):
            yield from self._work_on_columns(head, operator, group)
        for side in sorted(range(len(head.inputs)), key=lambda side: side != head.first):
            if isinstance(operator, TwoInputColumnOperator):
                yield from self._join_columns(head, operator, group, side)
                continue
            for rows in self._rows(head, side):
                taken = head.inputs[side]
                if side not in head.broadcast or self._run.subtask == 0:  # what comes to every task counts once
                    self._run.chain.tallies[head.id].rows_in += rows.num_rows
                whole = rows.select(list(taken.whole)) if set(taken.whole) <= set(rows.schema.names) else None
                yield from self._emit(head, operator.process(group, taken.batch(rows, side)), whole)
        yield from self._emit(head, operator.advance_watermark(group, after))
        if isinstance(operator, (ColumnOperator, TwoInputColumnOperator)):
            operator.store(group)

    def _join_columns(
        self, head: KeyedHead, operator: TwoInputColumnOperator, group: KeyGroup, side: int
    ) -> Iterator[None]:
        """Give an operator all rows of one side, some at a time where they are many."""
        for rows in grouped_batches(self._counted(head, side)):
            self._run.chain.tallies[head.id].rows_in += rows.num_rows
            yield from self._emit(head, operator.take_side(group, rows, side))

    def _work_on_columns(self, head: KeyedHead, operator: ColumnOperator, group: KeyGroup) -> Iterator[None]:
        """Give an operator what its rows added up to, and those that came as they are."""
        tally = self._run.chain.tallies[head.id]
        if isinstance(operator, PartialsOperator):
            partials = self._partials(head, group)
            for each in partials:
                tally.rows_in += int(each.counts.sum())
                self._count(head.id, groups_of(each.hashes, self._groups), each.counts)
            operator.take(group, partials)
            del partials  # what the operator needs of them it holds
        for rows in grouped_pieces(self._counted(head, 0)):
            tally.rows_in += rows.num_rows
            yield from self._emit(head, operator.take_rows(group, rows))

    def _partials(self, head: KeyedHead, group: KeyGroup) -> Sequence[SentPartials]:
        """Return what the rows of an operator added up to; where it goes by the order of rows, with their places, as rows get them too."""
        added = self._blocks.pop((head.id, PARTIAL_SIDE), ())
        places = () if head.windows is None else head.windows.partial.places
        if not places:
            return partials_of(added)
        came = with_places(added, self._blocks.pop((head.id, 0), ()), places, group.arrived)
        self._blocks[head.id, 0] = list(came.rows)
        group.arrived = came.next
        return came.partials

    def _counted(self, head: KeyedHead, side: int) -> Sequence[Block]:
        """Return the blocks of one input, whose rows are counted by key group."""
        blocks = self._blocks.pop((head.id, side), ())
        for block in blocks if head.inputs[side].keys else ():
            runs = block.runs()
            self._count(head.id, runs[:, 0], np.diff(runs[:, 2], append=block.count))
        return blocks

    def _rows(self, head: KeyedHead, side: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one input: by key group, and in each in the order of source, split and position."""
        for result in grouped_batches(self._counted(head, side)):
            yield from slices(result)

    def _emit(
        self, head: KeyedHead, chunks: Iterator[OutputChunk | ColumnChunk], came_as: pa.RecordBatch | None = None
    ) -> Iterator[None]:
        """Send on what an operator emits; yield behind each chunk."""
        for chunk in chunks:
            output = head.outputs.get(chunk.tag)
            if output is not None and len(chunk):
                if isinstance(chunk, ColumnChunk):
                    times = chunk.times if head.windows is None else head.windows.partial.instants(chunk.times)
                    rows = with_times(chunk.rows.cast(output.schema), times)
                else:
                    rows = _rows_of(output, chunk, came_as)
                self._run.chain.emit(head.id, chunk.tag, Batch(rows, NoOrigin(chunk.tag)))
                yield


def _rows_of(output: KeyedOutput, chunk: OutputChunk, came_as: pa.RecordBatch | None) -> pa.RecordBatch:
    """Return the rows of a chunk; elements that are sent on are taken from what came in."""
    if chunk.rows is None or came_as is None:
        return output.rows(chunk)
    return with_time(came_as.take(pa.array(chunk.rows)).cast(output.schema), chunk.timestamps)
