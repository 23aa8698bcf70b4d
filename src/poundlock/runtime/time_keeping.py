"""Moves event time on while a query reads nothing: partitions fall silent, the clock goes on, the input ends, a job is drained."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poundlock.plan.plan import Plan
from poundlock.runtime.execution import state_rows
from poundlock.runtime.job_time import JobTime
from poundlock.runtime.tracker import Tracker

__all__ = ["TimeKeeper"]

_TICK_S = 0.2  # how often Flink's generators are asked


@dataclass
class TimeKeeper:
    """Sees to it that event time moves on. Its user holds the coordinator's lock.

    Args:
        time: the event time of the job.
        plan: the job's.
        tracker: told of every move.
        spark: Spark's StreamingQuery, as it was started last.
    """

    time: JobTime
    plan: Plan
    tracker: Tracker
    spark: Callable[[], Any]
    _ticked: float = 0.0

    @property
    def fires(self) -> bool:
        """Whether windows may be open that the end of event time closes."""
        return self.time.active and not self.plan.stateless

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

    def is_up(self) -> bool:
        """Have event time end, and return whether all windows are fired."""
        if self.time.over:
            return True  # nothing was read since they were
        self.time.end()
        if not self.time.at_end or not self.time.pending:
            return True  # processing time does not end
        self.time.tell()
        return False
