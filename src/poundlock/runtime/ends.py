"""Whether the input of a query has come to its end: asked of the sources where they know, and of Spark where nobody does.

What was read is what the ledger says was decided, so an answer holds after a crash as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.connectors.base import SourceReading, SplitSource
from poundlock.plan.plan import Plan
from poundlock.plan.uses import source_of
from poundlock.runtime.delivery import Delivery, idle
from poundlock.runtime.planner import SplitPlanner

__all__ = ["Ends"]

_QUIET_POLLS = 10
_QUIET_BATCHES = 2  # for each of them Spark has asked its sources


class Ends:
    """Knows where the input of one life of the query ends.

    Args:
        plan: what runs.
        sources: by name of each use, as this start of the job reads them.
        planner: plans the split-planned sources.
        coordinator: knows what was decided.
        status: gives the status of Spark's query.
        ticks: whether Spark begins a batch at each trigger, data or not.
    """

    def __init__(
        self,
        plan: Plan,
        sources: Mapping[str, Any],
        planner: SplitPlanner,
        coordinator: Coordinator,
        status: Callable[[], Mapping[str, Any]],
        ticks: Callable[[], bool],
    ) -> None:
        self._plan, self._sources, self._planner = plan, sources, planner
        self._coordinator, self._status, self._ticks = coordinator, status, ticks
        self._quiet = 0
        self.was_idle = False
        """Whether there was nothing to read in the newest batch."""

    def note(self, delivery: Delivery) -> None:
        """Count the batches in a row in which no Spark source had anything; a ticker makes Spark deliver those too."""
        self.was_idle = delivery.idle
        self._quiet = self._quiet + 1 if idle(delivery.spark) else 0

    def reached(self) -> bool:
        """Return whether all input of a bounded job was read, and what Spark held for a later time was given."""
        if not self._coordinator.lock.acquire(blocking=False):
            return False
        try:
            return all(self._of(name, source) for name, source in self._sources.items())
        finally:
            self._coordinator.lock.release()

    def more_comes(self) -> bool:
        """Return whether there is a source that has not come to its end, as far as one can be asked. The caller holds the lock."""
        for name, source in self._sources.items():
            if isinstance(source, SplitSource):
                if not self._planner.finished(source_of(name)):
                    return True
            elif isinstance(source, SourceReading):
                if not self._of(name, source):
                    return True
            elif not self._plan.bounded:
                return True
        return False

    def comes_with(self, use: str, delivery: Delivery) -> bool:
        """Return whether nothing comes from a use of a source after a batch; of one nobody can ask it is found out later."""
        name, source = source_of(use), self._sources[use]
        if isinstance(source, SplitSource):
            return name in delivery.split and self._planner.ends_at(name, delivery.split[name].end)
        if isinstance(source, SourceReading) and use in delivery.spark:
            return source.finished(delivery.spark[use].end)
        return False

    def spark_is_idle(self) -> bool:
        """Return whether Spark has looked for data several times in a row and found none: all a source it knows can say."""
        if self._ticks():
            return self._quiet >= _QUIET_BATCHES
        status = self._status()
        waiting = (
            not status["isDataAvailable"] and not status["isTriggerActive"] and "Initializing" not in status["message"]
        )
        self._quiet = self._quiet + 1 if waiting else 0
        return self._quiet >= _QUIET_POLLS

    def _of(self, name: str, source: Any) -> bool:
        if isinstance(source, SplitSource):
            # What Spark still holds for a later time, it gives in the batch after the last with data.
            settled = self._plan.stateless or self.was_idle
            return settled and self._planner.finished(source_of(name))
        if isinstance(source, SourceReading):
            found = self._coordinator.sources.get(name)
            return source.finished(None if found is None else found.end)
        return self._plan.bounded and self.spark_is_idle()
