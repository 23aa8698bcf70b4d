"""What all keyed operators share: moving from group to group, the watermark and the clock, which never go back, late elements.

A host, which is a test's harness or a task of Spark, keeps key groups, gives an operator one group at a time, and stores the
group when the operator is done with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from poundlock.operators.keyed.group import KeyGroup, TimerEntries, Timers
from poundlock.operators.keyed.output import CHUNK_ROWS, Collector, GroupBatch, OutputChunk


class KeyedOperator:
    """Works on one key group at a time. Every generator must be read to its end before the group is used again.

    For one micro-batch a host calls, for each group that has elements or due timers: `advance_processing_time`,
    `process` for each of its batches, `advance_watermark`.

    Args:
        chunk_rows: about how many rows come out at a time.
    """

    timer_entries: ClassVar[TimerEntries] = "keys"
    opens_tables_first: ClassVar[bool] = False
    """Whether timers may follow from what is in the tables, so that these are opened before timers are looked at."""

    def __init__(self, *, chunk_rows: int = CHUNK_ROWS) -> None:
        self.late_dropped = 0
        """How many elements were late and went nowhere, since the operator was made."""
        self.out = Collector(chunk_rows)
        self.group = KeyGroup(0)

    # --- what a subclass says -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the user's functions. Called once, before anything else."""

    def close(self) -> None:
        """Close the user's functions."""

    def bind(self, group: KeyGroup) -> None:
        """Take the tables of a group."""

    def has_keys(self, side: int) -> bool:
        """Return whether the elements of an input have keys."""
        return True

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        """Work on elements of the group in use; what is gathered last is left in the collector."""
        raise NotImplementedError

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[OutputChunk] | None:
        """Work on a timer of the group in use."""
        raise NotImplementedError

    # --- what a host calls ----------------------------------------------------------------------------------------------

    def process(self, group: KeyGroup, batch: GroupBatch) -> Iterator[OutputChunk]:
        """Work on elements, judged by the group's watermark and clock."""
        self.use(group)
        if self.has_keys(batch.side):
            group.prefetch(batch.keys)
        yield from self.work(batch)
        yield from self.out.drain()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[OutputChunk]:
        """Set the group's watermark, unless it is there already, and fire event-time timers up to it in order of time."""
        if watermark > group.watermark:
            if self.opens_tables_first:
                self.use(group)  # what follows from the watermark is as of the one before
            group.watermark = watermark
            yield from self._fire_due(group, group.event_timers, watermark, event=True)

    def advance_processing_time(self, group: KeyGroup, now: int) -> Iterator[OutputChunk]:
        """Set the group's clock, unless it is there already, and fire processing-time timers up to it in order of time."""
        group.processing_time = max(group.processing_time, now)
        yield from self._fire_due(group, group.processing_timers, group.processing_time, event=False)

    def use(self, group: KeyGroup) -> None:
        """Move to a group, or to its present watermark and clock."""
        if group is not self.group:
            self.group = group
            group.timer_entries = self.timer_entries
            self.bind(group)

    def _fire_due(self, group: KeyGroup, timers: Timers, limit: int, *, event: bool) -> Iterator[OutputChunk]:
        if not self.opens_tables_first and not timers:
            return
        self.use(group)
        out, on_timer = self.out, self.on_timer
        for time, entry in timers.due(limit):
            chunks = on_timer(time, entry, event=event)
            if chunks is not None:
                yield from chunks
            if out.full:
                yield from out.drain()
        yield from out.drain()

    def late(self, batch: GroupBatch, at: int, tag: str | None) -> None:
        """Send an element that nothing takes any more to a side output; None counts it."""
        if tag is None:
            self.late_dropped += 1
            return
        time = None if batch.timestamps is None else batch.timestamps[at]
        row = at if batch.rows is None else batch.rows[at]
        self.out.emit_row(batch.values[at], batch.keys[at], time, row, tag)
