"""What a query does between its checkpoints: rolls files that fall due, copies checkpoints, sweeps, tells how much waits.

Nothing here waits for the coordinator's lock: a checkpoint that holds it does what is due itself, or it is done a moment later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.participant import Occasion
from poundlock.runtime.delivery import waiting
from poundlock.runtime.retained import Retained
from poundlock.runtime.savepoints import Border
from poundlock.runtime.tracker import Tracker
from poundlock.spark.executors import Watch
from poundlock.values import Clock

__all__ = ["Upkeep"]

_TELL_S = 1.0


@dataclass
class Upkeep:
    """Looks after a query between its checkpoints.

    Args:
        coordinator: who decides.
        sources: by name of each use, as this start of the job reads them.
        clock: what rolls go by.
        tracker: told of files that became visible, and of how much waits.
        border: knows whether Spark would deliver the newest checkpoint again.
        retained: keeps copies of the newest checkpoints; None = there are none.
        watch: looks after the cluster that the tasks run on; None = they run here.
        state_bytes: gives how much memory Spark's state takes; None = it has none.
    """

    coordinator: Coordinator
    sources: Mapping[str, Any]
    clock: Clock
    tracker: Tracker
    border: Border
    retained: Retained | None
    watch: Watch | None
    state_bytes: Callable[[], int | None]
    _told_at: float = field(default=0.0, init=False)

    @contextmanager
    def _between(self) -> Iterator[bool]:
        """Say whether no checkpoint runs now, and keep the next from beginning meanwhile."""
        held = self.coordinator.lock.acquire(blocking=False)
        try:
            yield held
        finally:
            if held:
                self.coordinator.lock.release()

    def sweep_if_due(self) -> None:
        """Remove what attempts on executors that are gone have left, and those that lost a race: no other task writes now."""
        if self.watch is None:
            return
        with self._between() as between:
            if between and self.watch.leaves_leftovers:
                self.coordinator.sweep()

    def roll_if_due(self) -> None:
        """Let what falls due by the clock become visible."""
        with self._between() as between:
            if not between:
                return  # the checkpoint that runs rolls what is due
            due = self.coordinator.next_roll_ms()
            if due is None or due > self.clock.now_ms():
                return
            outcome = self.coordinator.roll(Occasion.ROLL)
        if outcome is not None:
            self.tracker.rolled(outcome.files_made)

    def retain(self, *, finish: bool = False) -> None:
        """Copy the newest checkpoint where copies are kept: the next begins only when that is done."""
        if self.retained is None:
            return
        with self._between() as between:
            newest = self.coordinator.newest.checkpoint if between else -1
            if (
                between
                and self.retained.due(newest)
                and self.border.settled
                and not self.coordinator.is_produced_again(newest)
            ):
                self.retained.cut(newest)
        if finish:
            self.retained.finish()

    def tell(self) -> None:
        """Tell how much waits, once a second."""
        now = time.monotonic()
        if now - self._told_at < _TELL_S:
            return
        self._told_at = now
        decided = self.coordinator.sources
        lags = waiting(self.sources, {name: decided[name].end for name in decided if name in self.sources})
        known = [lag for lag in lags if lag is not None]
        self.tracker.lag(sum(known) if known else None, self.state_bytes())
