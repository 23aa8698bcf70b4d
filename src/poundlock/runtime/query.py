"""One life of the query: from `start()` until it ends. Its callback is the checkpoint; between two callbacks the driver may roll.

Whoever holds the coordinator's lock is the only one who decides; a stop takes the lock first, so it never meets a
checkpoint half way.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.outcome import Directive, Outcome, TaskResults
from poundlock.checkpoint.participant import JSON, Occasion
from poundlock.connectors.base import SplitSource
from poundlock.errors import PoundlockError
from poundlock.operators.watermarks import MIN
from poundlock.plan.lower import Lowered
from poundlock.plan.plan import Plan
from poundlock.plan.stage import PROPERTY
from poundlock.plan.uses import source_of
from poundlock.runtime.attempts import Attempts, known_undecided
from poundlock.runtime.delivery import Delivery, idle
from poundlock.runtime.ends import Ends
from poundlock.runtime.execution import event_times, observed_rows, set_watermark, state_bytes
from poundlock.runtime.executors import Watch
from poundlock.runtime.job_time import JobTime, partitions_of
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.progress import StopRequest
from poundlock.runtime.requests import Requests, Trigger
from poundlock.runtime.results import Gathered
from poundlock.runtime.retained import Retained
from poundlock.runtime.savepoints import Border, NotDrained, Saved, Savepoints
from poundlock.runtime.serving import Serving
from poundlock.runtime.time_keeping import TimeKeeper
from poundlock.runtime.tracker import Tracker
from poundlock.savepoint.take import Cut
from poundlock.values import Clock

__all__ = ["Partitions", "Query", "QueryStopped", "Saved", "files_made"]

_ASK_S = 0.25  # how often a source that Spark reads is asked what waits in it, while nothing does
_LOOK_S = 1.0  # after so long Spark is to look again in sources that cannot say what waits
_POLL_S = 0.05
_TELL_S = 1.0
_COMMIT_LOG_S = 10.0

Partitions = Mapping[str, Collection[tuple[str, int]]]


class QueryStopped(Exception):
    """Raised in the callback of a checkpoint that must not begin because the job is stopping."""


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
        min_pause: time between the end of a checkpoint and the beginning of the next, at least.
        attempts: told of every checkpoint that begins; says when one takes too long.
        retained: keeps copies of the newest checkpoints; None = there are none.
        lower: makes the query anew, with these partitions of sources besides those known at the start.
        watch: looks after the cluster that the tasks run on; None = they run here.
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
    min_pause: timedelta = timedelta(0)
    attempts: Attempts = field(default_factory=Attempts)
    retained: Retained | None = None
    lower: Callable[[Partitions], Lowered] | None = None
    watch: Watch | None = None
    error: BaseException | None = None
    _query: Any = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _newest: int = -1
    _began: float | None = None  # when the last checkpoint began, by the monotonic clock; None after one decided before
    _done: float | None = None  # when it ended
    _told_at: float = 0.0
    _held: tuple[int, float] = (-1, 0.0)
    _next_timer: int | None = -1  # in ms by the clock; None = there is none
    _added: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    _lowered_with: int = 0
    _draining: list[Trigger] = field(default_factory=list)
    _time: JobTime = field(init=False)
    _keeper: TimeKeeper = field(init=False)
    _ends: Ends = field(init=False)
    _serving: Serving = field(init=False)
    _border: Border = field(init=False)
    _savepoints: Savepoints = field(init=False)

    def __post_init__(self) -> None:
        self._serving = Serving(self.requests, self._stopping)
        self._border = Border(self.coordinator, self.spark_log)
        self._ends = Ends(
            self.plan,
            self.sources,
            self.planner,
            self.coordinator,
            lambda: self._query.status,
            lambda: self.lowered.ticks,
        )
        channels = () if self.lowered is None else self.lowered.times
        untimed = () if self.lowered is None else self.lowered.untimed
        self._time = JobTime(
            channels, self.sources, self.spark_log, self._publish, self.clock, self.plan.hosted, untimed
        )
        self._keeper = TimeKeeper(
            self._time,
            self.plan,
            self.tracker,
            spark=lambda: self._query._jsq,
        )
        self._savepoints = Savepoints(
            self._border,
            cut=self._cut,
            hold=self._end_turns,
            go_on=self._start_again,
            say=lambda line: self.tracker.state(self.tracker.progress.state, line),
        )

    def start(self) -> None:
        """Start the query; returns at once."""
        self._time.begin(self.coordinator.watermarks, self.coordinator.newest.checkpoint)
        writer = self.lowered.frame.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", self.checkpoint_path).queryName(self.plan.job.name)
        seconds = 0.0 if self.plan.bounded or self.plan.only_split else self.interval.total_seconds()
        self._query = writer.trigger(processingTime=f"{int(seconds * 1000)} milliseconds").start()

    @property
    def session(self) -> Any:
        """The Spark session it runs in."""
        return self.lowered.frame.sparkSession

    @property
    def hangs(self) -> bool:
        """Whether it goes on although it was ended."""
        try:
            return bool(self._query is not None and self._query.isActive)
        except Exception:
            return False  # its JVM is gone

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
            if self.watch is not None:
                self.watch.check()
            # Once the savepoint with which the job ends is cut, it has all of the job: nothing is decided behind it, and
            # a query whose next checkpoint was turned away has ended as it should.
            ending = self._savepoints.ending
            if stop.stopping or (not ending and self._ends.reached() and self._time_is_up()):
                return Occasion.END if self._stop(stop) else None
            if not ending:
                self._mind_the_time()
                if not self._query.isActive and not self._wants_another:
                    self._raise()
                self.attempts.check()
                self._sweep_if_due()
                self._roll_if_due()
            self._retain(finish=True)
            self._serve()
            if self._draining and self._time_is_up():
                self._savepoints.want(self._draining.pop(0))
            if (saved := self._savepoints.step()) is not None:
                return saved if self._stop(stop) else None
            self._tell()
            stop.wait(_POLL_S)

    def _stop(self, request: StopRequest) -> bool:
        """Let the running checkpoint finish, keep the next from beginning, then end the query; False if canceled meanwhile."""
        while not self.coordinator.lock.acquire(timeout=_POLL_S):
            if request.canceling:
                return False
            if self.watch is not None:
                self.watch.check()
            self.attempts.check()
        self._end_turns()
        self.coordinator.lock.release()
        deadline = time.monotonic() + _COMMIT_LOG_S
        # Spark writes commits/n after the callback; stopping before that is safe but makes the next start deliver n again.
        while self._newest >= 0 and time.monotonic() < deadline and not self.spark_log.committed(self._newest):
            if request.canceling or not self._query.isActive:
                break
            time.sleep(_POLL_S)
        self._retain(finish=True)
        self._query.stop()
        if self.error is not None:
            raise self.error
        self._savepoints.finish(lambda: request.canceling)
        return not request.canceling

    def kill(self) -> None:
        """End the query without waiting for anything; what it was doing is done again by the next one."""
        self._end_turns()
        self._serving.give_back()
        for trigger in reversed(self._draining):
            self.requests.give_back(trigger)
        self._draining.clear()
        self._savepoints.give_back(self.requests)
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
                least = _POLL_S if self.plan.only_split else _ASK_S
                self._serving.pause(max(self.interval.total_seconds(), least))
        except QueryStopped:
            raise
        except BaseException as error:
            self.error = error
            raise

    def _await_turn(self) -> None:
        """Keep the interval where Spark does not, and the pause: neither must lie between the old batches of a log that was set back."""
        until = []
        if self.plan.only_split and not self.plan.bounded and self._began is not None:
            until.append(self._began + self.interval.total_seconds())
        if self.min_pause and self._done is not None:
            until.append(self._done + self.min_pause.total_seconds())
        if until:
            self._serving.pause(max(0.0, max(until) - time.monotonic()))

    def _take(self, frame: Any, batch: int) -> bool:
        """Carry a batch through, or return False: the driver plans all there is to read, and there is nothing yet."""
        with self.coordinator.lock:
            if self._stopping.is_set():
                raise QueryStopped
            self._retain()
            served = self._serving.begin()
            decided = self.coordinator.decided(batch)
            split = self._time.held(self.planner.ranges()) if decided is None else decided
            if decided is None and not self._has_reason(batch, split, bool(served)):
                return False
            delivery = Delivery.read(batch, self.spark_log, self.sources, split)
            if decided is None and self._time.lacks(delivery.spark):
                self._note_partitions(delivery)
                raise QueryStopped
            self._ends.note(delivery)
            self._checkpoint(frame, batch, delivery)
            if decided is None:
                self._serving.done(served, batch)
            return True

    def _has_reason(self, batch: int, split: Mapping[str, SourceRange], served: bool) -> bool:
        """Return whether a batch that is not decided is to be run: there is something to read, somebody waits, or time moves on."""
        if self._time.at_end and self._time.fired:
            return False  # behind the end of all input nothing begins
        if not (self.plan.only_split or self.lowered.ticks):
            return True  # Spark begins no batch without data
        if not idle(split) or not (self.plan.stateless or self._ends.was_idle):
            return True
        if not self.plan.only_split:
            delivery = Delivery.read(batch, self.spark_log, self.sources, split)
            if not idle(delivery.spark):
                return True
            lag = self._lag(delivery)
            if lag or (lag is None and (self.plan.bounded or self._held_s(batch) >= _LOOK_S)):
                return True  # what came after Spark planned, the next batch has
        self._keeper.tick()
        return served or (not self.plan.stateless and (self._time.wanted(batch) or self._timer_due()))

    def _held_s(self, batch: int) -> float:
        """Return since when a batch is held, in seconds."""
        now = time.monotonic()
        if self._held[0] != batch:
            self._held = batch, now
        return now - self._held[1]

    def _timer_due(self) -> bool:
        """Return whether a timer of a step of ours waits for the clock; at the start nobody knows."""
        return self.plan.hosted and self._next_timer is not None and self._next_timer <= self.clock.now_ms()

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
            attempt.ran = True
            if self._newest_decided() < batch:
                found.watermarks = self._time.measure(
                    batch,
                    found.times,
                    delivery.spark,
                    delivery.split_names,
                    lambda use: self._ends.comes_with(use, delivery),
                )
            return found.results(self.plan.shared)

        with self.attempts.attempt(batch, lambda: known_undecided(self._newest_decided, batch)) as attempt:
            outcome = self.coordinator.checkpoint(batch, delivery.ranges, run)
        self._newest = batch
        self._time.carried(batch, outcome.decision.watermarks if self._time.active else None, idle=delivery.idle)
        self._began, self._done = (None, None) if outcome.replayed else (began, time.monotonic())
        counts = {} if outcome.replayed else {name: sink.counts for name, sink in outcome.decision.sinks.items()}
        took = int((time.monotonic() - began) * 1000)
        self.tracker.checkpoint(batch, sum(gathered[0].read.values()), counts, files_made(outcome), took)
        self._keeper.show()
        for name, span in delivery.spark.items():
            self.sources[name].committed(span.end)
        self.planner.committed()
        self.on_checkpoint()

    def _collect(self, frame: Any, directive: Directive, delivery: Delivery, found: Gathered) -> None:
        directive = {**directive, "splits": delivery.splits(self.planner), **self._told(directive)}
        frame.sparkSession.sparkContext.setLocalProperty(PROPERTY, json.dumps(directive, separators=(",", ":")))
        found.add(row[0] for row in frame.collect())
        found.tasks = delivery.tasks
        found.bytes.update(delivery.bytes)
        if not directive["decided"]:
            found.check_splits({head: delivery.given.get(head, 0) for head in self._fused})
        if any(self.lowered.observed.values()):
            execution = self._query._jsq.streamingQuery().lastExecution()
            late: Mapping[str, int] = {}
            if self.plan.timed and not directive["decided"]:
                late, found.event_time = event_times(execution, self.lowered.observed)
                if self._time.active:
                    in_use = directive["watermark"]
                    shown = None if in_use == MIN else in_use
                    found.event_time = replace(found.event_time, watermark_ms=shown)
            seen = observed_rows(execution)
            found.times = seen.times
            self._next_timer = seen.next_timer
            found.count_before_stage(self.lowered, seen.rows, late, seen.late)

    def _told(self, directive: Directive) -> JSON:
        batch = directive["checkpoint"]
        return self._time.told(batch, self.coordinator.decided_watermarks(batch) if self.plan.hosted else None)

    # --- what is asked for -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Take what was asked for, and see to it that a checkpoint somebody waits for begins."""
        while (trigger := self._serving.take()) is not None:
            if trigger.kind == "savepoint" and trigger.drain and self._keeper.fires:
                self._draining.append(trigger)
            elif trigger.kind == "savepoint":
                self._savepoints.want(trigger)
            else:
                self._serving.checkpoint_wanted(trigger)
        if self._serving.asked and not (self.plan.only_split or self.plan.bounded or self._savepoints.ending):
            self._nudge()

    def _cut(self, trigger: Trigger) -> Cut:
        if trigger.drain:
            try:
                outcome = self.coordinator.roll(Occasion.END)
            except Exception as error:
                raise NotDrained(error) from error
            if outcome is not None:
                self.tracker.rolled(files_made(outcome))
        return self.save(trigger.directory)

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
        self._start_again()
        self._serving.nudged = True

    def _start_again(self) -> None:
        self._query.stop()
        self._stopping.clear()
        self.start()

    def _newest_decided(self) -> int:
        return self.coordinator.newest.checkpoint

    # --- event time --------------------------------------------------------------------------------------------------

    def _publish(self, spark_ms: int) -> None:
        set_watermark(self._query._jsq, spark_ms)

    def _note_partitions(self, delivery: Delivery) -> None:
        """Note partitions that were added while the query ran: it is made anew with a place for the event time of each."""
        for use, span in delivery.spark.items():
            self._added.setdefault(source_of(use), set()).update(partitions_of(span.end))
        self._stopping.set()

    def _mind_the_time(self) -> None:
        """Make the query anew where that is needed."""
        if self._wants_another:
            assert self.lower is not None
            self._end_turns()
            self._query.stop()
            self._lowered_with = self._lowered_as
            self.lowered = self.lower(self._added)
            self._time.channels = self.lowered.times
            self._stopping.clear()
            self.start()
        elif self._keeper.fires and self.coordinator.lock.acquire(blocking=False):
            try:
                again = self._goes_on_behind_its_end()
            finally:
                self.coordinator.lock.release()
            if again:
                self._end_turns()
                self._start_again()

    @property
    def _lowered_as(self) -> int:
        """How many partitions the query has to be made with besides those known at the start."""
        return sum(len(found) for found in self._added.values())

    @property
    def _wants_another(self) -> bool:
        return self._lowered_as != self._lowered_with

    def _goes_on_behind_its_end(self) -> bool:
        """Return whether the query is to be started again, as when the savepoint it was to end with was not written.

        The caller holds the lock.
        """
        over = self._time.at_end and self._time.fired
        return over and not self._draining and not self._savepoints.busy and self._ends.more_comes()

    def _time_is_up(self) -> bool:
        """Have event time end, and return whether all windows are fired."""
        if not self._keeper.fires:
            return True
        if not self.coordinator.lock.acquire(blocking=False):
            return False
        try:
            return self._newest_decided() < 0 or self._keeper.is_up()
        finally:
            self.coordinator.lock.release()

    # --- between checkpoints -----------------------------------------------------------------------------------------

    def _sweep_if_due(self) -> None:
        """Remove what attempts on executors that are gone have left, and those that lost a race: no other task writes now."""
        if self.watch is None or not self.coordinator.lock.acquire(blocking=False):
            return
        try:
            if self.watch.leaves_leftovers:
                self.coordinator.sweep()
        finally:
            self.coordinator.lock.release()

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

    def _retain(self, *, finish: bool = False) -> None:
        """Copy the newest checkpoint where copies are kept: the next begins only when that is done."""
        if self.retained is None:
            return
        if self.coordinator.lock.acquire(blocking=False):
            try:
                newest = self.coordinator.newest.checkpoint
                if (
                    self.retained.due(newest)
                    and self._border.settled
                    and not self.coordinator.is_produced_again(newest)
                ):
                    self.retained.cut(newest)
            finally:
                self.coordinator.lock.release()
        if finish:
            self.retained.finish()

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at < _TELL_S:
            return
        self._told_at = now
        decided = self.coordinator.sources
        lags = self._lags({name: decided[name].end for name in decided if name in self.sources})
        known = [lag for lag in lags if lag is not None]
        state = None if self.plan.stateless else state_bytes(self._query._jsq)
        self.tracker.lag(sum(known) if known else None, state)

    def _lags(self, ends: Mapping[str, Any]) -> list[int | None]:
        """Return how much waits behind positions of Spark sources, each asked once; None where one does not say."""
        asked = {name: self.sources[name] for name in ends if name == source_of(name)}
        return [source.lag(ends[name]) for name, source in asked.items() if not isinstance(source, SplitSource)]

    def _lag(self, delivery: Delivery) -> int | None:
        """Return how much waits behind a batch in the Spark sources; None where one does not say."""
        lags = self._lags({use: span.end for use, span in delivery.spark.items()})
        return None if None in lags else sum(lag for lag in lags if lag is not None)


def files_made(outcome: Outcome) -> int:
    """Return how many files a decision made visible."""
    return sum("path" in detail for details in outcome.committed.values() for detail in details)
