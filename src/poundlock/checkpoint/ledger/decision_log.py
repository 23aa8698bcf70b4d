"""The decisions of one life of a driver: what became of each is known before the next is recorded.

What is the newest, whether it is committed, and what of it was aborted from outside is known here and nowhere else. A commit runs
in any thread; whoever decides takes note of its outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.capabilities import Repeatable
from poundlock.checkpoint.committer import Carried, Retry, commit_all
from poundlock.checkpoint.decision import Decision, Redo, SinkDecision, SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.in_tasks import Tasks
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import START, find_checkpoint, state_parts, to_redo
from poundlock.checkpoint.outcome import Log, Outcome, StandardLog
from poundlock.checkpoint.participant import JSON, Counts, Occasion, Participant, Staged
from poundlock.checkpoint.validation import check_owner, check_removed_sinks
from poundlock.errors import FencedError, TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.metrics.user_totals import UserMetrics
from poundlock.operators.time_values import DecidedTime
from poundlock.values import Clock

if TYPE_CHECKING:
    from poundlock.state.job_state import JobState

_ROUNDS = 6  # the first, and those in which parts that were aborted from outside are produced again


@dataclass(kw_only=True, eq=False)
class History:
    """The decisions of one life of a job's driver."""

    identity: Identity
    epoch: Epoch
    ledger: Ledger
    participants: Mapping[str, Participant]
    clock: Clock
    log: Log = field(default_factory=StandardLog)
    retry: Retry = field(default_factory=Retry)  # how commits with unknown outcomes are repeated
    sleep: Callable[[float], None] = time.sleep  # waits so many seconds
    state: JobState | None = None  # the job's keyed state; None where it has none
    tasks: Tasks | None = None  # what runs very many commits on the cluster; None while there is none
    sources: Mapping[str, SourceRange] = field(default_factory=dict, init=False)
    """Per source, the newest decided range; the next checkpoint begins where it ends."""
    watermarks: DecidedTime | None = field(default=None, init=False)
    """The watermarks behind the newest decided checkpoint; None where there are none."""
    parallelism: int | None = field(default=None, init=False)
    """The parallelism of the newest decided checkpoint; None where its decision does not say."""
    metrics: UserMetrics | None = field(default=None, init=False)
    """What the job's own metrics add up to; None where it has none."""
    redo: Mapping[str, Redo] = field(default_factory=dict, init=False)
    """Per sink, what of the newest checkpoint was aborted from outside."""
    _newest: Decision | None = field(default=None, init=False)  # None also while a decision's fate is not known
    _open: bool = field(default=False, init=False)  # whether it is not known yet what became of the newest decision
    _rounds: int = field(default=0, init=False)  # so often in a row was the newest checkpoint aborted from outside
    _last_ms: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def newest(self) -> Decision:
        """The newest decision, this life's start record at first.

        Raises:
            TransientError: the ledger has not been taken over, or must be again.
        """
        if self._newest is None:
            raise TransientError(
                "the newest decision is not known", next="start the job again; it reads the ledger and goes on"
            )
        return self._newest

    def is_decided(self, checkpoint: int) -> bool:
        """Return whether a checkpoint is decided, produced again or not."""
        return checkpoint <= self.newest.checkpoint

    def is_produced_again(self, checkpoint: int) -> bool:
        """Return whether a decided checkpoint has parts that were aborted and must be produced once more."""
        return bool(self.redo) and checkpoint == self.newest.checkpoint

    def find(self, checkpoint: int) -> Decision:
        """Return the record of a decided checkpoint. Raises TerminalError where the ledger never decided it."""
        return find_checkpoint(self.ledger, self.newest, checkpoint)

    # --- a start; see `cycle.recover` for the order --------------------------------------------------------------------

    def newest_decision(self) -> Decision | None:
        """Return what an earlier life decided last, durably."""
        self.epoch.check()
        before = self.ledger.newest()
        check_owner(before, self.identity)
        check_removed_sinks(before, self.participants, self.identity.name)
        if before is not None:
            self.ledger.settle(before.number)
        return before

    def commit_again(self, before: Decision | None) -> Carried | None:
        """Commit all that a decision names; None where that is known to be done."""
        if before is None or self.ledger.is_committed(before.number):
            return None
        return self._commit_all(before)

    def take_over(self, before: Decision | None, carried: Carried | None) -> bool:
        """Record this start, which closes the ledger to older drivers; return False where one of them decided once more."""
        redo = (to_redo(before, carried) if carried is not None else {}) or to_redo(before)
        state = None if self.state is None else self.state.resume(state_parts(self.ledger, before), again=bool(redo))
        states: dict[str, JSON] = {name: {} for name in self.participants}
        latest = None
        if before is not None:
            states.update({name: dict(sink.state) for name, sink in before.sinks.items()})
            # Rolls and ends name no sources; few of them stand between two records that do.
            latest = next((each for each in self.ledger.back(before) if each.occasion in ("checkpoint", START)), None)
        start = Decision(
            number=before.number + 1 if before else 0,
            occasion=START,
            checkpoint=before.checkpoint if before else -1,
            job_id=self.identity.job_id,
            epoch=self.epoch.number,
            time_ms=self.clock.now_ms(),
            sources=latest.sources if latest else {},
            sinks={name: SinkDecision([], each) for name, each in states.items()},
            redo=redo,
            parallelism=latest.parallelism if latest else None,
            watermarks=latest.watermarks if latest else None,
            state=state,
            metrics=latest.metrics if latest else None,
        )
        try:
            self.ledger.append(start)
        except FencedError:
            # An older driver was about to decide and was first: its decision stands and is committed as well.
            return False
        self.ledger.mark_committed(start.number)
        self._newest, self._open, self.sources, self.redo = start, False, start.sources, start.redo
        self.watermarks, self.parallelism, self.metrics = start.watermarks, start.parallelism, start.metrics
        return True

    # --- a decision ----------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Finish what an earlier call left after its decision."""
        newest = self.newest
        self.epoch.check()
        if self._open:  # an earlier call failed after its decision
            self._note(newest, self._commit_all(newest))

    def record(
        self,
        occasion: Occasion,
        staged: Mapping[str, Staged],
        *,
        durations_ms: Mapping[str, int],
        sources: Mapping[str, SourceRange],
        checkpoint: int | None = None,
        redo: Mapping[str, Redo] | None = None,
        counts: Mapping[str, Counts] | None = None,
        wrote: Mapping[str, Written] | None = None,
        **fields: Any,
    ) -> Decision:
        """Make the record after the newest and append it; `fields` is what only a checkpoint says, see `Decision`.

        Every sink the job ever had stays in it. A roll or an end keeps the checkpoint's number, and what is to be redone.
        """
        newest = self.newest
        sinks = {name: SinkDecision([], sink.state) for name, sink in newest.sinks.items()}
        for name, part in staged.items():
            amounts = (counts or {}).get(name, Counts()), (wrote or {}).get(name)
            sinks[name] = SinkDecision(list(part.committables), part.state, *amounts)
        decision = Decision(
            number=newest.number + 1,
            occasion=occasion.value,
            checkpoint=newest.checkpoint if checkpoint is None else checkpoint,
            job_id=newest.job_id,
            epoch=self.epoch.number,
            time_ms=self.clock.now_ms(),
            sources=sources,
            sinks=sinks,
            durations_ms={**durations_ms, **self._last_ms},
            redo=to_redo(newest) if checkpoint is None else redo or {},
            **fields,
        )
        self._append(decision)
        return decision

    def _append(self, decision: Decision) -> None:
        self.epoch.check()
        begun = self.clock.now_ms()
        before, self._newest = self._newest, None  # whatever interrupts this leaves the newest decision unknown
        try:
            self.ledger.append(decision)
        except OSError:
            self._newest = before  # proven: it was not recorded
            raise
        self._newest, self._open = decision, True
        if self.state is not None and decision.state is not None:
            self.state.decided()
        if decision.occasion == Occasion.CHECKPOINT.value:
            self.sources, self.redo = decision.sources, to_redo(decision)
            self.watermarks, self.parallelism, self.metrics = (
                decision.watermarks,
                decision.parallelism,
                decision.metrics,
            )
        self._last_ms = {"decide": max(0, self.clock.now_ms() - begun)}

    def commit(self, decision: Decision) -> Carried:
        """Commit what was just recorded; nothing of it is ever aborted. May run beside anything that decides nothing.

        What came of it counts once `committed` is called.
        """
        hit(Failpoint.DECISION_RECORDED)
        # A driver that slept so long that the number it took was archived since must not commit anything.
        self.epoch.check()
        begun = self.clock.now_ms()
        carried = self._commit_all(decision)
        return replace(carried, took_ms=max(0, self.clock.now_ms() - begun))

    def committed(self, decision: Decision, carried: Carried, durations_ms: Mapping[str, int]) -> Outcome:
        """Take note of what became of the newest decision.

        Raises:
            TransientError: parts of it were aborted from outside, as they were each time before.
        """
        self._note(decision, carried)
        self._last_ms["commit"] = carried.took_ms
        durations = {**durations_ms, **self._last_ms}
        return Outcome(decision=decision, committed=carried.done, durations_ms=durations, calls=carried.calls)

    def _note(self, decision: Decision, carried: Carried) -> None:
        self.redo = to_redo(decision, carried) or to_redo(decision)
        self._open = False
        if self.state is not None and not carried.aborted:
            self.state.committed()
        self._rounds = self._rounds + 1 if carried.aborted else 0
        if self._rounds >= _ROUNDS:
            raise TransientError(
                f"checkpoint {decision.checkpoint} was aborted from outside each time it was produced",
                next="look at the other system's limits, such as the transaction timeout; the job goes on by itself",
            )

    def _commit_all(self, decision: Decision) -> Carried:
        carried = commit_all(
            decision, self.participants, retry=self.retry, sleep=self.sleep, log=self.log, tasks=self.tasks
        )
        for name in carried.aborted:
            if not isinstance(self.participants[name], Repeatable):
                raise TerminalError(
                    f"sink {name!r} aborted its part of checkpoint {decision.checkpoint}, which was decided",
                    next="look into its log; a sink whose data can be aborted from outside needs a method match()",
                    participant=name,
                )
        if not carried.aborted:
            self.ledger.mark_committed(decision.number)
        return carried
