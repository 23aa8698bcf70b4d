"""Count windows without a trigger or an evictor of their own.

Of a key there is the number of its elements so far and what they add up to, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.windows.base import WindowOperatorBase
from poundlock.operators.windows.spec import WindowSpec
from poundlock.stream.windows.builtin_assigners import CountTumblingWindows

COUNTED = "contents"


class CountWindowOperator(WindowOperatorBase):
    """Tumbling count windows."""

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(spec, chunk_rows=chunk_rows)
        assert isinstance(spec.assigner, CountTumblingWindows)
        self._n = spec.assigner.n
        self._table: dict[Any, list[Any]] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(COUNTED, "counted")
        self._table = group.table(COUNTED)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        table, fold, n, out = self._table, self.fold, self._n, self.out
        for key, value in zip(batch.keys, batch.values, strict=True):
            held = table.get(key)
            if held is None:
                held = table[key] = [1, fold.first(value)]
            else:
                held[0] += 1
                held[1] = fold.add(value, held[1])
            if held[0] >= n:
                del table[key]
                self.firing.fire(key, None, MAX, fold.result(held[1]))
                if out.full:
                    yield from out.drain()
