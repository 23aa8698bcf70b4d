"""Moves event time on while a query reads nothing: partitions fall silent, the clock goes on, the input ends, a job is drained.

Spark runs a batch without data for it by itself, but not before the first with data since the query was started; the query is
started with a pulse then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from poundlock.plan.plan import Plan
from poundlock.runtime.execution import has_run, state_rows
from poundlock.runtime.job_time import JobTime
from poundlock.runtime.tracker import Tracker

__all__ = ["TimeKeeper"]

_TICK_S = 0.2  # how often Flink's generators are asked
_LOOKED_S = 1.0  # what Spark may take from its trigger to the begin of a batch


@dataclass
class TimeKeeper:
    """Sees to it that event time moves on. Its user holds the coordinator's lock.

    Args:
        time: the event time of the job.
        plan: the job's.
        interval: time between checkpoints.
        tracker: told of every move.
        spark: Spark's StreamingQuery, as it was started last.
        ticks: whether Spark begins a batch at each trigger anyway.
        idle: whether Spark has looked for data several times in a row and found none.
    """

    time: JobTime
    plan: Plan
    interval: timedelta
    tracker: Tracker
    spark: Callable[[], Any]
    ticks: Callable[[], bool]
    idle: Callable[[], bool]
    pulsing: bool = False
    """Whether the query is to have a pulse."""
    _looked: float = 0.0
    _ticked: float = 0.0

    @property
    def fires(self) -> bool:
        """Whether windows may be open that the end of event time closes."""
        return self.time.active and not self.plan.stateless

    def look(self) -> None:
        """Note that there was a chance to find data: the query was started, or a batch is done."""
        self._looked = time.monotonic()

    def show(self) -> None:
        """Tell the watcher the watermark, and who holds it back."""
        if self.time.active:
            self.tracker.event_time(self.time.watermark, self.time.held_by)

    def tick(self) -> None:
        """Let time pass without rows, if some has passed."""
        if time.monotonic() - self._ticked < _TICK_S:
            return
        self._ticked = time.monotonic()
        if self.time.clocked and state_rows(self.spark()) == 0:
            return  # the clock would have batches run for ever, and there is nothing to close
        self.time.tick()
        self.show()

    def move_on(self) -> None:
        """Move event time on where Spark had a chance to find data and has not."""
        if self.pulsing:
            self.pulsing = self.time.pending
        elif not self.ticks() and time.monotonic() - self._looked > self.interval.total_seconds() + _LOOKED_S:
            self.tick()
            self._have_it_run()

    def is_up(self) -> bool:
        """Have event time end, and return whether all windows are fired."""
        if self.time.over:
            return True  # nothing was read since they were
        self.time.end()
        if not self.time.at_end or not self.time.pending:
            return True  # processing time does not end
        self._have_it_run()
        # A function of DataFrames need not keep any state: then Spark has nothing to run a batch for.
        return not self.plan.windowed and not self.ticks() and self.idle()

    def _have_it_run(self) -> None:
        if self.time.pending:
            self.time.tell()
            self.pulsing = not self.ticks() and self.plan.windowed and not has_run(self.spark())
