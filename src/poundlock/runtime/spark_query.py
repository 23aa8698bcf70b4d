"""Spark's streaming query of a job: started, stopped, and made anew where a source has got partitions it has no place for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

from poundlock.plan.lowered import Lowered
from poundlock.plan.uses import source_of
from poundlock.runtime.delivery import Delivery
from poundlock.runtime.job_time import partitions_of

__all__ = ["Partitions", "SparkQuery"]

Partitions = Mapping[str, Collection[tuple[str, int]]]


class SparkQuery:
    """The query as Spark runs it.

    Args:
        lowered: what it is.
        lower: makes it anew, with these partitions of sources besides those known at the start.
        name: of the job.
        path: Spark's checkpoint folder, as Spark wants it.
        interval: time between batches that Spark itself keeps.
        on_batch: Spark's callback.
    """

    def __init__(
        self,
        lowered: Lowered,
        lower: Callable[[Partitions], Lowered] | None,
        *,
        name: str,
        path: str,
        interval: timedelta,
        on_batch: Callable[[Any, int], None],
    ) -> None:
        self.lowered = lowered
        self._lower, self._name, self._path, self._on_batch = lower, name, path, on_batch
        self._interval = interval
        self._started: Any = None
        self._added: dict[str, set[tuple[str, int]]] = {}
        self._lowered_with = 0

    def start(self) -> None:
        """Start it; returns at once."""
        writer = self.lowered.frame.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", self._path).queryName(self._name)
        milliseconds = int(self._interval.total_seconds() * 1000)
        self._started = writer.trigger(processingTime=f"{milliseconds} milliseconds").start()

    def stop(self) -> None:
        """Stop it. What it was doing is done again by the next one."""
        self._started.stop()

    @property
    def session(self) -> Any:
        """The Spark session it runs in."""
        return self.lowered.frame.sparkSession

    @property
    def execution(self) -> Any:
        """Spark's own StreamingQuery, in the JVM."""
        return self._started._jsq

    @property
    def active(self) -> bool:
        """Whether it runs."""
        return bool(self._started.isActive)

    @property
    def hangs(self) -> bool:
        """Whether it goes on although it was ended."""
        try:
            return bool(self._started is not None and self._started.isActive)
        except Exception:
            return False  # its JVM is gone

    @property
    def status(self) -> Mapping[str, Any]:
        """What it does now, as Spark says."""
        status: Mapping[str, Any] = self._started.status
        return status

    @property
    def waits(self) -> bool:
        """Whether it runs, and no batch is under way or about to be, nor does it look for data right now."""
        status = self.status
        return not (status["isTriggerActive"] or "Initializing" in status["message"]) and self.active

    @property
    def failure(self) -> BaseException:
        """What it ended with."""
        exception: BaseException | None = self._started.exception()
        return exception if exception is not None else RuntimeError("the query ended by itself")

    def note_partitions(self, delivery: Delivery) -> None:
        """Note partitions that were added while it ran: it is to be made anew with a place for the event time of each."""
        for use, span in delivery.spark.items():
            self._added.setdefault(source_of(use), set()).update(partitions_of(span.end))

    @property
    def lacks_partitions(self) -> bool:
        """Whether it has to be made anew."""
        return self._wanted != self._lowered_with

    def make_anew(self) -> None:
        """Stop it and make it with all partitions that are known; it is not started."""
        assert self._lower is not None
        self.stop()
        self._lowered_with = self._wanted
        self.lowered = self._lower(self._added)

    @property
    def _wanted(self) -> int:
        """How many partitions it has to be made with besides those known at the start."""
        return sum(len(found) for found in self._added.values())
