"""The checkpoint coordinator: verify, decide, commit, and the same again after a crash.

Nothing becomes visible before a ledger record names it; once recorded, nothing is aborted and everything is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from poundlock.audit.write_totals import written
from poundlock.checkpoint.capabilities import FollowsTime, Repeatable, SinkTime, prepares_ahead
from poundlock.checkpoint.committer import Carried, abort_all, verify_all
from poundlock.checkpoint.cycle import Planned, Ran, Verified, recover, run_checkpoint
from poundlock.checkpoint.decision import Decision, Redo, SourceRange
from poundlock.checkpoint.ledger.decision_log import History
from poundlock.checkpoint.ledger.records import resting, state_of
from poundlock.checkpoint.outcome import Outcome, Recovery, SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Leftover, Occasion, Orphan, Prepared, Staged
from poundlock.checkpoint.sweeping import remove_left, sweep_all
from poundlock.checkpoint.validation import check_continues, check_counts, check_same_ranges
from poundlock.errors import CommitUnknown, TerminalError
from poundlock.failpoints import Failpoint, hit
from poundlock.metrics.timeline import CommitCall
from poundlock.metrics.user_totals import after
from poundlock.storage.storage_errors import explained

_END_ROUNDS = 100
_NO_TIMES: Mapping[str, SinkTime] = {}


@dataclass(kw_only=True, eq=False)
class Coordinator(History):
    """Decides and carries out the checkpoints of one job, in one life of its driver; see `History` for what it is given."""

    tasks_follow: bool = False
    """Whether `tasks` is set behind the recovery: very many leftovers are removed by `remove_left` then."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        """Taken by everything that decides; take it to look at several facts at once."""
        self.prepares_ahead = all(prepares_ahead(participant) for participant in self.participants.values())
        """Whether the tasks of the next checkpoint may run while the newest one is committed."""
        self._rolls: tuple[Decision, int | None] | None = None
        self._waiting: tuple[Decision, Mapping[str, int]] | None = None
        self._left: dict[str, Sequence[Leftover]] = {}

    def recover(self) -> Recovery:
        """Bring the sinks to the state of the newest decision. Call it once, before the query starts.

        The newest decision is carried out to its end; then a record of this start closes the ledger to older drivers,
        and only then is output that no decision names removed, for nobody can name it any more.

        Raises:
            DefinitionError: a sink with pending data was taken out of the job.
            TerminalError: the ledger is damaged or another job's, or data that a decision names is gone.
            TransientError: a commit's outcome stayed unknown, or storage failed.
            FencedError: a newer driver has taken over.
        """
        with self.lock, explained("recovering", job=self.identity.name, starting=True):
            begun = self.clock.now_ms()
            before, carried, orphans = recover(self, self._sweep)
            recovery = Recovery(
                newest=before,
                checkpoint=self.newest.checkpoint,
                sources=self.sources,
                committed=0 if carried is None else sum(len(done) for done in carried.done.values()),
                files=0 if carried is None else Outcome(decision=self.newest, committed=carried.done).files_made,
                orphans=orphans,
                took_ms=max(0, self.clock.now_ms() - begun),
            )
        self.log.info(
            "recovered",
            checkpoint=recovery.checkpoint,
            committed=recovery.committed,
            orphans=sum(len(each) for each in orphans.values()),
            took_ms=recovery.took_ms,
        )
        return recovery

    def decided(self, checkpoint: int) -> Mapping[str, SourceRange] | None:
        """Return what a checkpoint was decided to read, None if it is not decided.

        Raises:
            TerminalError: the ledger never decided it, although it decided a later one.
        """
        with self.lock:
            return self.find(checkpoint).sources if self.is_decided(checkpoint) else None

    # --- the steps of a checkpoint; see `cycle.run_checkpoint` for their order ------------------------------------------

    def begin(self, checkpoint: int) -> SinkDirectives:
        """Return what the tasks of a checkpoint are given. Decides nothing; may be called any number of times."""
        again = self.is_produced_again(checkpoint)
        decided = self.is_decided(checkpoint) and not again
        names = [] if decided else list(self.redo) if again else list(self.participants)
        return SinkDirectives(
            checkpoint=checkpoint,
            epoch=self.epoch.number,
            started_ms=self.clock.now_ms(),
            decided=decided,
            sinks={name: self.participants[name].directive(state_of(self.newest, name)) for name in names},
        )

    def directive(self, plan: Planned) -> SinkDirectives:
        """Return what the tasks of a planned checkpoint are given: all of its sinks, or those whose part was aborted.

        Raises:
            TerminalError: the plan does not go on where the newest decision ended, or is not what was decided.
            FencedError: a newer driver has taken over.
        """
        if self.is_produced_again(plan.checkpoint):
            self.epoch.check()  # what looks aborted to a driver that slept may be a newer one's
            check_same_ranges(self.find(plan.checkpoint), plan.ranges)
        elif self.redo:
            raise TerminalError(
                f"part of checkpoint {self.newest.checkpoint} has to be produced again, but the job goes on with {plan.checkpoint}",
                next="restore the whole checkpoint folder from one moment",
            )
        else:
            try:
                check_continues(self.sources, plan.checkpoint, plan.ranges)
            except TerminalError:
                self.epoch.check()  # a newer driver may have gone on: then that is what is wrong
                raise
        return self.begin(plan.checkpoint)

    def verify(self, ran: Ran) -> Verified:
        """Check that what the tasks prepared adds up and can be committed; the outcome of the commit before is known.

        Raises:
            TransientError, TerminalError: it cannot; nothing is decided.
        """
        plan, results, ended = ran.planned, ran.results, self.clock.now_ms()
        self.epoch.check()  # verifying may abort what attempts left open: it must not be a newer driver's
        again = self.is_produced_again(plan.checkpoint)
        kept: Sequence[Prepared]
        if again:
            kept, staged = self._verify_again(results, ended)
        else:
            kept = results.prepared
            check_counts(results, self.participants)
            verify_all(self.participants, results.prepared, plan.checkpoint, log=self.log, tasks=self.tasks)
            hit(Failpoint.PREPARE_VERIFIED)
            staged = self._stage(kept, Occasion.CHECKPOINT, results.sink_times)
        state = None if self.state is None else self.state.stage(results.state, again=again)
        begun = ran.directive.started_ms
        durations = {"run": max(0, ended - begun), "verify": max(0, self.clock.now_ms() - ended)}
        return Verified(
            results=results, kept=kept, staged=staged, started_ms=begun, durations_ms=durations, state=state
        )

    def decide(self, plan: Planned, verified: Verified) -> Decision:
        """Record the decision: from here on all that it names becomes visible, whatever happens."""
        fields = self._again(plan, verified) if self.is_produced_again(plan.checkpoint) else self._first(plan, verified)
        return self.record(
            Occasion.CHECKPOINT,
            verified.staged,
            durations_ms=verified.durations_ms,
            checkpoint=plan.checkpoint,
            wrote=written(verified.kept),
            started_ms=verified.started_ms,
            state=verified.state,
            **fields,
        )

    def committed(self, decision: Decision, carried: Carried, durations_ms: Mapping[str, int]) -> Outcome:
        """Take note that a checkpoint is committed, or which parts of it have to be produced again; raises as `History`."""
        outcome = super().committed(decision, carried, durations_ms)
        if not self.is_produced_again(decision.checkpoint):
            hit(Failpoint.CHECKPOINT_DONE)
        return outcome

    def _first(self, plan: Planned, verified: Verified) -> dict[str, Any]:
        """Return what only the first decision of a checkpoint says."""
        results = verified.results
        read = {
            name: replace(span, rows=results.rows_read.get(name), bytes=results.bytes_read.get(name))
            for name, span in plan.ranges.items()
        }
        return {
            "sources": {**resting(self.sources, plan.ranges), **read},
            "counts": results.counts,
            "event_time": results.event_time,
            "tasks": results.tasks,
            "parallelism": results.parallelism,
            "watermarks": results.watermarks,
            "metrics": after(self.metrics, results.metrics),
        }

    def _again(self, plan: Planned, verified: Verified) -> dict[str, Any]:
        """Return what the decision says that replaces what was aborted of a checkpoint."""
        decided = self.find(plan.checkpoint)
        self.log.info("produced again", checkpoint=plan.checkpoint, sinks=list(verified.staged))
        return {
            "sources": {name: replace(span, rows=None) for name, span in decided.sources.items()},
            "redo": {name: Redo((), redo.done) for name, redo in self.redo.items()},
            "parallelism": decided.parallelism,
            "watermarks": decided.watermarks,
            "metrics": self.metrics,
        }

    def _verify_again(self, results: TaskResults, now_ms: int) -> tuple[list[Prepared], dict[str, Staged]]:
        kept: list[Prepared] = []
        staged: dict[str, Staged] = {}
        for name, redo in self.redo.items():
            participant = self.participants[name]
            assert isinstance(participant, Repeatable)
            mine = [item for item in results.prepared if item.sink == name]
            keep, drop = participant.match(redo.again, redo.done, mine)
            self.abort(drop)
            participant.verify(keep)
            kept += keep
            staged[name] = participant.stage(state_of(self.newest, name), keep, Occasion.CHECKPOINT, now_ms)
        return kept, staged

    def checkpoint(
        self, n: int, sources: Mapping[str, SourceRange], run: Callable[[SinkDirectives], TaskResults]
    ) -> Outcome:
        """Take one checkpoint and wait until it is committed, or see that it was decided before.

        Args:
            run: runs its tasks; once, and once more for each time that parts of it were aborted from outside.

        Raises:
            TransientError, TerminalError, FencedError: see `cycle.run_checkpoint`.
        """
        with self.lock:
            hit(Failpoint.CHECKPOINT_PLANNED)
            hit(Failpoint.CHECKPOINT_ENTERED)
            self.ready()
            if self.is_decided(n) and not self.is_produced_again(n):
                with explained(f"taking checkpoint {n}", job=self.identity.name, checkpoint=n):
                    outcome = self._resume(n, sources, run)
                    hit(Failpoint.CHECKPOINT_DONE)
                    return outcome
            steps = _OneByOne(self, Planned(n, sources), run)
            run_checkpoint(steps)
            while self.is_produced_again(n):
                run_checkpoint(steps)
            assert steps.outcome is not None
            return steps.outcome

    def taking(self, checkpoint: int) -> AbstractContextManager[None]:
        """Name a checkpoint in what goes wrong with it."""
        return explained(f"taking checkpoint {checkpoint}", job=self.identity.name, checkpoint=checkpoint)

    def roll(self, occasion: Occasion) -> Outcome | None:
        """Decide and commit what is due by time alone (ROLL) or at the end (END); None if nothing is.

        An end leaves a last record that names nothing: the proof that everything before it is visible.

        Raises:
            TransientError, TerminalError, FencedError: as in `checkpoint`.
        """
        with self.lock, explained(f"finishing files ({occasion.value})", job=self.identity.name):
            self.ready()
            last: Outcome | None = None
            visible: dict[str, list[Mapping[str, Any]]] = {}
            calls: list[CommitCall] = []
            staged = self._stage([], occasion)
            for _ in range(_END_ROUNDS):
                if not self._changes(staged):
                    break
                last = self._decide_roll(occasion, staged)
                if occasion is not Occasion.END:
                    return last
                calls += last.calls
                for name, details in last.committed.items():
                    visible.setdefault(name, []).extend(details)
                staged = self._stage([], occasion)
            else:
                raise TerminalError(f"a sink still had data to finish after {_END_ROUNDS} rounds", next="report this")
            if occasion is Occasion.END and any(sink.committables for sink in self.newest.sinks.values()):
                self._decide_roll(occasion, staged)
            return None if last is None else replace(last, committed=visible, calls=calls)

    def sweep(self) -> None:
        """Remove what tasks of failed attempts left behind, between two checkpoints and with no task running.

        Raises:
            FencedError: a newer driver has taken over.
        """
        with self.lock, explained("removing leftovers", job=self.identity.name):
            self._sweep()

    def remove_left(self) -> None:
        """Remove what the recovery left for tasks, once there are some. Raises as `sweep`."""
        with self.lock, explained("removing leftovers", job=self.identity.name, starting=True):
            remove_left(self.participants, self._left, check=self.epoch.check, tasks=self.tasks, log=self.log)

    def next_roll_ms(self) -> int | None:
        """Return when, by the clock, `roll(ROLL)` will have something to do; None = not by time alone."""
        with self.lock:
            newest = self.newest
            if self._rolls is None or self._rolls[0] is not newest:  # asked for many times between two decisions
                times = (item.next_roll_ms(state_of(newest, name)) for name, item in self.participants.items())
                self._rolls = newest, min((time for time in times if time is not None), default=None)
            return self._rolls[1]

    def next_watermarks(self) -> Mapping[str, int]:
        """Return the watermark, ms, from which a sink would commit something though no row came, by the names of sinks that wait for one."""
        with self.lock:
            newest = self.newest
            if self._waiting is None or self._waiting[0] is not newest:
                following = [(name, item) for name, item in self.participants.items() if isinstance(item, FollowsTime)]
                times = {name: item.next_watermark(state_of(newest, name)) for name, item in following}
                self._waiting = newest, {name: time for name, time in times.items() if time is not None}
            return self._waiting[1]

    def _resume(
        self, n: int, sources: Mapping[str, SourceRange], run: Callable[[SinkDirectives], TaskResults]
    ) -> Outcome:
        """See a decided checkpoint through again: the rows are read, as Spark demands, and nothing is written."""
        decided = self.find(n)
        check_same_ranges(decided, sources)
        begun = self.clock.now_ms()
        results = run(self.begin(n))
        self.abort(results.prepared)
        self.log.info("checkpoint was decided before", checkpoint=n, record=decided.number)
        return Outcome(decision=decided, replayed=True, durations_ms={"run": max(0, self.clock.now_ms() - begun)})

    def _stage(
        self, prepared: Sequence[Prepared], occasion: Occasion, times: Mapping[str, SinkTime] = _NO_TIMES
    ) -> dict[str, Staged]:
        """Return what the decision is to say of each sink. `times`: of a checkpoint, how far event time has come for some of them."""
        newest, now = self.newest, self.clock.now_ms()
        staged = {}
        for name, participant in self.participants.items():
            staging = state_of(newest, name), [item for item in prepared if item.sink == name], occasion, now
            if name in times and isinstance(participant, FollowsTime):
                staged[name] = participant.stage_at(*staging, times[name])
            else:
                staged[name] = participant.stage(*staging)
        return staged

    def _changes(self, staged: Mapping[str, Staged]) -> bool:
        """Return whether there is anything to decide: what becomes visible, or what moves on towards it."""
        return any(part.committables or part.state != state_of(self.newest, name) for name, part in staged.items())

    def _decide_roll(self, occasion: Occasion, staged: Mapping[str, Staged]) -> Outcome:
        decision = self.record(occasion, staged, durations_ms={}, sources={})
        return super().committed(decision, self.commit(decision), {})

    @contextmanager
    def aborting(self, prepared: Sequence[Prepared]) -> Iterator[None]:
        """Abort what was prepared if it cannot be decided."""
        try:
            yield
        except CommitUnknown:
            raise  # it may be decided: nothing is aborted, the next start finds out
        except Exception:
            self.abort(prepared)
            raise

    def abort(self, prepared: Sequence[Prepared]) -> None:
        """Remove what no decision is going to name."""
        for item, error in abort_all(self.participants, prepared, log=self.log, tasks=self.tasks):
            # The failure that led here is the one to report; sweep finds what is left.
            self.log.warning("abort failed", sink=item.sink, subtask=item.subtask, why=str(error))

    def _sweep(self) -> dict[str, Sequence[Orphan]]:
        newest = self.newest
        if self.state is not None:
            self.state.sweep()
        self._left.clear()
        orphans = sweep_all(self.participants, partial(state_of, newest), check=self.epoch.check, later=self._left)
        if self.tasks is not None or not self.tasks_follow:
            remove_left(self.participants, self._left, check=self.epoch.check, tasks=self.tasks, log=self.log)
        return orphans


@dataclass
class _OneByOne:
    """The steps of a checkpoint that is committed before the next begins. See `cycle.CheckpointSteps`."""

    coordinator: Coordinator
    planned: Planned
    tasks: Callable[[SinkDirectives], TaskResults]
    outcome: Outcome | None = None

    def plan(self) -> Planned:
        return self.planned

    def taking(self, plan: Planned) -> AbstractContextManager[None]:
        return self.coordinator.taking(plan.checkpoint)

    def run(self, plan: Planned) -> Ran:
        directive = self.coordinator.directive(plan)
        return Ran(plan, directive, self.tasks(directive))

    def await_commit(self, plan: Planned) -> bool:
        return True

    def verify(self, ran: Ran) -> Verified:
        return self.coordinator.verify(ran)

    def dropped(self, plan: Planned) -> None:
        """Never called: no checkpoint is open before."""

    def commit(self, plan: Planned, ran: Ran, decision: Decision, verified: Verified) -> None:
        self.outcome = self.coordinator.committed(decision, self.coordinator.commit(decision), verified.durations_ms)
