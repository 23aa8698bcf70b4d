"""The loop of a job: checkpoint after checkpoint until the input ends or someone ends it, and what happens between them.

The main thread watches; a checkpoint is taken in a thread of its own, one at a time. Between two checkpoints nobody decides.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.cycle import run_checkpoint
from poundlock.checkpoint.outcome import Directive as SinkDirective
from poundlock.checkpoint.outcome import Outcome, TaskResults
from poundlock.checkpoint.participant import Occasion
from poundlock.driver.failure_tolerance import Attempts, known_undecided
from poundlock.driver.job_state import JobState
from poundlock.driver.job_time import JobTime
from poundlock.driver.planner import CheckpointPlan, Planner
from poundlock.driver.progress import StopRequest
from poundlock.driver.progress_reporter import Tracker
from poundlock.driver.requests import Requests, Trigger
from poundlock.driver.results import task_results
from poundlock.driver.savepoints.requested import NotDrained, Saved, Savepoints
from poundlock.driver.savepoints.retained_checkpoints import Retained
from poundlock.driver.scheduler import CheckpointScheduler
from poundlock.driver.turns import Turn
from poundlock.failpoints import Failpoint, hit
from poundlock.operators.stream_times import Advanced
from poundlock.operators.time_values import SourceInput
from poundlock.plan.stages import StageChain
from poundlock.savepoint.take import Cut
from poundlock.spark.batch_job import BatchJobs
from poundlock.spark.executors import Watch
from poundlock.state.directive import StateDirective
from poundlock.tasks.report import Directive
from poundlock.values import Clock

_POLL_S = 0.05
_END_TASKS_S = 20.0
_TELL_S = 1.0


@dataclass
class JobLoop:
    """One attempt at running a job.

    Args:
        name: of the job.
        chain: the stages that its tasks run.
        jobs: runs them.
        planner: plans what they read.
        time: the job's event time.
        state: its keyed state; None where it has none.
        coordinator: has recovered already.
        scheduler: says when a checkpoint may begin.
        requests: what others ask of the job.
        tracker: notified of every checkpoint.
        clock: what rolls go by.
        attempts: notified of every checkpoint that begins; says when one takes too long.
        save: copies what a savepoint is made of into a directory; called between two checkpoints.
        retained: keeps copies of the newest checkpoints.
        on_checkpoint: called after each completed checkpoint.
        watch: looks after the cluster that the tasks run on; None = they run here.
    """

    name: str
    chain: StageChain
    jobs: BatchJobs
    planner: Planner
    time: JobTime
    state: JobState | None
    coordinator: Coordinator
    scheduler: CheckpointScheduler
    requests: Requests
    tracker: Tracker
    clock: Clock
    attempts: Attempts
    save: Callable[[str | None], Cut]
    retained: Retained
    on_checkpoint: Callable[[], None] = lambda: None
    watch: Watch | None = None
    _turn: Turn[Any] | None = field(default=None, init=False)
    _held: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)
    _shown_at: float = field(default=0.0, init=False)
    _savepoints: Savepoints = field(init=False)

    def __post_init__(self) -> None:
        self._savepoints = Savepoints(
            cut=self._cut,
            hold=lambda: self._hold(True),
            go_on=lambda: self._hold(False),
            say=lambda line: self.tracker.state(self.tracker.progress.state, line),
        )

    def start(self) -> None:
        """Nothing runs before `wait`."""

    def wait(self, stop: StopRequest) -> Occasion | Saved | None:
        """Take checkpoints until the job ends. Returns END after a clean stop or the end of input, None after a cancel.

        And the savepoint with which it was asked to end, where it was.

        Raises:
            Exception: what an attempt failed with.
        """
        while not stop.canceling:
            if self.watch is not None:
                self.watch.check()
            if self._turn is not None:
                self.attempts.check()
                if not self._turn.wait(_POLL_S):
                    continue
                turn, self._turn = self._turn, None
                turn.result  # noqa: B018  # raises what it failed with
            self._receive_requests()
            self._show_lag()
            self._retain()
            if self.state is not None:
                self.state.pinned = self._savepoints.busy
            saved = self._savepoints.step()
            if saved is not None:
                return saved if self._finish_savepoints(stop) else None
            if self._savepoints.ending:
                stop.wait(_POLL_S)
            elif stop.stopping or self._ended:
                return Occasion.END if self._finish_savepoints(stop) else None
            elif self._roll_is_due():
                self._begin(self._roll, "roll")
            elif self.watch is not None and self.watch.leaves_leftovers:
                self._begin(self._sweep, "sweep")
            elif self.scheduler.due and not self._held:
                self._begin(self._take_checkpoint, "checkpoint")
            else:
                stop.wait(min(_POLL_S, self.scheduler.wait_s))
        return None

    def _begin(self, call: Callable[[], None], what: str) -> None:
        self._turn = Turn(call, f"poundlock-{what}")

    # --- a checkpoint ------------------------------------------------------------------------------------------------

    def _take_checkpoint(self) -> None:
        began, served = time.monotonic(), self.scheduler.waiting()
        newest = self.coordinator.newest.checkpoint
        again = self.coordinator.is_produced_again(newest)
        plan = self._plan(newest, again)
        inputs = self.planner.inputs(plan.ranges)
        if not (again or plan.has_data or served or self._time_asks(inputs)):
            self._ended = self.planner.finished(self.coordinator.sources)
            self._show_time()
            self.scheduler.nothing_to_do(served, newest)
            return
        self._run_checkpoint(plan, began, inputs, again=again)
        self._ended = self.planner.finished(self.coordinator.sources)
        self.scheduler.completed(began, served, plan.checkpoint)

    def _time_asks(self, inputs: Mapping[str, SourceInput]) -> bool:
        """Return whether a timer is due though nothing came."""
        return self.time.is_due(inputs, (None, None) if self.state is None else self.state.next_timers())

    def _plan(self, newest: int, again: bool) -> CheckpointPlan:
        if again:
            return self.planner.plan_again(newest, self.coordinator.sources)
        return self.planner.plan(newest + 1, self.coordinator.sources, self.time.held())

    def _run_checkpoint(
        self,
        plan: CheckpointPlan,
        began: float,
        inputs: Mapping[str, SourceInput],
        *,
        again: bool = False,
        drain: bool = False,
    ) -> None:
        """Take a checkpoint.

        Args:
            plan: what it reads.
            began: when it was planned, by the monotonic clock, seconds.
            inputs: what event time has to know of the sources.
            again: whether it is decided, and parts of it are produced once more.
            drain: whether the input ends for good with it.
        """
        decided = self.coordinator.watermarks
        times = decided.directive if again and decided else self.time.directive(inputs, drain=drain)
        gathered: list[TaskResults] = []
        advanced: list[Advanced] = []

        def run(given: SinkDirective) -> TaskResults:
            rerun = self.coordinator.is_produced_again(plan.checkpoint)
            directive = Directive(
                checkpoint=plan.checkpoint,
                epoch=given["epoch"],
                started_ms=given["started_ms"],
                run=secrets.token_hex(8),
                sinks=given["sinks"],
                time=times,
                places=plan.places if self.chain.has_segments else (),
                state=self._state_directives(plan.checkpoint, rerun),
            )
            reports = self.jobs.run(directive, plan.work)
            attempt.ran = True
            self.planner.check_identity(plan)
            advanced.append(self.time.measured(times, reports))
            results = task_results(
                self.chain,
                plan,
                reports,
                watermarks=self.time.decided(times, advanced[-1]),
                event_time=self.time.seen(times, reports),
            )
            gathered.append(results)
            return gathered[-1]

        hit(Failpoint.BATCH_PLANNED)
        hit(Failpoint.CHECKPOINT_ENTERED)
        self.coordinator.settle()
        with self.attempts.attempt(
            plan.checkpoint, lambda: known_undecided(lambda: self.coordinator.newest.checkpoint, plan.checkpoint)
        ) as attempt:
            outcome = run_checkpoint(self.coordinator, plan, run)
        if not again:
            self.time.checkpointed(advanced[0], drained=drain)
        self._completed(outcome, gathered[0], int((time.monotonic() - began) * 1000))

    def _state_directives(self, checkpoint: int, again: bool) -> Mapping[str, StateDirective]:
        if self.state is None:
            return {}
        return self.state.directives(checkpoint, parallelism=self.chain.parallelism, again=again)

    def _completed(self, outcome: Outcome, results: TaskResults, took_ms: int) -> None:
        counts = {name: sink.counts for name, sink in outcome.decision.sinks.items()}
        read = sum(results.rows_read.values())
        self.tracker.checkpoint(outcome.decision.checkpoint, read, counts, outcome.files_made, took_ms)
        self._show_time()
        self.planner.committed(self.coordinator.sources)
        self.on_checkpoint()

    def _show_time(self) -> None:
        if self.time.active:
            slowest = self.time.slowest
            self.tracker.event_time(self.time.watermark, None if slowest is None else slowest.held_by)

    # --- between two checkpoints -------------------------------------------------------------------------------------

    def _roll_is_due(self) -> bool:
        due = self.coordinator.next_roll_ms()
        return due is not None and due <= self.clock.now_ms()

    def _roll(self) -> None:
        outcome = self.coordinator.roll(Occasion.ROLL)
        if outcome is not None:
            self.tracker.rolled(outcome.files_made)

    def _sweep(self) -> None:
        """Remove what attempts on executors that are gone have left, and those that lost a race: nobody else writes now."""
        if self.jobs.idle(_END_TASKS_S):
            self.coordinator.sweep()

    def _retain(self) -> None:
        newest = self.coordinator.newest.checkpoint
        if self.retained.due(newest) and not self.coordinator.is_produced_again(newest):
            self.retained.cut(newest)
        self.retained.finish()

    def _show_lag(self) -> None:
        now = time.monotonic()
        if now - self._shown_at >= _TELL_S:
            self._shown_at = now
            self.tracker.lag(self.planner.lag(self.coordinator.sources), self._state_bytes())

    def _state_bytes(self) -> int | None:
        return None if self.state is None else self.state.bytes

    def _receive_requests(self) -> None:
        while (trigger := self.requests.take()) is not None:
            if trigger.kind == "savepoint":
                self._savepoints.want(trigger)
            else:
                self.scheduler.request(trigger)

    def _cut(self, trigger: Trigger) -> Cut:
        if trigger.drain:
            try:
                self._drain()
                outcome = self.coordinator.roll(Occasion.END)
            except Exception as error:
                raise NotDrained(error) from error
            if outcome is not None:
                self.tracker.rolled(outcome.files_made)
        return self.save(trigger.directory)

    def _drain(self) -> None:
        """Take a checkpoint that reads nothing and ends event time, so that every window is fired."""
        if self.state is not None and self.coordinator.newest.checkpoint >= 0:
            plan = self.planner.plan_nothing(self.coordinator.newest.checkpoint + 1, self.coordinator.sources)
            self._run_checkpoint(plan, time.monotonic(), self.planner.inputs(plan.ranges), drain=True)

    def _hold(self, held: bool) -> None:
        self._held = held

    def _finish_savepoints(self, stop: StopRequest) -> bool:
        """Make the savepoints whole that the job does not end with; return False if it was cancelled meanwhile."""
        self._savepoints.finish(lambda: stop.canceling)
        return not stop.canceling

    # --- the end -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End it without waiting for a checkpoint: what it was doing is done again by the next attempt."""
        self.jobs.cancel()
        if self._turn is not None:
            self._turn.wait(_END_TASKS_S)
        self.scheduler.release()
        self._savepoints.requeue(self.requests)

    def await_tasks(self) -> None:
        """Wait until no task runs: those of a failed job are told to end and take a moment."""
        self.jobs.idle(_END_TASKS_S)

    @property
    def hangs(self) -> bool:
        """Whether a checkpoint goes on although the attempt was ended."""
        return self._turn is not None and not self._turn.wait(0)
