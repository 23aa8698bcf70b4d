"""The checkpoint coordinator: verify, decide, commit, and the same again after a crash.

Nothing becomes visible before a ledger record names it; once recorded, nothing is aborted and everything is committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from poundlock.checkpoint.checks import (
    check_continues,
    check_counts,
    check_same_ranges,
)
from poundlock.checkpoint.commits import Retry
from poundlock.checkpoint.decision import Decision, Redo, SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.history import History
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger import Ledger
from poundlock.checkpoint.outcome import Directive, Log, Outcome, Recovery, TaskResults
from poundlock.checkpoint.participant import JSON, Early, Occasion, Orphan, Participant, Prepared, Repeatable, Staged
from poundlock.checkpoint.records import resting, state_of
from poundlock.checkpoint.trouble import explained
from poundlock.checkpoint.written import written
from poundlock.errors import CommitUnknown, TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.values import Clock

__all__ = ["Coordinator"]

_END_ROUNDS = 100
_REDO_ROUNDS = 5


class Coordinator:
    """Decides and carries out the checkpoints of one job, in one life of its driver.

    Args:
        identity: whose checkpoint it is.
        epoch: this driver's life.
        ledger: the decisions so far.
        participants: per name, the job's sinks.
        clock: the time.
        log: where events go.
        retry: how commits with unknown outcomes are repeated.
        sleep: waits so many seconds.
        ignore_ledger: for tests only, to show that they can fail: believe no decision that was made before.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        epoch: Epoch,
        ledger: Ledger,
        participants: Mapping[str, Participant],
        clock: Clock,
        log: Log | None = None,
        retry: Retry | None = None,
        sleep: Callable[[float], None] = time.sleep,
        ignore_ledger: bool = False,
    ) -> None:
        self.lock = threading.RLock()
        """Taken by everything that decides; take it to look at several facts at once."""
        self._identity = identity
        self._epoch = epoch
        self._participants = dict(participants)
        self._clock = clock
        self._ignore_ledger = ignore_ledger
        self._history = History(
            identity=identity,
            epoch=epoch,
            ledger=ledger,
            participants=self._participants,
            clock=clock,
            log=log,
            retry=retry,
            sleep=sleep,
            ignore_ledger=ignore_ledger,
        )

    @property
    def newest(self) -> Decision:
        """The newest decision, this life's start record at first.

        Raises:
            TransientError: `recover` has not been called, or must be called again.
        """
        return self._history.newest

    @property
    def sources(self) -> Mapping[str, SourceRange]:
        """Per source, the newest decided range; the next checkpoint begins where it ends."""
        return self._history.sources

    @property
    def watermarks(self) -> JSON | None:
        """The watermarks behind the newest decided checkpoint; None where there are none."""
        return self._history.watermarks

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
        with self.lock, explained("recovering", job=self._identity.name, starting=True):
            begun = self._clock.now_ms()
            before, committed = self._history.take_over()
            orphans = self._sweep()
            recovery = Recovery(
                newest=before,
                checkpoint=self.newest.checkpoint,
                sources=self.sources,
                committed=committed,
                orphans=orphans,
                took_ms=max(0, self._clock.now_ms() - begun),
            )
        self._history.log.info(
            "recovered",
            checkpoint=recovery.checkpoint,
            committed=committed,
            orphans=sum(len(found) for found in orphans.values()),
            took_ms=recovery.took_ms,
        )
        return recovery

    def is_produced_again(self, checkpoint: int) -> bool:
        """Return whether a decided checkpoint has parts that were aborted and must be produced once more."""
        return self._history.is_produced_again(checkpoint)

    def decided(self, checkpoint: int) -> Mapping[str, SourceRange] | None:
        """Return what a checkpoint was decided to read, None if it is not decided.

        Raises:
            TerminalError: the ledger never decided it, although it decided a later one.
        """
        with self.lock:
            if not self._history.is_decided(checkpoint):
                return None
            return self._history.find(checkpoint).sources

    def decided_watermarks(self, checkpoint: int) -> JSON | None:
        """Return the watermarks behind a decided checkpoint; None where it is not decided or has none."""
        with self.lock:
            return self._history.find(checkpoint).watermarks if self._history.is_decided(checkpoint) else None

    def begin(self, checkpoint: int) -> Directive:
        """Return what the tasks of a checkpoint are told. Decides nothing; may be called any number of times."""
        again = self.is_produced_again(checkpoint)
        decided = self._history.is_decided(checkpoint) and not again
        names = [] if decided else list(self._history.redo) if again else list(self._participants)
        return {
            "checkpoint": checkpoint,
            "epoch": self._epoch.number,
            "started_ms": self._clock.now_ms(),
            "decided": decided,
            "sinks": {name: self._participants[name].directive(state_of(self.newest, name)) for name in names},
        }

    def checkpoint(
        self, n: int, sources: Mapping[str, SourceRange], run: Callable[[Directive], TaskResults]
    ) -> Outcome:
        """Carry one micro-batch through both gates, or see that it went through before.

        Args:
            n: the batch's number. Numbers rise, may have gaps, and come again after a crash.
            sources: per source name, what the batch reads.
            run: runs the tasks with a directive and returns when all have ended; called once, and once more each time
                that a part was aborted from outside after the decision.

        Raises:
            TransientError: tasks, storage or a sink failed; a restart goes on. What was not decided is aborted.
            TerminalError: the batch does not add up, or belongs to another history.
            FencedError: a newer driver has taken over.
        """
        with self.lock, explained(f"taking checkpoint {n}", job=self._identity.name, checkpoint=n):
            hit(Failpoint.BATCH_PLANNED)
            hit(Failpoint.CHECKPOINT_ENTERED)
            self._history.ready()
            if self.is_produced_again(n):
                outcome = self._produce_again(n, sources, run)
            else:
                outcome = self._resume(n, sources, run) if self._history.is_decided(n) else self._take(n, sources, run)
            for _ in range(_REDO_ROUNDS):
                if not self.is_produced_again(n):
                    break
                outcome = self._produce_again(n, sources, run)
            self._check_done(n)
            hit(Failpoint.CHECKPOINT_DONE)
            return outcome

    def roll(self, occasion: Occasion) -> Outcome | None:
        """Decide and commit what is due by time alone (ROLL) or at the end (END); None if nothing is.

        An end leaves a last record that names nothing: the proof that everything before it is visible.

        Raises:
            TransientError, TerminalError, FencedError: as in `checkpoint`.
        """
        with self.lock, explained(f"finishing files ({occasion.value})", job=self._identity.name):
            self._history.ready()
            last: Outcome | None = None
            visible: dict[str, list[Mapping[str, Any]]] = {}
            staged = self._stage([], occasion)
            for _ in range(_END_ROUNDS):
                if not self._changes(staged):
                    break
                last = self._decide_roll(occasion, staged)
                if occasion is not Occasion.END:
                    return last
                for name, details in last.committed.items():
                    visible.setdefault(name, []).extend(details)
                staged = self._stage([], occasion)
            else:
                raise TerminalError(f"a sink still had data to finish after {_END_ROUNDS} rounds", next="report this")
            if occasion is Occasion.END and any(sink.committables for sink in self.newest.sinks.values()):
                self._decide_roll(occasion, staged)
            return None if last is None else replace(last, committed=visible)

    def sweep(self) -> None:
        """Remove what tasks of failed attempts left behind, at the end of a job and with no task running.

        Raises:
            FencedError: a newer driver has taken over.
        """
        with self.lock, explained("removing leftovers", job=self._identity.name):
            self._sweep()

    def next_roll_ms(self) -> int | None:
        """Return when, by the clock, `roll(ROLL)` will have something to do; None = not by time alone."""
        with self.lock:
            newest = self.newest
            times = (item.next_roll_ms(state_of(newest, name)) for name, item in self._participants.items())
            return min((time for time in times if time is not None), default=None)

    def _check_done(self, n: int) -> None:
        if self.is_produced_again(n):
            raise TransientError(
                f"checkpoint {self.newest.checkpoint} was aborted from outside in {', '.join(self._history.redo)} each time it was produced",
                next="look at the other system's limits, such as the transaction timeout; the job goes on by itself",
            )

    def _produce_again(
        self, n: int, sources: Mapping[str, SourceRange], run: Callable[[Directive], TaskResults]
    ) -> Outcome:
        """Produce and decide what of a decided checkpoint was aborted from outside; the rest of it stays as it is."""
        self._epoch.check()  # what looks aborted to a driver that slept may be a newer one's
        decided = self._history.find(n)
        check_same_ranges(decided, sources)
        begun, directive = self._clock.now_ms(), self.begin(n)
        results = run(directive)
        ran = self._clock.now_ms()
        staged: dict[str, Staged] = {}
        kept: list[Prepared] = []
        with self._aborting(results.prepared):
            self._epoch.check()
            for name, redo in self._history.redo.items():
                participant = self._participants[name]
                assert isinstance(participant, Repeatable)
                mine = [item for item in results.prepared if item.sink == name]
                keep, drop = participant.match(redo.again, redo.done, mine)
                self._abort(drop)
                participant.verify(keep)
                kept += keep
                staged[name] = participant.stage(state_of(self.newest, name), keep, Occasion.CHECKPOINT, ran)
            durations = {"run": max(0, ran - begun), "verify": max(0, self._clock.now_ms() - ran)}
            decision = self._history.record(
                Occasion.CHECKPOINT,
                staged,
                durations,
                checkpoint=n,
                sources={name: replace(span, rows=None) for name, span in decided.sources.items()},
                wrote=written(kept),
                started_ms=directive["started_ms"],
                redo={name: Redo((), redo.done) for name, redo in self._history.redo.items()},
                watermarks=decided.watermarks,
            )
        self._history.log.info("produced again", checkpoint=n, sinks=list(staged))
        return self._history.finish(decision, durations)

    def _take(self, n: int, sources: Mapping[str, SourceRange], run: Callable[[Directive], TaskResults]) -> Outcome:
        if not self._ignore_ledger:
            check_continues(self._history.sources, n, sources)
        if self._history.redo:
            raise TerminalError(
                f"part of checkpoint {self.newest.checkpoint} has to be produced again, but Spark goes on with {n}",
                next="restore Spark's checkpoint and the ledger from the same moment",
            )
        begun, directive = self._clock.now_ms(), self.begin(n)
        results = run(directive)
        ran = self._clock.now_ms()
        with self._aborting(results.prepared):
            self._epoch.check()  # verifying may abort what attempts left open: it must not be a newer driver's
            self._verify(n, results)
            hit(Failpoint.PREPARE_VERIFIED)
            staged = self._stage(results.prepared, Occasion.CHECKPOINT)
            durations = {"run": max(0, ran - begun), "verify": max(0, self._clock.now_ms() - ran)}
            decision = self._history.record(
                Occasion.CHECKPOINT,
                staged,
                durations,
                checkpoint=n,
                sources={
                    **resting(self._history.sources, sources),
                    **{
                        name: replace(span, rows=results.rows_read.get(name), bytes=results.bytes_read.get(name))
                        for name, span in sources.items()
                    },
                },
                counts=results.counts,
                wrote=written(results.prepared),
                started_ms=directive["started_ms"],
                event_time=results.event_time,
                tasks=results.tasks,
                watermarks=results.watermarks,
            )
        return self._history.finish(decision, durations)

    def _resume(self, n: int, sources: Mapping[str, SourceRange], run: Callable[[Directive], TaskResults]) -> Outcome:
        """See a decided checkpoint through again: the rows are read, as Spark demands, and nothing is written."""
        decided = self._history.find(n)
        check_same_ranges(decided, sources)
        begun = self._clock.now_ms()
        results = run(self.begin(n))
        self._abort(results.prepared)
        self._history.log.info("checkpoint was decided before", checkpoint=n, record=decided.number)
        return Outcome(decision=decided, replayed=True, durations_ms={"run": max(0, self._clock.now_ms() - begun)})

    def _verify(self, n: int, results: TaskResults) -> None:
        check_counts(results, self._participants)
        for name, participant in self._participants.items():
            prepared = [item for item in results.prepared if item.sink == name]
            if prepared:
                participant.verify(prepared)
            elif isinstance(participant, Early):
                participant.verify_nothing(n)

    def _stage(self, prepared: Sequence[Prepared], occasion: Occasion) -> dict[str, Staged]:
        newest, now = self.newest, self._clock.now_ms()
        return {
            name: participant.stage(
                state_of(newest, name), [item for item in prepared if item.sink == name], occasion, now
            )
            for name, participant in self._participants.items()
        }

    def _changes(self, staged: Mapping[str, Staged]) -> bool:
        """Return whether there is anything to decide: what becomes visible, or what moves on towards it."""
        return any(part.committables or part.state != state_of(self.newest, name) for name, part in staged.items())

    def _decide_roll(self, occasion: Occasion, staged: Mapping[str, Staged]) -> Outcome:
        return self._history.finish(self._history.record(occasion, staged, {}), {})

    @contextmanager
    def _aborting(self, prepared: Sequence[Prepared]) -> Iterator[None]:
        """Abort what was prepared if it cannot be decided."""
        try:
            yield
        except CommitUnknown:
            raise  # it may be decided: nothing is aborted, the next start finds out
        except Exception:
            self._abort(prepared)
            raise

    def _abort(self, prepared: Sequence[Prepared]) -> None:
        for item in prepared:
            try:
                self._participants[item.sink].abort(item)
            except Exception as error:  # the failure that led here is the one to report; sweep finds what is left
                self._history.log.warning("abort failed", sink=item.sink, subtask=item.subtask, why=str(error))

    def _sweep(self) -> dict[str, Sequence[Orphan]]:
        newest = self.newest
        return {
            name: participant.sweep(state_of(newest, name), remove=True, check=self._epoch.check)
            for name, participant in self._participants.items()
        }
