"""What all window operators share: what the user said, and how a window fires.

A subclass works on elements and timers; it never sees a watermark or a clock go back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.windows.firing import Firing
from poundlock.operators.windows.spec import WindowSpec


class WindowOperatorBase(KeyedOperator):
    """A window operator without a way to keep its windows."""

    opens_tables_first: ClassVar[bool] = True

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self.spec = spec
        self.firing = Firing(spec, self.out)
        self.fold = spec.fold()
        self.event_time = spec.assigner.is_event_time()

    def open(self) -> None:
        self.firing.open()

    def close(self) -> None:
        self.firing.close()

    def process(self, group: KeyGroup, batch: GroupBatch) -> Iterator[OutputChunk]:
        if self.spec.with_sides:
            batch = replace(batch, values=[[batch.side, value] for value in batch.values])
        return super().process(group, batch)

    def use(self, group: KeyGroup) -> None:
        super().use(group)
        self.firing.use(group)
