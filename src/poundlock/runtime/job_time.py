"""Event time in one life of the query: what each checkpoint saw becomes the watermark of the job, and Spark is told.

The watermark in use in a batch is in Spark's log of that batch, written before the batch begins; the one behind it is in the
decision. So a batch that is run again is run with the same, and nothing is measured twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import SplitSource
from poundlock.operators.job_watermarks import HeldBack, JobWatermarks, SourceSeen, resumed
from poundlock.operators.watermarks import MAX, MIN
from poundlock.plan.event_time import UNKNOWN, TimeChannel
from poundlock.runtime.offsets import SparkLog
from poundlock.values import Clock, SystemClock

__all__ = ["END_MS", "JobTime", "from_spark", "to_spark"]

END_MS = 9_000_000_000_000_000
"""What Spark is told behind the end of the input: in microseconds it must fit a long, with room for an operator to add to."""


def to_spark(watermark: int) -> int:
    """Return what Spark calls this watermark: it drops and closes a window that ends at or before it, Flink one whose last
    millisecond is not behind it. Spark begins with 0, so there is nothing below."""
    return END_MS if watermark >= END_MS - 1 else max(0, watermark + 1)


def from_spark(spark_ms: int) -> int:
    """Return the watermark that Spark calls so; MIN for Spark's first."""
    return MAX if spark_ms >= END_MS else MIN if spark_ms <= 0 else spark_ms - 1


@dataclass
class JobTime:
    """The watermark of a job. Its user holds the coordinator's lock; where nothing measures event time it does nothing.

    Args:
        channels: where the query measures event time.
        sources: by name of each use, as this start of the job reads them.
        spark_log: Spark's.
        publish: tells Spark the watermark of the next batch it plans, in Spark's terms.
        clock: what idleness goes by.
        hosted: whether steps of ours keep state: they are told the time, and the end of the input.
        untimed: the uses of sources whose rows have no event time. While something comes from them the input has no end.
    """

    channels: Sequence[TimeChannel] = ()
    sources: Mapping[str, Any] = field(default_factory=dict)
    spark_log: SparkLog | None = None
    publish: Callable[[int], None] = lambda spark_ms: None
    clock: Clock = field(default_factory=SystemClock)
    hosted: bool = False
    untimed: Sequence[str] = ()
    _job: JobWatermarks = field(init=False)
    published: int = field(default=0, init=False)
    """What Spark was told, or has in its log: the watermark of the next batch it plans."""
    _executed: int = 0  # Spark's watermark in the newest batch that was carried through
    over: bool = field(default=False, init=False)
    """Whether all windows were fired before this life of the query, and no batch came since."""
    _begun: bool = False
    _told_clock: int = 0
    _measured: tuple[int, JSON] | None = None

    def __post_init__(self) -> None:
        self._job = JobWatermarks(self._strategies)

    @property
    def _strategies(self) -> Mapping[str, Any]:
        return {channel.name: channel.strategy for channel in self.channels}

    @property
    def active(self) -> bool:
        """Whether there is any event time, be it its end."""
        return bool(self.channels) or self.hosted

    @property
    def clocked(self) -> bool:
        """Whether the watermark moves with the clock alone."""
        return any(channel.strategy.clocked for channel in self.channels)

    @property
    def watermark(self) -> int:
        """The watermark behind the newest checkpoint, or what time made of it since; MIN before any, MAX behind the end."""
        return self._job.watermark

    @property
    def held_by(self) -> HeldBack | None:
        """Who holds it back."""
        return self._job.held_by

    def begin(self, state: JSON | None, checkpoint: int) -> None:
        """Be told that the query is about to start: go on from the ledger, unless it only starts anew within this life.

        Args:
            state: the watermarks of the newest decided checkpoint; None where it has none.
            checkpoint: its number.
        """
        if not self.active or self.spark_log is None or (self._begun and not (self.at_end and self.fired)):
            return
        self._begun, self.over = True, ended(state)
        if ended(state) and self.spark_log.committed(checkpoint):
            assert state is not None
            self.spark_log.wind_back(checkpoint, to_spark(resumed(state)))
        planned, committed = self.spark_log.newest()
        self._executed = self.spark_log.watermark(committed) if committed >= 0 else 0
        self._job = JobWatermarks(self._strategies, state)
        if state is not None and state.get("watermark") == MAX and not ended(state):
            self._job.end()  # its last windows are still to be fired
        else:
            self._job.raise_to(from_spark(self.spark_log.watermark(planned) if planned >= 0 else 0))
        known = self.spark_log.watermark(planned) if planned >= 0 else 0
        self.published = known if self.clocked else max(known, to_spark(self.watermark))
        self._measured = None

    # --- a batch --------------------------------------------------------------------------------------------------------

    def in_force(self, batch: int) -> int:
        """Return the watermark in use in a planned batch: rows are judged by the one of the batch before, windows close by this."""
        assert self.spark_log is not None
        return from_spark(self.spark_log.watermark(batch))

    def told(self, batch: int, decided: JSON | None = None) -> JSON:
        """Return what the tasks of a batch are told: the watermark in use, that of the batch before, and for steps of ours the clock, in ms.

        Args:
            batch: its number.
            decided: the watermarks in its decision, where there is one: the clock was read then.
        """
        if not self.active or self.spark_log is None:
            return {}
        before = from_spark(self.spark_log.watermark_before(batch))
        found = {"watermark": self.in_force(batch), "watermark_before": before}
        if not self.hosted:
            return found
        self._told_clock = (decided or {}).get("clock", self.clock.now_ms())
        return {**found, "clock": self._told_clock}

    def wanted(self, batch: int) -> bool:
        """Return whether a batch is to be run although it reads nothing: for the watermark in use in it, or for a later one."""
        if not self.active or self.spark_log is None:
            return False
        planned = self.spark_log.watermark(batch)
        return planned > self._executed or self.published > planned

    def measure(
        self,
        batch: int,
        counted: Mapping[str, str],
        ranges: Mapping[str, SourceRange],
        split_names: Mapping[str, Sequence[str]],
        has_ended: Callable[[str], bool],
    ) -> JSON | None:
        """Take what a batch read; return the watermarks behind it for the decision, the same if asked again.

        Args:
            batch: its number.
            counted: what Spark counted, as JSON, by the name of the count.
            ranges: per use of a source that Spark reads, what the batch read.
            split_names: per use of another, the name of each slot of its splits.
            has_ended: whether nothing more can come from a use of a source after this batch.
        """
        if not self.active:
            return None
        if self._measured is None or self._measured[0] != batch:
            for channel in self.channels:
                channel.check(counted)
            self._job.raise_to(self.in_force(batch))
            seen = {c.name: self._seen(c, counted, ranges, split_names, has_ended) for c in self.channels}
            if all(each.ended for each in seen.values()) and not all(has_ended(use) for use in self.untimed):
                seen = {name: replace(each, ended=False) for name, each in seen.items()}
            self._job.checkpoint(seen, self.clock.now_ms())
            if self.in_force(batch) == MAX:
                self._job.end()
            found = {**self._job.to_json(), "in_force": _shown(self.in_force(batch))}
            self._measured = batch, {**found, "clock": self._told_clock} if self.hosted else found
        return self._measured[1]

    def _seen(
        self,
        channel: TimeChannel,
        counted: Mapping[str, str],
        ranges: Mapping[str, SourceRange],
        split_names: Mapping[str, Sequence[str]],
        has_ended: Callable[[str], bool],
    ) -> SourceSeen:
        rows = channel.seen(counted, split_names)
        over = bool(channel.uses) and all(has_ended(use) for use in channel.uses)
        if channel.splits is not None:
            return SourceSeen(rows, None, over)
        if channel.partitions is None:
            return SourceSeen(rows, [UNKNOWN], over)
        there = {f"{t}-{p}" for use in channel.uses if use in ranges for t, p in partitions_of(ranges[use].end)}
        return SourceSeen(rows, sorted(there), over)

    def carried(self, batch: int, state: JSON | None, *, idle: bool = False) -> None:
        """Be told that a batch is decided and carried out, with the watermarks in its decision; tell Spark of them.

        `idle`: it had nothing to read. A watermark of the clock would have batches follow each other for ever then.
        """
        if not self.active or self.spark_log is None:
            return
        self._executed = self.spark_log.watermark(batch)
        self.over = False
        if state is not None:
            value = state.get("watermark")
            self._job.raise_to(MIN if value is None else int(value))
        if not (idle and self.clocked and not self.at_end):
            self.tell()

    def tell(self) -> None:
        """Tell Spark the watermark; once more where it may have forgotten it, as a query that was just started has."""
        if not self.channels and not self.at_end:
            return
        self.published = max(self.published, to_spark(self.watermark))
        self.publish(self.published)

    # --- between batches ------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let time pass without rows, and tell Spark what comes of it."""
        if self.active and not self.at_end:
            self._job.tick(self.clock.now_ms())
            if to_spark(self.watermark) > self.published:
                self.tell()

    def end(self) -> None:
        """Take the end of all input, and tell Spark."""
        if self.active and not self.at_end:
            self._job.end()
            self.tell()

    @property
    def at_end(self) -> bool:
        """Whether the watermark is the last one."""
        return self._job.ended

    @property
    def fired(self) -> bool:
        """Whether a batch was carried through with the last watermark, so that no window is open."""
        return self._executed >= END_MS

    @property
    def pending(self) -> bool:
        """Whether a batch is still to be run with the newest watermark."""
        return self.active and self.published > self._executed

    def held(self, ranges: Mapping[str, SourceRange]) -> dict[str, SourceRange]:
        """Return ranges of split-planned sources without those that have to wait: for their alignment group, or for ever."""
        waiting = {p.source for p in self._job.paused if p.partition is None}
        uses = {use for c in self.channels if c.name in waiting for use in c.uses}
        return {
            name: SourceRange(span.start, span.start) if self.at_end or name in uses else span
            for name, span in ranges.items()
        }

    def lacks(self, ranges: Mapping[str, SourceRange]) -> bool:
        """Return whether a range has a partition whose event time the query does not tell apart."""
        return any(
            channel.lacks(partitions_of(ranges[use].end))
            for channel in self.channels
            for use in channel.uses
            if use in ranges and not isinstance(self.sources.get(use), SplitSource)
        )


def ended(state: JSON | None) -> bool:
    """Return whether a checkpoint's watermarks say that its input is at its end and every window is fired."""
    return state is not None and state.get("watermark") == MAX and state.get("in_force") == MAX


def partitions_of(position: Any) -> list[tuple[str, int]]:
    """Return the (topic, partition) of a position of Kafka's, none for another's."""
    if not isinstance(position, Mapping):
        return []
    return sorted(
        (str(topic), int(number))
        for topic, numbers in position.items()
        if isinstance(numbers, Mapping)
        for number in numbers
        if str(number).isdigit()
    )


def _shown(watermark: int) -> int | None:
    return None if watermark == MIN else watermark
