"""Operators over changelogs run through checkpoints, and what their changelog makes of a table: each row that is taken away must be there.

State is written, and read again, behind each checkpoint, in files that merge, by tasks that change their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import indices_of
from poundlock.operators.columns.operator import ColumnOperator, TwoInputColumnOperator
from poundlock.operators.keyed.group import MIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.state.hashing import groups_of, key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import ScratchState
from support.column_scripts import GROUPS, pieces

Change = tuple[str, tuple[Any, ...]]


class ChangelogScript:
    """An operator that is run through checkpoints.

    Args:
        make: makes it.
        keys: the columns of the key of each input.
    """

    def __init__(
        self, make: Callable[[], Any], keys: Sequence[Sequence[str]], policy: MergePolicy | None = None
    ) -> None:
        self._make, self.keys = make, keys
        self.state = ScratchState(GROUPS, policy=policy or MergePolicy())
        self.watermark, self.late_dropped = MIN, 0

    def checkpoint(
        self, *sides: pa.RecordBatch, tasks: int = 1, clock: int = 0, watermark: int = MIN, before: int | None = None
    ) -> list[Change]:
        """Return the changes that come out, the kind and the other columns of each.

        Args:
            watermark: behind the checkpoint; `before`: that its rows are judged by; as the last one left it.
        """
        self.state.parallelism = tasks
        out: list[Change] = []
        owners = [
            (groups_of(key_hashes([rows.column(k) for k in keys]), GROUPS) if keys else np.zeros(rows.num_rows))
            * tasks
            // GROUPS
            for rows, keys in zip(sides, self.keys, strict=True)
        ]
        for task in range(tasks):
            group, operator = self.state.open(task, self.watermark if before is None else before), self._make()
            operator.open()
            chunks = list(operator.advance_processing_time(group, clock))
            for side, (rows, owner) in enumerate(zip(sides, owners, strict=True)):
                for piece in pieces(rows.take(indices_of(np.flatnonzero(owner == task)))):
                    if isinstance(operator, TwoInputColumnOperator):
                        chunks += operator.take_side(group, piece, side)
                    else:
                        assert isinstance(operator, ColumnOperator)
                        chunks += operator.take_rows(group, piece)
            chunks += operator.advance_watermark(group, watermark)
            operator.store(group)
            self.late_dropped += operator.late_dropped
            out += (change for chunk in chunks for change in changes_of(chunk.rows))
        self.state.write()
        self.watermark = max(self.watermark, watermark)
        return out


def changes_of(rows: pa.RecordBatch) -> list[Change]:
    """Return rows as changes; without a kind all are +I."""
    kinds = rows.column(ROW_KIND).to_pylist() if ROW_KIND in rows.schema.names else ["+I"] * rows.num_rows
    names = [name for name in rows.schema.names if name != ROW_KIND]
    columns = [map(hashable, rows.column(name).to_pylist()) for name in names]
    return list(zip(kinds, zip(*columns, strict=True), strict=True))


def hashable(value: Any) -> Any:
    """Return a value such that equal ones are equal: lists and maps as tuples."""
    if isinstance(value, list):
        return tuple(map(hashable, value))
    return value


def apply(table: Counter[tuple[Any, ...]], changes: Iterable[Change]) -> None:
    """Apply changes to a table; what is taken away must be there."""
    for kind, row in changes:
        if kind in ("+I", "+U"):
            table[row] += 1
        else:
            assert table[row] > 0, f"{kind}{row} takes away a row that is not there"
            table[row] -= 1
            if not table[row]:
                del table[row]


def changelog(rows: Sequence[Change], schema: pa.Schema, *, kinds: bool) -> pa.RecordBatch:
    """Return changes as columns, with the kind where that is wanted."""
    columns = [pa.array([row[n] for _, row in rows], field.type) for n, field in enumerate(schema)]
    if not kinds:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array([kind for kind, _ in rows], pa.string())],
        schema=schema.append(pa.field(ROW_KIND, pa.string())),
    )
