"""Watermarks under a test: the very objects that a job uses, driven by hand with a clock that stands still.

No Spark and no time of the machine's: what happens is what the test says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from poundlock.operators.generators import IdlenessTimer, generator_of
from poundlock.operators.job_watermarks import JobWatermarks, SourceSeen
from poundlock.operators.valve import StatusWatermarkValve
from poundlock.operators.watermarks import MAX, MIN, PartitionWatermarks, Seen
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.values import ManualClock

__all__ = [
    "MAX",
    "MIN",
    "GeneratorHarness",
    "IdlenessTimer",
    "JobWatermarks",
    "PartitionWatermarks",
    "StatusWatermarkValve",
    "WatermarkHarness",
]


class GeneratorHarness:
    """The generator of one partition; it is its own output.

    Args:
        strategy: whose generator.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.watermark = MIN
        """The greatest watermark it emitted."""
        self.idle = False
        """Whether it marked its partition idle."""
        self.generator = generator_of(strategy)

    def events(self, timestamps: Iterable[int]) -> None:
        """Hand over event times, ms, each as a checkpoint of one row."""
        for timestamp in timestamps:
            self.generator.on_event(timestamp, 1, self)

    def emit(self, now_ms: int = 0) -> int:
        """Let it emit; return the watermark."""
        self.generator.on_periodic_emit(now_ms, self)
        return self.watermark

    def emit_watermark(self, timestamp: int) -> None:
        self.idle, self.watermark = False, max(self.watermark, timestamp)

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


class WatermarkHarness:
    """The watermark of a job, driven by hand.

    Args:
        strategies: per source, or one strategy for a source called "source".
        partitions: per source, its partitions; a source that is missing here is read in splits, as files are.
        clock: the time; it stands still until it is set.
    """

    def __init__(
        self,
        strategies: WatermarkStrategy | Mapping[str, WatermarkStrategy],
        partitions: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
        *,
        clock: ManualClock | None = None,
    ) -> None:
        single = isinstance(strategies, WatermarkStrategy)
        self._strategies = {"source": strategies} if isinstance(strategies, WatermarkStrategy) else dict(strategies)
        given: Any = {"source": partitions} if single and partitions is not None else (partitions or {})
        self.partitions = {name: list(each) for name, each in given.items()}
        """Per source, its partitions; change them and the next checkpoint sees it."""
        self.clock = clock or ManualClock()
        self.job = JobWatermarks(self._strategies)

    @property
    def watermark(self) -> int:
        """The watermark of the job, ms; MIN before any."""
        return self.job.watermark

    def checkpoint(self, rows: Mapping[Any, Iterable[int]], *, ended: Iterable[str] = ()) -> int:
        """Take a checkpoint; return the watermark behind it.

        Args:
            rows: event times, ms, per partition, or per (source, partition) where there are several sources.
            ended: sources that have come to their end with it.
        """
        seen: dict[str, dict[str, Seen]] = {name: {} for name in self._strategies}
        for key, times in rows.items():
            source, partition = key if isinstance(key, tuple) else (next(iter(self._strategies)), key)
            found = list(times)
            if found:
                seen[source][partition] = Seen(max(found), len(found))
        return self.job.checkpoint(
            {n: SourceSeen(each, self.partitions.get(n), n in set(ended)) for n, each in seen.items()},
            self.clock.now_ms(),
        )

    def advance(self, ms: int) -> int:
        """Let so much time pass without rows; return the watermark then."""
        self.clock.set(self.clock.now_ms() + ms)
        return self.job.tick(self.clock.now_ms())

    def snapshot(self) -> Mapping[str, Any]:
        """Return the state as a ledger record has it."""
        return self.job.to_json()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Throw everything away and go on from a state."""
        self.job = JobWatermarks(self._strategies, state)
