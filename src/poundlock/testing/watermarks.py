"""Watermarks under a test: the very objects that a job uses, driven by hand with a clock that stands still.

No Spark and no time of the machine's: what happens is what the test says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from poundlock.formats.chunk import Records
from poundlock.operators.generators import IdlenessTimer, generator_of, kept_generator
from poundlock.operators.stream_times import StreamTimes, StreamWatermark
from poundlock.operators.time_graph import Held, TimeGraph, TimeNode, held_of_source
from poundlock.operators.time_values import (
    MAX,
    MIN,
    SourceInput,
    SourceTime,
    SplitTimes,
    StreamHolder,
    StreamTime,
    TimeDirective,
    TimeState,
    known,
)
from poundlock.operators.watermarks import StatusWatermarkValve
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.tasks.event_time import SplitPlace, SplitTimesRecorder, TimedChunk
from poundlock.values import ManualClock

__all__ = [
    "MAX",
    "MIN",
    "GeneratorHarness",
    "IdlenessTimer",
    "JobEventTime",
    "StatusWatermarkValve",
    "WatermarkHarness",
]


Row = tuple[int, dict[str, Any]]
"""An event time, ms, and the record that has it."""


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
        self.generator = generator_of(strategy) if strategy.per_record else kept_generator(strategy)

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
    """The watermarks of a job, driven by hand: one stream for each source, and one of all of them together.

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
        self.job = JobEventTime(self._strategies)
        """The event time of the job: its watermarks, and who holds them back."""

    @property
    def watermark(self) -> int:
        """The watermark of all sources together, ms; MIN before any."""
        return self.job.watermark

    def checkpoint(self, rows: Mapping[Any, Iterable[int | Row]], *, ended: Iterable[str] = ()) -> int:
        """Take a checkpoint; return the watermark of all sources together behind it.

        Args:
            rows: event times, ms, per partition, or per (source, partition) where there are several sources; for a
                generator of each record (event time, record).
            ended: sources that have come to their end with it.
        """
        done = set(ended)
        directive = self.job.directive(
            self.clock.now_ms(), {name: self._input(name, name in done) for name in self._strategies}
        )
        recorders = {
            name: SplitTimesRecorder(_assigner(name), strategy, directive)
            for name, strategy in self._strategies.items()
        }
        for key, times in rows.items():
            source, partition = key if isinstance(key, tuple) else (next(iter(self._strategies)), key)
            each = [row if isinstance(row, tuple) else (row, {}) for row in times]
            timed = TimedChunk(Records([record for _, record in each]), np.array([at for at, _ in each], np.int64))
            recorders[source].rows(timed, SplitPlace(source, partition, 0))
        return self.job.advance(directive, [report for each in recorders.values() for report in each.reports()])

    def advance(self, ms: int) -> int:
        """Let so much time pass without rows; return the watermark then."""
        self.clock.set(self.clock.now_ms() + ms)
        return self.checkpoint({})

    def snapshot(self) -> Mapping[str, Any]:
        """Return the state as a ledger record has it."""
        state: Mapping[str, Any] = msgspec.to_builtins(self.job.state)
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Throw everything away and go on from a state, as a new start of the job does."""
        self.job = JobEventTime(self._strategies, msgspec.convert(state, TimeState))

    def _input(self, name: str, ended: bool) -> SourceInput:
        there = self.partitions.get(name)
        return SourceInput(None if there is None else tuple(there), ended or self.job.has_ended(name))


class JobEventTime:
    """The event time of a job under a test.

    Args:
        strategies: per source.
        state: to go on from, as a start of the job does.
    """

    def __init__(self, strategies: Mapping[str, WatermarkStrategy], state: TimeState | None = None) -> None:
        sources = [TimeNode(name, ()) for name in strategies]
        assigners = [TimeNode(_assigner(n), (n,), strategy, (n,), kept=True) for n, strategy in strategies.items()]
        together = TimeNode(_TOGETHER, tuple(each.id for each in assigners), kept=True)
        self._times = StreamTimes(TimeGraph((*sources, *assigners, together)))
        self.state = self._times.initial() if state is None else self._times.resume(state)
        """Behind the newest checkpoint, as its decision has it."""
        self._watermarks: Mapping[str, StreamWatermark] = {}

    @property
    def watermark(self) -> int:
        """The watermark of all sources together, ms; MIN before any and MAX behind the end of all input."""
        return known(self.state.streams.get(_TOGETHER, StreamTime()).watermark)

    def watermark_of(self, source: str) -> int:
        """Return the watermark of the stream of one source, ms."""
        return known(self.state.streams.get(_assigner(source), StreamTime()).watermark)

    @property
    def ended(self) -> bool:
        """Whether the watermark of all sources together is the last one."""
        return self.watermark == MAX

    @property
    def held_by(self) -> StreamHolder | None:
        """Who holds the watermark of all sources together back; None if nobody does."""
        each = self._watermarks.get(_TOGETHER)
        return None if each is None else each.held_by

    @property
    def held(self) -> Mapping[str, Held]:
        """What waits for the slowest of its alignment group, by source."""
        return held_of_source(self._times.graph, self.state)

    def source(self, name: str) -> SourceTime:
        """Return the state of a source: its watermark, its partitions, which are idle."""
        return self.state.sources.get(_assigner(name), {}).get(name, SourceTime())

    def has_ended(self, source: str) -> bool:
        """Return whether a source has come to its end."""
        return known(self.source(source).watermark) == MAX

    def directive(self, now_ms: int, sources: Mapping[str, SourceInput], *, drain: bool = False) -> TimeDirective:
        """Return what the tasks of the next checkpoint would be given."""
        return self._times.directive(self.state, now_ms, sources, drain=drain)

    def advance(self, directive: TimeDirective, reports: Iterable[SplitTimes]) -> int:
        """Take a checkpoint; return the watermark of all sources together behind it."""
        advanced = self._times.advance(directive, reports)
        self.state, self._watermarks = advanced.state, advanced.watermarks
        return self.watermark

    def end(self) -> int:
        """Take the end of all input, as a drain does; return the watermark behind it."""
        return self.advance(self.directive(self.state.clock, {}, drain=True), ())


_TOGETHER = "all sources"


def _assigner(source: str) -> str:
    return f"time of {source}"
