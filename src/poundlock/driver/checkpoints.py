"""The steps of a job's checkpoints, and the commit that goes on beside the next one's tasks.

One thread at a time takes the steps. Only the commit itself runs in a thread of its own; whoever takes the steps waits for it
before anything else is verified or decided, and takes note of what came of it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from poundlock.checkpoint.committer import Carried
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.cycle import Ran, Verified, run_checkpoint
from poundlock.checkpoint.decision import Decision, EventTime
from poundlock.checkpoint.outcome import Outcome, TaskResults
from poundlock.checkpoint.participant import Occasion
from poundlock.checkpoint.skew import Skew, together
from poundlock.driver.attempts import Attempt, Attempts, known_undecided
from poundlock.driver.job_time import JobTime
from poundlock.driver.parallelism import JobParallelism
from poundlock.driver.planner import CheckpointPlan, Planner
from poundlock.driver.progress import Tracker
from poundlock.driver.requests import CheckpointScheduler, Trigger
from poundlock.driver.state_locality import StateLocality
from poundlock.errors import TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.metrics.load import NO_LOAD, JobLoad, of_calls
from poundlock.metrics.timeline import Timeline
from poundlock.metrics.user_totals import over_tasks
from poundlock.operators.stream_times import Advanced
from poundlock.operators.time_values import DecidedTime, SourceInput, TimeDirective
from poundlock.plan.row_accounts import sink_counts
from poundlock.plan.stages import StageChain
from poundlock.spark.batch_job import BatchJobs
from poundlock.state.directive import StateDirective
from poundlock.state.job_state import JobState
from poundlock.tasks.loads import load_of, of_end
from poundlock.tasks.report import Directive, TaskReport, total_counts
from poundlock.threads import has_ended, in_thread

_POLL_S = 0.05


@dataclass(frozen=True)
class JobPlan:
    """What a checkpoint of a job is to do."""

    reads: CheckpointPlan
    times: TimeDirective
    parallelism: int
    began: float  # when it was planned, by the monotonic clock, seconds
    served: Sequence[Trigger] = ()
    again: bool = False  # whether it is decided, and parts of it are produced once more
    drain: bool = False  # whether the input ends for good with it

    @property
    def checkpoint(self) -> int:
        """Its number."""
        return self.reads.checkpoint


@dataclass(frozen=True)
class JobRan(Ran):
    """What the tasks came to, and event time with them."""

    planned: CheckpointPlan
    advanced: Advanced
    load: JobLoad = NO_LOAD


@dataclass(frozen=True)
class _Commit:
    """A commit under way; its turn gives what came of it, and when it ended by the monotonic clock."""

    plan: JobPlan
    ran: JobRan
    decision: Decision
    durations_ms: Mapping[str, int]
    turn: Future[tuple[Carried, float]]
    attempt: Attempt  # up to its decision


@dataclass
class JobCheckpoints:
    """The checkpoints of one attempt of a job, whose coordinator has recovered. See `cycle.CheckpointSteps`."""

    chain: StageChain
    jobs: BatchJobs
    planner: Planner
    parallelism: JobParallelism
    max_parallelism: int  # number of key groups, beyond which a keyed stage has no more tasks
    time: JobTime
    state: JobState | None  # its keyed state; None where it has none
    coordinator: Coordinator
    scheduler: CheckpointScheduler  # says when a checkpoint may begin, and who waits for it
    tracker: Tracker
    attempts: Attempts
    on_checkpoint: Callable[[], None] = lambda: None
    ended: bool = field(default=False, init=False)
    """Whether every source was read to its end."""
    _commit: _Commit | None = field(default=None, init=False)
    _attempt: Attempt = field(init=False)
    _draining: bool = field(default=False, init=False)
    _given_up: bool = field(default=False, init=False)
    _locality: StateLocality = field(default_factory=StateLocality, init=False)

    def take(self) -> None:
        """Take the next checkpoint up to its decision, and begin to commit it; or see that there is none to take."""
        run_checkpoint(self)

    def drain(self) -> None:
        """Take a checkpoint that reads nothing and ends event time, so that every window is fired; wait for its commit."""
        self._draining = True
        try:
            self.take()
        finally:
            self._draining = False
        self.settle()
        while self.produced_again:
            self.take()
            self.settle()

    def roll(self, occasion: Occasion) -> None:
        """Decide and commit what is due by time alone, or at the end; see `Coordinator.roll`."""
        outcome = self.coordinator.roll(occasion)
        if outcome is not None:
            self.tracker.rolled(outcome.files_made, of_calls(outcome.calls))

    @property
    def waits_for_time(self) -> bool:
        """Whether an operator or a sink may have something that it keeps until the end of the input."""
        return self.state is not None or bool(self.coordinator.next_watermarks())

    @property
    def produced_again(self) -> bool:
        """Whether parts of the newest checkpoint were aborted from outside and come before anything else."""
        return self.coordinator.is_produced_again(self.coordinator.newest.checkpoint)

    @property
    def can_go_on(self) -> bool:
        """Whether the next checkpoint may begin beside the commit that is under way."""
        return self._commit is not None and not self._commit.plan.again and self.coordinator.prepares_ahead

    def committing(self, seconds: float) -> bool:
        """Wait for the commit that is under way, at most so long; return whether it still is.

        Raises:
            Exception: what it failed with.
        """
        commit = self._commit
        if commit is None:
            return False
        if not has_ended(commit.turn, seconds):
            return True
        commit.turn.result()  # raises what it failed with
        return False

    def settle(self) -> None:
        """Wait for the commit that is under way, and take note of what came of it."""
        while self.committing(_POLL_S):
            if self._given_up:
                raise TransientError("the attempt has ended, and the checkpoint with it")
        commit = self._commit
        if commit is None:
            return
        carried, ended = commit.turn.result()
        outcome = self.coordinator.committed(commit.decision, carried, commit.durations_ms)
        self._commit = None
        if self.produced_again:
            self.scheduler.put_back(commit.plan.served)
        else:
            self._completed(commit, outcome, int((ended - commit.plan.began) * 1000))

    def await_end(self, seconds: float) -> bool:
        """Wait until no commit is under way, at most so long and whatever comes of it; return whether none is."""
        return self._commit is None or has_ended(self._commit.turn, seconds)

    def give_up(self) -> None:
        """Keep a thread that is left behind from deciding anything."""
        self._given_up = True

    def _completed(self, commit: _Commit, outcome: Outcome, took_ms: int) -> None:
        checkpoint = outcome.decision.checkpoint
        counts = {name: sink.counts for name, sink in outcome.decision.sinks.items()}
        results, timeline = commit.ran.results, self._timeline(commit, outcome, took_ms)
        load = of_end(of_calls(outcome.calls), ((phase.name, phase.took_ms) for phase in timeline.phases))
        read = sum(results.rows_read.values())
        self.tracker.checkpoint(
            checkpoint, read, counts, outcome.files_made, took_ms, results.skew, load=load, timeline=timeline
        )
        self._show_time()
        self.planner.committed(self.coordinator.sources)
        self.on_checkpoint()
        self.scheduler.completed(commit.plan.began, commit.plan.served, checkpoint)

    def _timeline(self, commit: _Commit, outcome: Outcome, took_ms: int) -> Timeline:
        attempt = commit.attempt
        ended = attempt.began + took_ms / 1000
        return Timeline(
            outcome.decision.checkpoint,
            attempt.began_ms,
            attempt.began_ms + took_ms,
            attempt.until(ended),
            tuple(outcome.calls),
        )

    # --- the steps -------------------------------------------------------------------------------------------------------

    def plan(self) -> JobPlan | None:
        began, newest, sources = time.monotonic(), self.coordinator.newest.checkpoint, self.coordinator.sources
        served: Sequence[Trigger] = ()
        again = self.produced_again
        self.planner.parallelism = parallelism = self._next_parallelism(began, again=again)
        if again:
            reads = self.planner.plan_again(newest, sources)
        elif self._draining:
            reads = self.planner.plan_nothing(newest + 1, sources)
        else:
            served = self.scheduler.take()
            reads = self.planner.plan(newest + 1, sources, self.time.held())
        inputs = self.planner.inputs(reads.ranges)
        if not (again or self._draining or reads.has_data or served or self._time_asks(inputs)):
            self.ended = self.planner.finished(sources)
            self._show_time()
            self.parallelism.idle()
            self.scheduler.nothing_to_do()
            return None
        decided = self.coordinator.watermarks
        times = decided.directive if again and decided else self.time.directive(inputs, drain=self._draining)
        hit(Failpoint.CHECKPOINT_PLANNED)
        hit(Failpoint.CHECKPOINT_ENTERED)
        return JobPlan(reads, times, parallelism, began, served, again=again, drain=self._draining)

    def _next_parallelism(self, began: float, *, again: bool) -> int:
        """Return the parallelism of a checkpoint that is about to be planned: what is produced again has that of its decision."""
        control = self.parallelism
        if again or self._draining or control.scaler is None:
            return (self.coordinator.parallelism if again else None) or control.current
        rescaling = control.next_checkpoint(began, self.planner.lag(self.coordinator.sources))
        if rescaling is not None:
            self.coordinator.log.info(
                "rescaled", before=rescaling.before, after=rescaling.after, why=str(rescaling.seen)
            )
            self.tracker.state(self.tracker.progress.state, str(rescaling))
        self.tracker.parallelism(control.current)
        return control.current

    def _time_asks(self, inputs: Mapping[str, SourceInput]) -> bool:
        """Return whether a timer, or a sink that waits for a watermark, is due though nothing came."""
        timers = (None, None) if self.state is None else self.state.next_timers()
        return self.time.is_due(inputs, timers, self.coordinator.next_watermarks())

    @contextmanager
    def taking(self, plan: JobPlan) -> Iterator[None]:
        def never_decided() -> bool:
            return known_undecided(lambda: self.coordinator.newest.checkpoint, plan.checkpoint)

        def undecided() -> bool:  # what fails while another commit is under way is that one's failure, or nobody's
            return self._commit is None and never_decided()

        with (
            self.attempts.attempt(
                plan.checkpoint, undecided, never_decided=never_decided, began=plan.began
            ) as self._attempt,
            self.coordinator.taking(plan.checkpoint),
        ):
            yield

    def run(self, plan: JobPlan) -> JobRan:
        given = self.coordinator.directive(plan.reads)
        directive = Directive(
            checkpoint=plan.checkpoint,
            epoch=given.epoch,
            started_ms=given.started_ms,
            run=secrets.token_hex(8),
            sinks=given.sinks,
            time=plan.times,
            parallelism=self._keyed_tasks(plan),
            places=plan.reads.places if self.chain.needs_places else (),
            state=self._state_directives(plan),
        )
        begun = time.monotonic()
        reports = self.jobs.run(directive, plan.reads.work)
        run_s = time.monotonic() - begun
        self._attempt.ran = True
        self.planner.measured(reports)
        advanced = self.time.measured(plan.times, reports)
        decided, seen = self.time.decided(plan.times, advanced), self.time.seen(advanced, reports)
        results = replace(
            task_results(self.chain, plan.reads, reports, watermarks=decided, event_time=seen),
            parallelism=plan.parallelism,
            sink_times=self.time.of_sinks(advanced, self.coordinator.participants),
        )
        if self.jobs.places_tasks and self.state is not None:
            self.tracker.locality(self._locality.measured(reports))
        if not plan.again:
            self.parallelism.ran(run_s, sum(results.rows_read.values()))
        return JobRan(plan.reads, given, results, advanced, load_of(reports))

    def _state_directives(self, plan: JobPlan) -> Mapping[str, StateDirective]:
        if self.state is None:
            return {}
        return self.state.directives(plan.checkpoint, parallelism=self._keyed_tasks(plan), again=plan.again)

    def _keyed_tasks(self, plan: JobPlan) -> int:
        return min(plan.parallelism, self.max_parallelism)

    def await_commit(self, plan: JobPlan) -> bool:
        self._attempt.enter("await")
        self.settle()
        return plan.again or not self.produced_again

    def verify(self, ran: JobRan) -> Verified:
        self._attempt.enter("verify")
        # Sources and sinks are other systems: they are asked at once.
        checked = in_thread(lambda: self.planner.check_identity(ran.planned), "poundlock-sources")
        try:
            verified = self.coordinator.verify(ran)
        finally:
            has_ended(checked, None)  # nobody else may use the enumerators before
        checked.result()
        self._attempt.enter("decide")
        plan_ms = round(next((each.took_ms for each in self._attempt.until(0) if each.name == "plan"), 0.0))
        return replace(verified, durations_ms={"plan": plan_ms, **verified.durations_ms})

    def dropped(self, plan: JobPlan) -> None:
        self.parallelism.dropped()
        self.scheduler.put_back(plan.served)

    def commit(self, plan: JobPlan, ran: JobRan, decision: Decision, verified: Verified) -> None:
        if not plan.again:
            self.parallelism.decided(time.monotonic())
            if self._locality.decided():
                self.coordinator.log.info("spread", why="keyed tasks keep moving between executors")
                self.jobs.spread()
            self.time.checkpointed(ran.advanced, drained=plan.drain)
            self.tracker.decided(ran.load)
        attempt = self._attempt
        attempt.enter("commit")

        def commit() -> tuple[Carried, float]:
            with (
                self.attempts.attempt(plan.checkpoint, lambda: False, began=attempt.began, phase="commit"),
                self.coordinator.taking(plan.checkpoint),
            ):
                return self.coordinator.commit(decision), time.monotonic()

        self._commit = _Commit(
            plan, ran, decision, verified.durations_ms, in_thread(commit, "poundlock-commit"), attempt
        )
        self.scheduler.decided(plan.began)
        self.ended = self.planner.finished(self.coordinator.sources)

    def _show_time(self) -> None:
        if self.time.active:
            self.tracker.event_time(self.time.slowest.after, self.time.slowest.held_by)


def task_results(
    chain: StageChain,
    plan: CheckpointPlan,
    reports: Sequence[TaskReport],
    *,
    watermarks: DecidedTime | None,
    event_time: EventTime | None,
) -> TaskResults:
    """Return the sums of a checkpoint's reports.

    Raises:
        TransientError: the tasks did not read just the splits that were planned for them.
    """
    _check_splits(plan, reports)
    totals = total_counts(reports)
    return TaskResults(
        prepared=[item for report in reports for item in report.prepared],
        counts=sink_counts(chain.nodes, chain.segments, totals, keeps_dead_letters=chain.keeps_dead_letters),
        rows_read={name: totals[name].rows_in if name in totals else 0 for name in chain.source.sources},
        bytes_read=_bytes_read(reports),
        tasks=len(plan.work) or None,
        watermarks=watermarks,
        event_time=event_time,
        state=[report.state for report in reports if report.state is not None],
        metrics=over_tasks(report.metrics for report in reports),
        skew=Skew(together(report.groups for report in reports), together(report.splits for report in reports)),
    )


def _check_splits(plan: CheckpointPlan, reports: Sequence[TaskReport]) -> None:
    for name, planned in plan.splits.items():
        read = sum(report.reads[name].splits for report in reports if name in report.reads)
        if read != planned:
            raise TransientError(
                f"{planned} splits of {name!r} were planned and {read} were read",
                next="nothing was committed; the checkpoint is taken again",
            )


def _bytes_read(reports: Sequence[TaskReport]) -> dict[str, int]:
    """Return how large what was read is, per source whose readers all count."""
    reads = [(name, read.bytes) for report in reports for name, read in report.reads.items()]
    uncounted = {name for name, size in reads if size is None}
    sizes: dict[str, int] = {}
    for name, size in reads:
        if size is not None and name not in uncounted:
            sizes[name] = sizes.get(name, 0) + size
    return sizes
