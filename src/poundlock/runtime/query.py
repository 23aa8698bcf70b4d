"""One life of a job's query: from `start()` until it ends, by itself, by a stop, or with a savepoint; what is asked of it meanwhile.

Whoever holds the coordinator's lock is the only one who decides; a stop takes the lock first, so it never meets a
checkpoint half way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.participant import Occasion
from poundlock.errors import PoundlockError
from poundlock.plan.lowered import Lowered
from poundlock.plan.plan import Plan
from poundlock.runtime.attempts import Attempts
from poundlock.runtime.carrying import Carrying
from poundlock.runtime.delivery import Delivery
from poundlock.runtime.ends import Ends
from poundlock.runtime.execution import set_watermark, state_bytes
from poundlock.runtime.job_time import JobTime
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.progress import StopRequest
from poundlock.runtime.requests import Requests, Trigger
from poundlock.runtime.retained import Retained
from poundlock.runtime.savepoints import Border, NotDrained, Saved, Savepoints
from poundlock.runtime.serving import Serving
from poundlock.runtime.spark_query import Partitions, SparkQuery
from poundlock.runtime.time_keeping import TimeKeeper
from poundlock.runtime.tracker import Tracker
from poundlock.runtime.turns import POLL_S, Turns
from poundlock.runtime.upkeep import Upkeep
from poundlock.savepoint.take import Cut
from poundlock.spark.executors import Watch
from poundlock.spark.old_host import await_tasks, check_callbacks
from poundlock.values import Clock

__all__ = ["Query", "QueryStopped", "Saved"]

_COMMIT_LOG_S = 10.0


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
    _stopping: threading.Event = field(default_factory=threading.Event)
    _draining: list[Trigger] = field(default_factory=list)
    _spark: SparkQuery = field(init=False)
    _time: JobTime = field(init=False)
    _keeper: TimeKeeper = field(init=False)
    _ends: Ends = field(init=False)
    _serving: Serving = field(init=False)
    _turns: Turns = field(init=False)
    _carrying: Carrying = field(init=False)
    _upkeep: Upkeep = field(init=False)
    _savepoints: Savepoints = field(init=False)

    def __post_init__(self) -> None:
        plan, sources, coordinator = self.plan, self.sources, self.coordinator
        border = Border(coordinator, self.spark_log)
        self._spark = spark = SparkQuery(
            self.lowered,
            self.lower,
            name=plan.job.name,
            path=self.checkpoint_path,
            interval=timedelta(0) if plan.bounded or plan.only_split else self.interval,
            on_batch=self._on_batch,
        )
        self._serving = Serving(self.requests, self._stopping)
        self._ends = Ends(plan, sources, self.planner, coordinator, lambda: spark.status, lambda: spark.lowered.ticks)
        self._time = JobTime(
            self.lowered.times,
            sources,
            self.spark_log,
            lambda spark_ms: set_watermark(spark.execution, spark_ms),
            self.clock,
            plan.hosted,
            self.lowered.untimed,
        )
        self._keeper = TimeKeeper(self._time, plan, self.tracker, spark=lambda: spark.execution)
        self._turns = Turns(
            plan=plan,
            sources=sources,
            interval=self.interval,
            min_pause=self.min_pause,
            clock=self.clock,
            time=self._time,
            keeper=self._keeper,
            ends=self._ends,
            serving=self._serving,
            ticks=lambda: spark.lowered.ticks,
            read=self._read,
        )
        self._carrying = Carrying(
            plan=plan,
            spark=spark,
            sources=sources,
            coordinator=coordinator,
            planner=self.planner,
            time=self._time,
            keeper=self._keeper,
            ends=self._ends,
            turns=self._turns,
            tracker=self.tracker,
            attempts=self.attempts,
            on_checkpoint=lambda: self.on_checkpoint(),
        )
        self._upkeep = Upkeep(
            coordinator=coordinator,
            sources=sources,
            clock=self.clock,
            tracker=self.tracker,
            border=border,
            retained=self.retained,
            watch=self.watch,
            state_bytes=lambda: None if plan.stateless else state_bytes(spark.execution),
        )
        self._savepoints = Savepoints(
            border,
            cut=self._cut,
            hold=self._end_turns,
            go_on=self._start_again,
            say=lambda line: self.tracker.state(self.tracker.progress.state, line),
        )

    def start(self) -> None:
        """Start the query; returns at once."""
        self._time.begin(self.coordinator.watermarks, self.coordinator.newest.checkpoint)
        self._spark.start()
        check_callbacks()

    def await_tasks(self) -> None:
        """Wait until no task runs."""
        await_tasks(self._spark.session)

    @property
    def hangs(self) -> bool:
        """Whether it goes on although it was ended."""
        return self._spark.hangs

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
                if not self._spark.active and not self._spark.lacks_partitions:
                    self._raise()
                self.attempts.check()
                self._upkeep.sweep_if_due()
                self._upkeep.roll_if_due()
            self._upkeep.retain(finish=True)
            self._serve()
            if self._draining and self._time_is_up():
                self._savepoints.want(self._draining.pop(0))
            if (saved := self._savepoints.step()) is not None:
                return saved if self._stop(stop) else None
            self._upkeep.tell()
            stop.wait(POLL_S)

    def _stop(self, request: StopRequest) -> bool:
        """Let the running checkpoint finish, keep the next from beginning, then end the query; False if canceled meanwhile."""
        while not self.coordinator.lock.acquire(timeout=POLL_S):
            if request.canceling:
                return False
            if self.watch is not None:
                self.watch.check()
            self.attempts.check()
        self._end_turns()
        self.coordinator.lock.release()
        deadline = time.monotonic() + _COMMIT_LOG_S
        # Spark writes commits/n after the callback; stopping before that is safe but makes the next start deliver n again.
        newest = self._carrying.newest
        while newest >= 0 and time.monotonic() < deadline and not self.spark_log.committed(newest):
            if request.canceling or not self._spark.active:
                break
            time.sleep(POLL_S)
        self._upkeep.retain(finish=True)
        self._spark.stop()
        if self.error is not None:
            raise self.error
        self._savepoints.finish(lambda: request.canceling)
        return not request.canceling

    def kill(self) -> None:
        """End the query without waiting for anything; what it was doing is done again by the next one."""
        self._end_turns()
        self._serving.requeue()
        for trigger in reversed(self._draining):
            self.requests.requeue(trigger)
        self._draining.clear()
        self._savepoints.requeue(self.requests)
        with suppress(Exception):  # it failed or its JVM is gone: both are an end
            self._spark.stop()

    def _end_turns(self) -> None:
        """Keep checkpoints from beginning."""
        self._stopping.set()
        self._serving.wake()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error
        raise self._spark.failure

    # --- a checkpoint ------------------------------------------------------------------------------------------------

    def _on_batch(self, frame: Any, batch: int) -> None:
        try:
            self._turns.wait()
            while not self._take(frame, batch):
                self._turns.wait_for_data()
        except QueryStopped:
            raise
        except BaseException as error:
            self.error = error
            raise

    def _take(self, frame: Any, batch: int) -> bool:
        """Carry a batch through, or return False: the driver plans all there is to read, and there is nothing yet."""
        with self.coordinator.lock:
            if self._stopping.is_set():
                raise QueryStopped
            self._upkeep.retain()
            served = self._serving.begin()
            decided = self.coordinator.decided(batch)
            split = self._time.held(self.planner.ranges()) if decided is None else decided
            if decided is None and not self._turns.has_reason(batch, split, bool(served)):
                return False
            delivery = self._read(batch, split)
            if decided is None and self._time.lacks(delivery.spark):
                self._spark.note_partitions(delivery)
                self._stopping.set()
                raise QueryStopped
            self._ends.note(delivery)
            self._carrying.carry(frame, batch, delivery)
            if decided is None:
                self._serving.done(served, batch)
            return True

    def _read(self, batch: int, split: Mapping[str, SourceRange]) -> Delivery:
        return Delivery.read(batch, self.spark_log, self.sources, split)

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
                self.tracker.rolled(outcome.files_made)
        return self.save(trigger.directory)

    def _nudge(self) -> None:
        """Make Spark look for data now: it keeps the interval by itself and cannot be told, but a query that starts looks at once."""
        if not self._spark.waits:
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
        self._spark.stop()
        self._stopping.clear()
        self.start()

    # --- event time --------------------------------------------------------------------------------------------------

    def _mind_the_time(self) -> None:
        """Make the query anew where that is needed."""
        if self._spark.lacks_partitions:
            self._end_turns()
            self._spark.make_anew()
            self._time.channels = self._spark.lowered.times
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
            return self.coordinator.newest.checkpoint < 0 or self._keeper.is_up()
        finally:
            self.coordinator.lock.release()
