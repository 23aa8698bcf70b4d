"""One step or join by columns and record by record, over the same checkpoints: rows in, rows out, state in files that merge and tasks
that change their number.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import indices_of
from poundlock.operators.columns.joins.sides import ColumnJoinOperator
from poundlock.operators.columns.operator import ColumnChunk, ColumnOperator
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.state.hashing import groups_of, hashes_of, key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import ScratchState
from poundlock.tasks.keyed_rows import KeyedInput, KeyedOutput, with_times

GROUPS = 8
Form = Literal["record", "columns"]
Result = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@dataclass
class StepScript:
    """A step that is run through checkpoints.

    Args:
        form: of the operator: "record", "columns", or either in turn, as a seed has it.
        taken: how rows are taken record by record.
        output: of what comes out record by record.
    """

    record: Callable[[], KeyedOperator]
    columns: Callable[[], ColumnOperator]
    taken: KeyedInput
    output: KeyedOutput
    form: Form | random.Random = "record"
    policy: MergePolicy = field(default_factory=MergePolicy)
    late_dropped: int = 0

    def __post_init__(self) -> None:
        self.state = ScratchState(GROUPS, policy=self.policy)

    def checkpoint(self, rows: pa.RecordBatch, before: int, after: int, clock: int, tasks: int) -> list[Result]:
        """Return of each task what came out as rows came, and what behind them."""
        self.state.parallelism = tasks
        owners = groups_of(_hashes(rows, self.taken.keys), GROUPS) * tasks // GROUPS
        done = []
        for task in range(tasks):
            own = rows.take(indices_of(np.flatnonzero(owners == task)))
            form: Form = self.form if isinstance(self.form, str) else self.form.choice(["record", "columns"])
            group = self.state.open(task, before)
            operator = self.record() if form == "record" else self.columns()
            first: list[Any] = list(operator.advance_processing_time(group, clock))
            if isinstance(operator, ColumnOperator):
                for piece in pieces(own):
                    first += operator.take_rows(group, piece)
            else:
                first += operator.process(group, self.taken.batch(own, 0))
            result = self._rows(first), self._rows(operator.advance_watermark(group, after))
            if isinstance(operator, ColumnOperator):
                operator.store(group)
            self.late_dropped += operator.late_dropped
            done.append(result)
        self.state.write()
        return done

    def _rows(self, chunks: Iterable[Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for chunk in chunks:
            if isinstance(chunk, ColumnChunk):
                batch = with_times(chunk.rows.cast(self.output.schema), chunk.times)
            else:
                batch = self.output.rows(chunk)
            rows += batch.to_pylist()
        return rows


def pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows in one to three pieces, cut anywhere: as rows are that are too many for one batch."""
    cut = random.Random(rows.num_rows)
    cuts = sorted(cut.randrange(rows.num_rows + 1) for _ in range(cut.randrange(3)))
    for start, stop in pairwise([0, *cuts, rows.num_rows]):
        if start < stop:
            yield rows.slice(start, stop - start)


def _hashes(rows: pa.RecordBatch, keys: Sequence[str]) -> Any:
    return key_hashes([rows.column(name) for name in keys]) if keys else np.zeros(rows.num_rows, np.uint64)


class JoinScript(ABC):
    """A join of two inputs that is run through checkpoints. A row begins with its key."""

    def __init__(self, policy: MergePolicy) -> None:
        self.state = ScratchState(GROUPS, policy=policy)
        self.late_dropped = 0

    @abstractmethod
    def operator(self) -> KeyedOperator:
        """Return a new operator."""

    @abstractmethod
    def take(self, operator: Any, group: KeyGroup, rows: Sequence[Any], side: int) -> Iterable[Any]:
        """Have the operator take rows of a side; return what comes out."""

    def results(self, chunks: Iterable[Any]) -> Any:
        """Return what came out so that it can be compared: the time and value of each result."""
        return [(time, value) for chunk in chunks for value, time in zip(chunk.values, chunk.timestamps, strict=True)]

    def checkpoint(
        self, sides: Sequence[Sequence[Any]], before: int, after: int, tasks: int, clock: int = 0
    ) -> list[Any]:
        """Return the results of each task."""
        self.state.parallelism = tasks
        done = []
        for task in range(tasks):
            group, operator = self.state.open(task, before), self.operator()
            operator.open()
            chunks: list[Any] = list(operator.advance_processing_time(group, clock))
            for side, rows in enumerate(sides):
                chunks += self.take(operator, group, [row for row in rows if task_of(row[0], tasks) == task], side)
            chunks += operator.advance_watermark(group, after)
            if isinstance(operator, ColumnJoinOperator):
                operator.store(group)
            done.append(self.results(chunks))
            self.late_dropped += operator.late_dropped
        self.state.write()
        return done


def task_of(key: Any, tasks: int) -> int:
    """Return which of so many tasks has a key."""
    return int(groups_of(hashes_of([key]), GROUPS)[0]) * tasks // GROUPS
