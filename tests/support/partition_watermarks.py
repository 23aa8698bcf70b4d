"""The watermark of one source, out of those of its partitions: the least of the active ones.

It never moves back, whatever partitions come and go; what happens depends on what it is told and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from poundlock.operators.generators import Generator, IdlenessTimer, PartitionOutput, generator_of
from poundlock.operators.time_values import MAX, MIN
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.values import span_ms

__all__ = ["MAX", "MIN", "PartitionWatermarks", "Seen"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a checkpoint read of one partition: the greatest event time, ms, and how many rows had one."""

    timestamp: int
    count: int = 1


@dataclass(slots=True, kw_only=True)
class _Partition(PartitionOutput):
    """One partition. It is the output of its generator: what that emits waits until the whole source is combined."""

    generator: Generator
    timer: IdlenessTimer | None

    def to_json(self) -> dict[str, Any]:
        kept = self.generator.snapshot()
        return {
            "watermark": None if self.watermark == MIN else self.watermark,
            **({"idle": True} if self.idle else {}),
            **({} if kept is None else {"generator": kept}),
        }


class PartitionWatermarks:
    """The watermark of a source.

    Args:
        strategy: what it goes by.
        partitions: those that are there at first; all are active and have no watermark yet.
    """

    def __init__(self, strategy: WatermarkStrategy, partitions: Iterable[str] = ()) -> None:
        self.strategy = strategy
        self.watermark = MIN
        """The watermark of the source."""
        self.idle = False
        """Whether it has partitions and all are idle."""
        self.held_by: str | None = None
        """The partition that holds the watermark back: the one with the least of the active ones."""
        self._partitions: dict[str, _Partition] = {}
        self._timer = self._new_timer()  # of a source whose partitions come and go with every checkpoint
        for name in partitions:
            self.add(name)

    def _new_timer(self) -> IdlenessTimer | None:
        # A clock is never silent, and rows that are given its time are not looked at.
        if self.strategy.idleness is None or self.strategy.clocked:
            return None
        return IdlenessTimer(span_ms(self.strategy.idleness))

    @property
    def partitions(self) -> Mapping[str, int]:
        """The watermark of each partition, MIN where it has none yet."""
        return {name: each.watermark for name, each in self._partitions.items()}

    @property
    def idle_partitions(self) -> Collection[str]:
        """Those that are not waited for."""
        return [name for name, each in self._partitions.items() if each.idle]

    # --- what happens to one partition, at once -------------------------------------------------------------------------

    def add(self, partition: str) -> None:
        """Take a new partition in: it is waited for from now on."""
        if partition not in self._partitions:
            self._partitions[partition] = _Partition(generator=generator_of(self.strategy), timer=self._new_timer())

    def remove(self, partition: str) -> None:
        """Forget a partition. What it held back moves on with the next that happens."""
        self._partitions.pop(partition, None)

    def emit(self, partition: str, watermark: int) -> int:
        """Take the watermark of a partition, which makes it active; return that of the source."""
        self._partitions[partition].emit_watermark(watermark)
        return self._combine()

    def mark_idle(self, partition: str) -> int:
        """Wait no longer for a partition; return the watermark of the source."""
        self._partitions[partition].mark_idle()
        return self._combine()

    # --- what happens in a checkpoint -----------------------------------------------------------------------------------

    def checkpoint(self, seen: Mapping[str, Seen], now_ms: int, partitions: Collection[str] | None = None) -> int:
        """Take what a checkpoint read; return the watermark behind it.

        Args:
            seen: per partition that had rows.
            now_ms: the time by the clock.
            partitions: all that there are; None = as before, with those that were seen.
        """
        wanted = set(self._partitions) | set(seen) if partitions is None else {*partitions, *seen}
        for name in [name for name in self._partitions if name not in wanted]:
            self.remove(name)
        for name in sorted(wanted):
            self.add(name)
        self._take(seen)
        return self.tick(now_ms)

    def finished_splits(self, seen: Mapping[str, Seen], now_ms: int) -> int:
        """Take what a checkpoint read of partitions that it read to their end, as files are; return the watermark behind it.

        They count once, against each other: the least of them is what the source has reached.
        """
        for name in list(self._partitions):
            self.remove(name)
        for name in sorted(seen):
            self.add(name)
        self._take(seen)
        self._emit(now_ms)
        self._combine()
        for name in seen:
            self.remove(name)
        if self._timer is not None:
            if seen:
                self._timer.activity()
            self.idle = self._timer.is_idle(now_ms)
        return self.watermark

    def tick(self, now_ms: int) -> int:
        """Let time pass without rows; return the watermark then."""
        if not self._partitions and self._timer is not None:
            self.idle = self._timer.is_idle(now_ms)
            return self.watermark
        silent = [n for n, p in self._partitions.items() if p.timer is not None and p.timer.is_idle(now_ms)]
        self._emit(now_ms, silent)
        self._combine()
        # One after the other, the slowest first: where all fall silent together, the source ends at the greatest.
        for name in sorted(silent, key=lambda n: (self._partitions[n].watermark, n)):
            if not self._partitions[name].idle:
                self.mark_idle(name)
        return self.watermark

    def note_paused(self) -> None:
        """Be told that its alignment group lets it wait: a source that is not read is not silent."""
        if self._timer is not None:
            self._timer.activity()

    def end(self) -> int:
        """Take the end of the input; return the watermark behind it, MAX. Time by the clock does not end."""
        if self.strategy.kind != "processing":
            self.watermark, self.idle, self.held_by = MAX, False, None
        return self.watermark

    def raise_to(self, watermark: int) -> None:
        """Never be lower than this."""
        self.watermark = max(self.watermark, watermark)

    def _take(self, seen: Mapping[str, Seen]) -> None:
        for name in sorted(seen):
            partition = self._partitions[name]
            partition.mark_active()
            partition.generator.on_event(seen[name].timestamp, seen[name].count, partition)
            if partition.timer is not None:
                partition.timer.activity()

    def _emit(self, now_ms: int, silent: Collection[str] = ()) -> None:
        for name, partition in self._partitions.items():
            if name not in silent and not (partition.idle and partition.timer is not None):
                partition.generator.on_periodic_emit(now_ms, partition)

    def _combine(self) -> int:
        active = {name: each.watermark for name, each in self._partitions.items() if not each.idle}
        self.idle = bool(self._partitions) and not active
        if active:
            self.held_by = min(active, key=lambda name: (active[name], name))
            self.watermark = max(self.watermark, active[self.held_by])
        elif self._partitions:
            self.held_by = None
        return self.watermark

    # --- what is kept ---------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return its state, for a ledger record; null stands for no watermark yet."""
        return {
            "watermark": None if self.watermark == MIN else self.watermark,
            **({"idle": True} if self.idle else {}),
            **({"held_by": self.held_by} if self.held_by is not None else {}),
            "partitions": {name: each.to_json() for name, each in sorted(self._partitions.items())},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. How long a partition has been silent is counted anew."""
        value = state.get("watermark")
        self.watermark = MIN if value is None else int(value)
        self.idle, self.held_by = bool(state.get("idle", False)), state.get("held_by")
        self._partitions = {}
        for name, said in state.get("partitions", {}).items():
            self.add(name)
            partition = self._partitions[name]
            found = said.get("watermark")
            partition.watermark = MIN if found is None else int(found)
            partition.idle = bool(said.get("idle", False))
            partition.generator.restore(said.get("generator"))
