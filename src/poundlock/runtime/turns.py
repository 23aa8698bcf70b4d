"""When a batch of Spark's begins, and whether there is a reason to run it: Spark's own trigger knows neither of what the driver plans."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from poundlock.checkpoint.decision import SourceRange
from poundlock.plan.plan import Plan
from poundlock.runtime.delivery import Delivery, idle, waiting
from poundlock.runtime.ends import Ends
from poundlock.runtime.job_time import JobTime
from poundlock.runtime.serving import Serving
from poundlock.runtime.time_keeping import TimeKeeper
from poundlock.values import Clock

__all__ = ["Turns"]

POLL_S = 0.05
_ASK_S = 0.25  # how often a source that Spark reads is asked what waits in it, while nothing does
_LOOK_S = 1.0  # after so long Spark is to look again in sources that cannot say what waits


@dataclass
class Turns:
    """The turns of the batches of one life of a query. Called by the query's thread, `has_reason` under the coordinator's lock.

    Args:
        plan: what runs.
        sources: by name of each use, as this start of the job reads them.
        interval: time between checkpoints.
        min_pause: time between the end of a checkpoint and the beginning of the next, at least.
        clock: what timers go by.
        time: the job's event time.
        keeper: moves it on.
        ends: knows whether the newest batch had anything to read.
        serving: wakes who waits.
        ticks: whether Spark begins a batch at each trigger, data or not.
        read: what a batch reads, with these ranges of split-planned sources.
    """

    plan: Plan
    sources: Mapping[str, Any]
    interval: timedelta
    min_pause: timedelta
    clock: Clock
    time: JobTime
    keeper: TimeKeeper
    ends: Ends
    serving: Serving
    ticks: Callable[[], bool]
    read: Callable[[int, Mapping[str, SourceRange]], Delivery]
    next_timer: int | None = field(default=-1, init=False)
    """When the next timer of a step of ours is due, ms by the clock; None = there is none, -1 = nobody knows."""
    _began: float | None = field(default=None, init=False)
    _done: float | None = field(default=None, init=False)
    _held: tuple[int, float] = field(default=(-1, 0.0), init=False)

    def carried(self, began: float, *, replayed: bool) -> None:
        """Be told of a checkpoint that has just ended, and when it began; no time is kept behind one that was decided before."""
        self._began, self._done = (None, None) if replayed else (began, time.monotonic())

    def wait(self) -> None:
        """Keep the interval where Spark does not, and the pause: neither must lie between the old batches of a log that was set back."""
        until = []
        if self.plan.only_split and not self.plan.bounded and self._began is not None:
            until.append(self._began + self.interval.total_seconds())
        if self.min_pause and self._done is not None:
            until.append(self._done + self.min_pause.total_seconds())
        if until:
            self.serving.pause(max(0.0, max(until) - time.monotonic()))

    def wait_for_data(self) -> None:
        """Wait before a batch without a reason is looked at again."""
        least = POLL_S if self.plan.only_split else _ASK_S
        self.serving.pause(max(self.interval.total_seconds(), least))

    def has_reason(self, batch: int, split: Mapping[str, SourceRange], served: bool) -> bool:
        """Return whether a batch that is not decided is to be run: there is something to read, somebody waits, or time moves on.

        Args:
            batch: its number.
            split: what it would read of the split-planned sources.
            served: whether somebody waits for a checkpoint.
        """
        if self.time.at_end and self.time.fired:
            return False  # behind the end of all input nothing begins
        if not (self.plan.only_split or self.ticks()):
            return True  # Spark begins no batch without data
        if not idle(split) or not (self.plan.stateless or self.ends.was_idle):
            return True
        if not self.plan.only_split:
            delivery = self.read(batch, split)
            if not idle(delivery.spark):
                return True
            lag = self._lag(delivery)
            if lag or (lag is None and (self.plan.bounded or self._held_s(batch) >= _LOOK_S)):
                return True  # what came after Spark planned, the next batch has
        self.keeper.tick()
        return served or (not self.plan.stateless and (self.time.wanted(batch) or self._timer_due()))

    def _lag(self, delivery: Delivery) -> int | None:
        """Return how much waits behind a batch in the Spark sources; None where one does not say."""
        lags = waiting(self.sources, {use: span.end for use, span in delivery.spark.items()})
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    def _held_s(self, batch: int) -> float:
        """Return since when a batch is held, in seconds."""
        now = time.monotonic()
        if self._held[0] != batch:
            self._held = batch, now
        return now - self._held[1]

    def _timer_due(self) -> bool:
        """Return whether a timer of a step of ours waits for the clock; at the start nobody knows."""
        return self.plan.hosted and self.next_timer is not None and self.next_timer <= self.clock.now_ms()
