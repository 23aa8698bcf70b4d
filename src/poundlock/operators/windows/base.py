"""What all window operators share: opening, the clock and the watermark, late elements.

A subclass works on elements and timers; it never sees a watermark or a clock go back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from poundlock.operators.keyed.group import KeyGroup, TimerEntries
from poundlock.operators.keyed.output import CHUNK_ROWS, Collector, GroupBatch, OutputChunk
from poundlock.operators.keyed.timers import Timers
from poundlock.operators.windows.firing import Firing
from poundlock.operators.windows.spec import WindowSpec


class WindowOperatorBase:
    """A window operator without a way to keep its windows.

    Args:
        spec: of the windows.
        chunk_rows: about how many rows come out at a time.
    """

    timer_entries: ClassVar[TimerEntries] = "keys"

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        self.spec = spec
        self.late_dropped = 0
        self.out = Collector(chunk_rows)
        self.firing = Firing(spec, self.out)
        self.fold = spec.fold()
        self.event_time = spec.assigner.is_event_time()
        self.group = KeyGroup(0)

    def open(self) -> None:
        self.firing.open()

    def close(self) -> None:
        self.firing.close()

    def use(self, group: KeyGroup) -> None:
        """Move to a group, or to its present watermark and clock."""
        if group is not self.group:
            self.group = group
            group.timer_entries = self.timer_entries
            self.bind(group)
        self.firing.use(group)

    def bind(self, group: KeyGroup) -> None:
        """Take the tables of a group."""
        raise NotImplementedError

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        """Work on elements of the group in use; what is gathered last is left in the collector."""
        raise NotImplementedError

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[OutputChunk] | None:
        """Work on a timer of the group in use."""
        raise NotImplementedError

    def process(self, group: KeyGroup, batch: GroupBatch) -> Iterator[OutputChunk]:
        self.use(group)
        group.prefetch(batch.keys)
        yield from self.work(batch)
        yield from self.out.drain()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[OutputChunk]:
        if watermark > group.watermark:
            self.use(group)  # what a subclass derives from the watermark is as of the one before
            group.watermark = watermark
            yield from self._fire_due(group, group.event_timers, watermark, event=True)

    def advance_processing_time(self, group: KeyGroup, now: int) -> Iterator[OutputChunk]:
        group.processing_time = max(group.processing_time, now)
        yield from self._fire_due(group, group.processing_timers, group.processing_time, event=False)

    def _fire_due(self, group: KeyGroup, timers: Timers, limit: int, *, event: bool) -> Iterator[OutputChunk]:
        self.use(group)
        for time, entry in timers.due(limit):
            chunks = self.on_timer(time, entry, event=event)
            if chunks is not None:
                yield from chunks
            if self.out.full:
                yield from self.out.drain()
        yield from self.out.drain()

    def late(self, batch: GroupBatch, at: int) -> None:
        """Send an element none of whose windows takes it any more to the late output, or count it."""
        tag = self.spec.late_tag
        if tag is None:
            self.late_dropped += 1
            return
        timestamps = batch.timestamps
        self.out.emit_row(
            batch.values[at],
            batch.keys[at],
            None if timestamps is None else timestamps[at],
            at if batch.rows is None else batch.rows[at],
            tag,
        )
