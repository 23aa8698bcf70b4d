"""The watermark of a job, out of those of its sources: what each checkpoint saw goes in, one number comes out.

All of its state is readable JSON in the ledger record of a checkpoint, so that a restart goes on from the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from poundlock.operators.time_values import MAX, MIN
from poundlock.operators.watermarks import StatusWatermarkValve
from poundlock.stream.watermarks import WatermarkStrategy
from support.alignment_model import Paused, paused
from support.partition_watermarks import PartitionWatermarks, Seen

__all__ = ["HeldBack", "JobWatermarks", "SourceSeen", "resumed"]

CLOCK = "clock"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """What a checkpoint read of one source.

    Args:
        rows: per partition that had rows.
        partitions: all that there are; None = they are read to their end within the checkpoint, as files are.
        ended: whether nothing can come any more.
    """

    rows: Mapping[str, Seen] = field(default_factory=dict)
    partitions: Collection[str] | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Who holds the watermark of a job back: a source, and of that a partition, where one is known."""

    source: str
    partition: str | None

    def __str__(self) -> str:
        return self.source if self.partition is None else f"{self.partition} of {self.source}"


class JobWatermarks:
    """The watermark of a job.

    Args:
        strategies: per source that has one.
        state: what `to_json` of an earlier one gave; sources may have come and gone since.
    """

    def __init__(self, strategies: Mapping[str, WatermarkStrategy], state: Mapping[str, Any] | None = None) -> None:
        self._valve = StatusWatermarkValve(strategies)
        self._sources: dict[str, PartitionWatermarks] = {}
        self._before_end = MIN
        known = (state or {}).get("sources", {})
        for name, strategy in strategies.items():
            self._sources[name] = PartitionWatermarks(strategy, [CLOCK] if strategy.clocked else [])
            if name in known and not known[name].get("ended"):
                self._sources[name].restore(known[name])
                if strategy.clocked:
                    self._sources[name].add(CLOCK)  # the state may be that of another strategy, which had none
        if state is not None:
            last = resumed(state)
            inputs = {n: s for n, s in state.get("inputs", {}).items() if s.get("watermark") != MAX}
            self._valve.restore(inputs, last)
            self._before_end = last

    @property
    def watermark(self) -> int:
        """The watermark, MIN before any and MAX behind the end of all input."""
        return self._valve.watermark

    @property
    def ended(self) -> bool:
        """Whether it is the last one."""
        return self.watermark == MAX

    @property
    def sources(self) -> Mapping[str, PartitionWatermarks]:
        """The watermarks of each source."""
        return self._sources

    @property
    def held_by(self) -> HeldBack | None:
        """Who holds it back; None if nobody does, as behind the end of all input."""
        if self.ended:
            return None
        active = {n: s for n, s in self._sources.items() if not s.idle and s.watermark != MAX}
        if not active:
            return None
        name = min(active, key=lambda n: (active[n].watermark, n))
        return HeldBack(name, active[name].held_by)

    @property
    def paused(self) -> list[Paused]:
        """What has to wait for the slowest of its alignment group."""
        return paused(self._sources)

    def checkpoint(self, seen: Mapping[str, SourceSeen], now_ms: int) -> int:
        """Take what a checkpoint read; return the watermark behind it.

        Args:
            seen: per source; one that is missing had no rows.
            now_ms: the time by the clock.
        """
        self._note_paused()
        for name, source in self._sources.items():
            found = seen.get(name, SourceSeen(partitions=list(source.partitions)))
            if source.strategy.clocked:
                source.tick(now_ms)
            elif found.partitions is None:
                source.finished_splits(found.rows, now_ms)
            else:
                source.checkpoint(found.rows, now_ms, found.partitions)
        self._combine()
        for name in seen:
            if seen[name].ended and name in self._sources:
                self._sources[name].end()
        return self._combine()

    def tick(self, now_ms: int) -> int:
        """Let time pass without rows; return the watermark then."""
        self._note_paused()
        for source in self._sources.values():
            if source.watermark != MAX:
                source.tick(now_ms)
        return self._combine()

    def end(self) -> int:
        """Take the end of all input; return the watermark behind it."""
        for source in self._sources.values():
            source.end()
        if not self._sources:
            self._valve.raise_to(MAX)
        return self._combine()

    def raise_to(self, watermark: int) -> None:
        """Never be lower than this."""
        self._valve.raise_to(watermark)

    def _note_paused(self) -> None:
        for each in self.paused:
            if each.partition is None:
                self._sources[each.source].note_paused()

    def _combine(self) -> int:
        if self._valve.watermark != MAX:
            self._before_end = self._valve.watermark
        for name, source in self._sources.items():
            if not source.idle:
                self._valve.input_status(name, "active")
        # The least first: of sources that wake up together none is left behind by another that comes before it by its name.
        for name, source in sorted(self._sources.items(), key=lambda each: each[1].watermark):
            self._valve.input_watermark(name, source.watermark)
        for name, source in self._sources.items():
            if source.idle:
                self._valve.input_status(name, "idle")
        return self._valve.watermark

    def to_json(self) -> dict[str, Any]:
        """Return all of it, for a ledger record: "watermark" and who holds it back first, then what a restart needs."""
        held = self.held_by
        return {
            "v": FORMAT,
            "watermark": None if self.watermark == MIN else self.watermark,
            **({"held_by": {"source": held.source, "partition": held.partition}} if held is not None else {}),
            **({"before_end": None if self._before_end == MIN else self._before_end} if self.ended else {}),
            "sources": {
                name: {**source.to_json(), **({"ended": True} if source.watermark == MAX else {})}
                for name, source in self._sources.items()
            },
            "inputs": self._valve.to_json(),
        }


def resumed(state: Mapping[str, Any]) -> int:
    """Return the watermark that a job goes on with from a state: behind the end of its input, the one before that."""
    value = state.get("watermark")
    if value == MAX:
        value = state.get("before_end")
    return MIN if value is None else int(value)
