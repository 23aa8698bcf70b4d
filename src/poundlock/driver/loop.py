"""The loop of a job: checkpoint after checkpoint until the input ends or someone ends it, and what happens between them.

The main thread watches; checkpoints are taken in a thread of their own, one at a time. The next one's tasks may run beside a
commit. What needs a border, such as a roll or a savepoint, waits until no checkpoint and no commit is under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from poundlock.checkpoint.participant import Occasion
from poundlock.driver.checkpoints import JobCheckpoints
from poundlock.driver.progress import StopRequest
from poundlock.driver.requests import Requests, Trigger
from poundlock.driver.savepoints.requested import NotDrained, Saved, Savepoints
from poundlock.driver.savepoints.retained_checkpoints import Retained
from poundlock.savepoint.take import Cut
from poundlock.spark.executors import Watch
from poundlock.threads import CallThread, has_ended
from poundlock.values import Clock

_POLL_S = 0.05
_END_TASKS_S = 20.0
_TELL_S = 1.0


@dataclass
class JobLoop:
    """One attempt at running a job."""

    checkpoints: JobCheckpoints
    requests: Requests
    clock: Clock
    # copies what a savepoint is made of into a directory, after something that is done once the directory will do; called
    # between two checkpoints
    save: Callable[[str | None, Callable[[], None]], Cut]
    retained: Retained
    watch: Watch | None = None  # looks after the cluster that the tasks run on; None = they run here
    _thread: CallThread = field(default_factory=lambda: CallThread("poundlock-checkpoints"), init=False)
    _turn: Future[None] | None = field(default=None, init=False)
    _held: bool = field(default=False, init=False)
    _shown_at: float = field(default=0.0, init=False)
    _under_way_at: float = field(default=0.0, init=False)
    _savepoints: Savepoints = field(init=False)

    def __post_init__(self) -> None:
        self._savepoints = Savepoints(
            cut=self._cut,
            hold=self._hold,
            say=lambda line: self.checkpoints.tracker.state(self.checkpoints.tracker.progress.state, line),
        )

    def wait(self, stop: StopRequest) -> Occasion | Saved | None:
        """Take checkpoints until the job ends. Returns END after a clean stop or the end of input, None after a cancel.

        And the savepoint with which it was asked to end, where it was.

        Raises:
            Exception: what an attempt failed with.
        """
        try:
            return self._wait(stop)
        finally:
            self._thread.end()

    def _wait(self, stop: StopRequest) -> Occasion | Saved | None:
        while not stop.canceling:
            if self.watch is not None:
                self.watch.check()
            self.checkpoints.attempts.check()
            if self._turn is not None:
                self.checkpoints.committing(0)  # raises what the commit beside it failed with
                if not has_ended(self._turn, _POLL_S):
                    self._show_under_way()
                    continue
                turn, self._turn = self._turn, None
                turn.result()  # raises what it failed with
            self._receive_requests()
            self._show_lag()
            if self._goes_on(stop):
                self._begin(self.checkpoints.take)
                continue
            if self.checkpoints.committing(min(_POLL_S, self.checkpoints.scheduler.wait_s or _POLL_S)):
                self._show_under_way()
                continue
            self.checkpoints.settle()
            if self.checkpoints.produced_again:
                self._begin(self.checkpoints.take)
                continue
            self._retain()
            if self.checkpoints.state is not None:
                self.checkpoints.state.pinned = self._savepoints.busy
            saved = self._savepoints.step()
            if saved is not None:
                self._show_lag(last=True)
                return saved if self._finish_savepoints(stop) else None
            if self._savepoints.ending:
                stop.wait(_POLL_S)
            elif stop.stopping or self.checkpoints.ended:
                self._show_lag(last=True)
                return Occasion.END if self._finish_savepoints(stop) else None
            elif self._roll_is_due():
                self._begin(lambda: self.checkpoints.roll(Occasion.ROLL))
            elif self._has_leftovers:
                self._begin(self._sweep)
            elif self.checkpoints.scheduler.due and not self._held:
                self._begin(self.checkpoints.take)
            else:
                stop.wait(min(_POLL_S, self.checkpoints.scheduler.wait_s))
        return None

    def _begin(self, call: Callable[[], None]) -> None:
        self._turn = self._thread.begin(call)

    def _goes_on(self, stop: StopRequest) -> bool:
        """Return whether the next checkpoint's tasks run beside the commit that is under way: nobody waits for a border."""
        return (
            self.checkpoints.scheduler.due
            and self.checkpoints.can_go_on
            and self.checkpoints.committing(0)
            and not (
                self.checkpoints.scheduler.pauses or stop.stopping or self.checkpoints.ended or self._savepoints.busy
            )
            and not (self._has_leftovers or self._roll_is_due())
            and not self.retained.due(self.checkpoints.coordinator.newest.checkpoint)
        )

    # --- between two checkpoints -------------------------------------------------------------------------------------

    @property
    def _has_leftovers(self) -> bool:
        return self.watch is not None and self.watch.leaves_leftovers

    def _roll_is_due(self) -> bool:
        due = self.checkpoints.coordinator.next_roll_ms()
        return due is not None and due <= self.clock.now_ms()

    def _sweep(self) -> None:
        """Remove what attempts on executors that are gone have left, and those that lost a race: nobody else writes now."""
        if self.checkpoints.jobs.idle(_END_TASKS_S):
            self.checkpoints.coordinator.sweep()

    def _retain(self) -> None:
        newest = self.checkpoints.coordinator.newest.checkpoint
        if self.retained.due(newest):
            self.retained.copy(newest)

    def _show_lag(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if last or now - self._shown_at >= _TELL_S:
            self._shown_at = now
            lag, state = self.checkpoints.planner.lag(self.checkpoints.coordinator.sources), self.checkpoints.state
            lags = self.checkpoints.planner.lags(self.checkpoints.coordinator.sources)
            self.checkpoints.tracker.lag(lag, None if state is None else state.bytes, lags)

    def _show_under_way(self) -> None:
        now = time.monotonic()
        if now - self._under_way_at >= _TELL_S:
            self._under_way_at = now
            self.checkpoints.tracker.under_way(self.checkpoints.attempts.under_way())

    def _receive_requests(self) -> None:
        while (trigger := self.requests.take()) is not None:
            if trigger.kind == "savepoint":
                self._savepoints.want(trigger)
            else:
                self.checkpoints.scheduler.request(trigger)

    def _cut(self, trigger: Trigger) -> Cut:
        return self.save(trigger.directory, self._drain if trigger.drain else lambda: None)

    def _drain(self) -> None:
        try:
            if self.checkpoints.waits_for_time and self.checkpoints.coordinator.newest.checkpoint >= 0:
                self.checkpoints.drain()
            self.checkpoints.roll(Occasion.END)
        except Exception as error:
            raise NotDrained(error) from error

    def _hold(self, held: bool) -> None:
        self._held = held

    def _finish_savepoints(self, stop: StopRequest) -> bool:
        """Make the savepoints whole that the job does not end with; return False if it was cancelled meanwhile."""
        self._savepoints.finish(lambda: stop.canceling)
        return not stop.canceling

    # --- the end -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End it without waiting for a checkpoint: what it was doing is done again by the next attempt."""
        self.checkpoints.give_up()
        self.checkpoints.jobs.cancel()
        if self._turn is not None:
            has_ended(self._turn, _END_TASKS_S)
        self.checkpoints.await_end(_END_TASKS_S)
        self.checkpoints.scheduler.release()
        self._savepoints.requeue(self.requests)

    def await_tasks(self) -> None:
        """Wait until no task runs: those of a failed job are asked to end and take a moment."""
        self.checkpoints.jobs.idle(_END_TASKS_S)

    @property
    def hangs(self) -> bool:
        """Whether a checkpoint goes on although the attempt was ended."""
        turn = self._turn is not None and not self._turn.done()
        return turn or not self.checkpoints.await_end(0)
