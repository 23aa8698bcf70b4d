"""What operators without user timers share: the watermark and the clock of a group, which never go back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import CHUNK_ROWS, Collector, GroupBatch, OutputChunk


class TimedOperator:
    """An operator whose only timers are its own, of event time.

    Args:
        chunk_rows: about how many rows come out at a time.
    """

    def __init__(self, *, chunk_rows: int = CHUNK_ROWS) -> None:
        self.late_dropped = 0
        self.out = Collector(chunk_rows)
        self.group = KeyGroup(0)

    def open(self) -> None:
        """Nothing is to be opened, unless a subclass has a user's function."""

    def close(self) -> None:
        """Nothing is to be closed."""

    def bind(self, group: KeyGroup) -> None:
        """Take the tables of a group."""
        raise NotImplementedError

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        """Work on elements of the group in use; what is gathered last is left in the collector."""
        raise NotImplementedError

    def on_timer(self, time: int, entry: Any) -> Iterator[OutputChunk] | None:
        """Work on a timer of the group in use."""
        raise NotImplementedError

    def _use(self, group: KeyGroup) -> None:
        if group is not self.group:
            self.group = group
            self.bind(group)

    def process(self, group: KeyGroup, batch: GroupBatch) -> Iterator[OutputChunk]:
        self._use(group)
        group.prefetch(batch.keys)
        yield from self.work(batch)
        yield from self.out.drain()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[OutputChunk]:
        if watermark <= group.watermark:
            return
        group.watermark = watermark
        if not group.event_timers:
            return
        self._use(group)
        for time, entry in group.event_timers.due(watermark):
            chunks = self.on_timer(time, entry)
            if chunks is not None:
                yield from chunks
        yield from self.out.drain()

    def advance_processing_time(self, group: KeyGroup, now: int) -> Iterator[OutputChunk]:
        group.processing_time = max(group.processing_time, now)
        return iter(())
