"""One life of the query: from `start()` until it ends. Its callback is the checkpoint; between two callbacks the driver may roll.

Whoever holds the coordinator's lock is the only one who decides; a stop takes the lock first, so it never meets a
checkpoint half way.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.outcome import Directive, Outcome, TaskResults
from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.base import SourceReading, SplitSource
from poundlock.errors import PoundlockError, TransientError
from poundlock.plan.lower import Lowered
from poundlock.plan.plan import Plan
from poundlock.plan.stage import PROPERTY
from poundlock.plan.uses import source_of
from poundlock.runtime.delivery import Delivery, idle
from poundlock.runtime.execution import event_times, observed_rows, state_bytes
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.progress import StopRequest
from poundlock.runtime.requests import Requests, Trigger
from poundlock.runtime.results import Gathered
from poundlock.runtime.serving import Serving
from poundlock.runtime.tracker import Tracker
from poundlock.savepoint.metadata import Metadata
from poundlock.savepoint.take import Cut, finish
from poundlock.values import Clock

__all__ = ["Query", "QueryStopped", "Saved", "files_made"]

T = TypeVar("T")

_POLL_S = 0.05
_TELL_S = 1.0
_QUIET_POLLS = 10
_COMMIT_LOG_S = 10.0
_BORDER_S = 60.0


class QueryStopped(Exception):
    """Raised in the callback of a checkpoint that must not begin because the job is stopping."""


class _NotDrained(Exception):
    """Raised when pending files could not be finished before a savepoint; holds why."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Saved:
    """The savepoint with which a job ends.

    Args:
        trigger: who asked for it; completed when the job has ended.
        path: its folder.
        metadata: what it says.
    """

    trigger: Trigger
    path: str
    metadata: Metadata


def _not_saved(error: Exception) -> PoundlockError:
    if isinstance(error, PoundlockError):
        return error
    what = f"the savepoint could not be written: {error or type(error).__name__}"
    return TransientError(what, next="free the disk or give another folder; the job goes on")


def _no_savepoint() -> Cut:
    raise PoundlockError("this query takes no savepoints", next="report this")


@dataclass
class Query:
    """A started query with its coordinator.

    Args:
        plan, lowered: what runs.
        sources: by name, as this start of the job reads them.
        spark_log: Spark's logs of this job.
        checkpoint_path: Spark's checkpoint folder, as Spark wants it.
        coordinator: has recovered already.
        tracker: told of every checkpoint.
        planner: plans the split-planned sources.
        interval: time between checkpoints.
        clock: what rolls go by.
        save: copies what a savepoint is made of into a directory; called at a checkpoint's border.
        on_checkpoint: called after each completed checkpoint.
        requests: what others ask of the job.
    """

    plan: Plan
    lowered: Lowered
    sources: Mapping[str, Any]
    spark_log: SparkLog
    checkpoint_path: str
    coordinator: Coordinator
    tracker: Tracker
    planner: SplitPlanner
    interval: timedelta
    clock: Clock
    save: Callable[[str | None], Cut] = lambda directory: _no_savepoint()
    on_checkpoint: Callable[[], None] = lambda: None
    requests: Requests = field(default_factory=Requests)
    error: BaseException | None = None
    _query: Any = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _newest: int = -1
    _began: float | None = None  # when the last checkpoint began, by the monotonic clock; None after one decided before
    _told: float = 0.0
    _quiet: int = 0
    _was_idle: bool = False
    _saved: Saved | None = None
    _serving: Serving = field(init=False)

    def __post_init__(self) -> None:
        self._serving = Serving(self.requests, self._stopping)

    def start(self) -> None:
        """Start the query; returns at once."""
        writer = self.lowered.frame.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", self.checkpoint_path).queryName(self.plan.job.name)
        seconds = 0.0 if self.plan.bounded or self.plan.only_split else self.interval.total_seconds()
        self._query = writer.trigger(processingTime=f"{int(seconds * 1000)} milliseconds").start()

    @property
    def session(self) -> Any:
        """The Spark session it runs in."""
        return self.lowered.frame.sparkSession

    @property
    def _fused(self) -> Sequence[str]:
        return [branch.head.id for branch in self.plan.branches if branch.placement == "fused"]

    def wait(self, stop: StopRequest) -> Occasion | Saved | None:
        """Wait until the query ends. Returns END after a clean stop or the end of input, None after a cancel.

        And the savepoint with which it was asked to end, where it was.

        Raises:
            Exception: what the query failed with.
        """
        while True:
            if stop.canceling:
                return None
            if stop.stopping or self._input_ended():
                return Occasion.END if self._stop(stop) else None
            if not self._query.isActive:
                self._raise()
            self._roll_if_due()
            self._serve()
            if self._saved is not None:
                self._stop(stop)
                return self._saved
            self._tell()
            stop.wait(_POLL_S)

    def _stop(self, request: StopRequest) -> bool:
        """Let the running checkpoint finish, keep the next from beginning, then end the query; False if canceled meanwhile."""
        while not self.coordinator.lock.acquire(timeout=_POLL_S):
            if request.canceling:
                return False
        self._end_turns()
        self.coordinator.lock.release()
        deadline = time.monotonic() + _COMMIT_LOG_S
        # Spark writes commits/n after the callback; stopping before that is safe but makes the next start deliver n again.
        while self._newest >= 0 and time.monotonic() < deadline and not self.spark_log.committed(self._newest):
            if request.canceling or not self._query.isActive:
                break
            time.sleep(_POLL_S)
        self._query.stop()
        if self.error is not None:
            raise self.error
        return not request.canceling

    def kill(self) -> None:
        """End the query without waiting for anything; what it was doing is done again by the next one."""
        self._end_turns()
        self._serving.give_back()
        with suppress(Exception):  # it failed or its JVM is gone: both are an end
            self._query.stop()

    def _end_turns(self) -> None:
        """Keep checkpoints from beginning."""
        self._stopping.set()
        self._serving.wake()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error
        exception = self._query.exception()
        raise exception if exception is not None else RuntimeError("the query ended by itself")

    # --- a checkpoint ------------------------------------------------------------------------------------------------

    def _on_batch(self, frame: Any, batch: int) -> None:
        try:
            self._await_turn()
            while not self._take(frame, batch):
                self._serving.pause(max(self.interval.total_seconds(), _POLL_S))
        except QueryStopped:
            raise
        except BaseException as error:
            self.error = error
            raise

    def _await_turn(self) -> None:
        """Keep the interval where Spark does not: it must not lie between the old batches of a log that was set back."""
        if self.plan.only_split and not self.plan.bounded and self._began is not None:
            self._serving.pause(max(0.0, self._began + self.interval.total_seconds() - time.monotonic()))

    def _take(self, frame: Any, batch: int) -> bool:
        """Carry a batch through, or return False: the driver plans all there is to read, and there is nothing yet."""
        with self.coordinator.lock:
            if self._stopping.is_set():
                raise QueryStopped
            served = self._serving.begin()
            decided = self.coordinator.decided(batch)
            split = self.planner.ranges() if decided is None else decided
            quiet = self.plan.only_split and idle(split) and (self.plan.stateless or self._was_idle)
            if decided is None and quiet and not served:
                return False
            delivery = Delivery.read(batch, self.spark_log, self.sources, split)
            self._note_quiet(delivery)
            self._checkpoint(frame, batch, delivery)
            if decided is None:
                self._serving.done(served, batch)
            return True

    def _checkpoint(self, frame: Any, batch: int, delivery: Delivery) -> None:
        began = time.monotonic()
        delivery.identify(self.sources, self.coordinator.sources)
        gathered: list[Gathered] = []

        def run(directive: Directive) -> TaskResults:
            found = Gathered()
            gathered.append(found)
            # Where Spark keeps state, every batch must run: the next one begins with what this one leaves.
            if not self.plan.stateless or not (directive["decided"] or delivery.idle):
                self._collect(frame, directive, delivery, found)
            delivery.identify(self.sources, self.coordinator.sources)  # what was read still is what was to be read
            return found.results(self.plan.shared)

        outcome = self.coordinator.checkpoint(batch, delivery.ranges, run)
        self._newest = batch
        self._began = None if outcome.replayed else began
        counts = {} if outcome.replayed else {name: sink.counts for name, sink in outcome.decision.sinks.items()}
        took = int((time.monotonic() - began) * 1000)
        self.tracker.checkpoint(batch, sum(gathered[0].read.values()), counts, files_made(outcome), took)
        for name, span in delivery.spark.items():
            self.sources[name].committed(span.end)
        self.planner.committed()
        self.on_checkpoint()

    def _collect(self, frame: Any, directive: Directive, delivery: Delivery, found: Gathered) -> None:
        directive = {**directive, "splits": delivery.splits(self.planner)}
        frame.sparkSession.sparkContext.setLocalProperty(PROPERTY, json.dumps(directive, separators=(",", ":")))
        found.add(row[0] for row in frame.collect())
        found.tasks = delivery.tasks
        if not directive["decided"]:
            found.check_splits({head: delivery.given.get(head, 0) for head in self._fused})
        if any(self.lowered.observed.values()):
            execution = self._query._jsq.streamingQuery().lastExecution()
            late: Mapping[str, int] = {}
            if self.plan.timed and not directive["decided"]:
                late, found.event_time = event_times(execution, self.lowered.observed)
            found.count_before_stage(self.lowered, observed_rows(execution), late)

    def at_border(self, act: Callable[[], T]) -> T:
        """Run something while no checkpoint runs, when the newest is decided, carried out, and in Spark's log.

        Raises:
            TransientError: Spark did not write its log in time.
        """
        deadline = time.monotonic() + _BORDER_S
        while True:
            with self.coordinator.lock:
                # Spark writes its log after the callback and needs no lock for that; with the next one it waits for ours.
                # A checkpoint that it delivers again needs the lock first, so it is let go of in between.
                until = time.monotonic() + 1
                while not self._settled() and time.monotonic() < until:
                    time.sleep(_POLL_S / 5)
                if self._settled():
                    return act()
            if time.monotonic() > deadline or not self._query.isActive:
                raise TransientError(
                    f"Spark has not finished checkpoint {self.coordinator.newest.checkpoint}",
                    next="try again when the job goes on",
                )
            time.sleep(_POLL_S)

    def _settled(self) -> bool:
        newest = self.coordinator.newest.checkpoint
        return newest < 0 or self.spark_log.committed(newest)

    # --- what is asked for -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Take what was asked for, and see to it that a checkpoint somebody waits for begins."""
        while (trigger := self._serving.take()) is not None:
            if trigger.kind == "savepoint":
                self._take_savepoint(trigger)
            else:
                self._serving.checkpoint_wanted(trigger)
        if self._serving.asked and not self.plan.only_split and not self.plan.bounded:
            self._nudge()

    def _take_savepoint(self, trigger: Trigger) -> None:
        """Take a savepoint at a checkpoint border."""
        try:
            made = self.at_border(lambda: self._cut(trigger))
            metadata = finish(made)
        except _NotDrained as failure:  # half a decision may be carried out: that is for a recovery
            trigger.fail(_not_saved(failure.error))
            raise failure.error from None
        except Exception as error:  # whatever it is, the job is none the worse for it
            trigger.fail(_not_saved(error))
            return
        if trigger.then == "go on":
            trigger.complete(made.savepoint.root)
        else:
            self._saved = Saved(trigger, made.savepoint.root, metadata)

    def _cut(self, trigger: Trigger) -> Cut:
        if trigger.drain:
            self._drain()
        made = self.save(trigger.directory)
        if trigger.then != "go on":
            self._end_turns()  # what came after the cut would be lost to who goes on from it
        return made

    def _drain(self) -> None:
        try:
            outcome = self.coordinator.roll(Occasion.END)
        except Exception as error:
            raise _NotDrained(error) from error
        if outcome is not None:
            self.tracker.rolled(files_made(outcome))

    def _nudge(self) -> None:
        """Make Spark look for data now: it keeps the interval by itself and cannot be told, but a query that starts looks at once."""
        status = self._query.status
        if status["isTriggerActive"] or "Initializing" in status["message"] or not self._query.isActive:
            return  # a checkpoint is under way or about to be, or Spark is looking right now
        if not self.coordinator.lock.acquire(blocking=False):
            return
        try:
            waiting = self._serving.begin()
            if self._serving.nudged:
                # It has looked, and began no batch: whatever was there is part of the newest checkpoint.
                self._serving.done(waiting, self.coordinator.newest.checkpoint)
                return
            self._stopping.set()  # a callback that comes in all the same begins nothing
        finally:
            self.coordinator.lock.release()
        self._query.stop()
        self._stopping.clear()
        self.start()
        self._serving.nudged = True

    # --- between checkpoints -----------------------------------------------------------------------------------------

    def _roll_if_due(self) -> None:
        if not self.coordinator.lock.acquire(blocking=False):
            return  # the checkpoint that holds it rolls what is due
        try:
            due = self.coordinator.next_roll_ms()
            if due is None or due > self.clock.now_ms():
                return
            outcome = self.coordinator.roll(Occasion.ROLL)
        finally:
            self.coordinator.lock.release()
        if outcome is not None:
            self.tracker.rolled(files_made(outcome))

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told < _TELL_S:
            return
        self._told = now
        decided = self.coordinator.sources
        lags = [
            source.lag(decided[name].end)
            for name, source in self.sources.items()
            if not isinstance(source, SplitSource) and name in decided
        ]
        known = [lag for lag in lags if lag is not None]
        state = None if self.plan.stateless else state_bytes(self._query._jsq)
        self.tracker.lag(sum(known) if known else None, state)

    def _input_ended(self) -> bool:
        if not self.plan.bounded:
            return False
        if not self.coordinator.lock.acquire(blocking=False):
            return False
        try:
            return all(self._ended(name, source) for name, source in self.sources.items())
        finally:
            self.coordinator.lock.release()

    def _ended(self, name: str, source: Any) -> bool:
        if isinstance(source, SplitSource):
            # What Spark still holds for a later time, it gives in the batch after the last with data.
            settled = self.plan.stateless or self._was_idle
            return settled and self.planner.finished(source_of(name))
        if isinstance(source, SourceReading):
            return source.finished(found.end if (found := self.coordinator.sources.get(name)) is not None else None)
        return self._idle()

    def _note_quiet(self, delivery: Delivery) -> None:
        """Count the batches in a row in which no Spark source had anything; a ticker makes Spark deliver those too."""
        self._was_idle = delivery.idle
        self._quiet = self._quiet + 1 if idle(delivery.spark) else 0

    def _idle(self) -> bool:
        """Return whether Spark has looked for data several times in a row and found none: all a source it knows can say."""
        if self.planner.names:
            return self._quiet >= _QUIET_POLLS
        status = self._query.status
        waiting = (
            not status["isDataAvailable"] and not status["isTriggerActive"] and "Initializing" not in status["message"]
        )
        self._quiet = self._quiet + 1 if waiting else 0
        return self._quiet >= _QUIET_POLLS


def files_made(outcome: Outcome) -> int:
    """Return how many files a decision made visible."""
    return sum("path" in detail for details in outcome.committed.values() for detail in details)
