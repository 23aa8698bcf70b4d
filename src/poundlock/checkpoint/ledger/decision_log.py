"""The decisions of one life of a driver: what became of each is known before the next is recorded.

What is the newest, whether it is committed, and what of it was aborted from outside is known here and nowhere else. A commit runs
in any thread; whoever decides takes note of its outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from poundlock.checkpoint.capabilities import Repeatable
from poundlock.checkpoint.committer import Carried, Retry, commit_all
from poundlock.checkpoint.decision import Decision, Redo, SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.keyed_state import KeyedState, state_parts
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import find_checkpoint, next_record, start_record, to_redo
from poundlock.checkpoint.outcome import Log, Outcome, StandardLog
from poundlock.checkpoint.participant import Occasion, Participant, Staged
from poundlock.checkpoint.validation import check_owner, check_removed_sinks
from poundlock.errors import FencedError, TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.operators.time_values import DecidedTime
from poundlock.values import Clock

_ROUNDS = 6  # the first, and those in which parts that were aborted from outside are produced again


class History:
    """See `Coordinator` for the arguments."""

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
        state: KeyedState | None = None,
    ) -> None:
        self.sources: Mapping[str, SourceRange] = {}
        """Per source, the newest decided range."""
        self.watermarks: DecidedTime | None = None
        """The watermarks behind the newest decided checkpoint; None where there are none."""
        self.redo: Mapping[str, Redo] = {}
        """Per sink, what of the newest checkpoint was aborted from outside."""
        self.log = log or StandardLog()
        self._identity, self._epoch, self._ledger, self._clock = identity, epoch, ledger, clock
        self._participants = participants
        self._retry, self._sleep = retry or Retry(), sleep
        self._state = state
        self._newest: Decision | None = None  # None until recovered, and again when a decision's fate is not known
        self._open = False  # whether it is not known yet what became of the newest decision
        self._rounds = 0  # so often in a row was the newest checkpoint aborted from outside
        self._last_ms: dict[str, int] = {}

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
        return find_checkpoint(self._ledger, self.newest, checkpoint)

    # --- a start; see `cycle.recover` for the order --------------------------------------------------------------------

    def newest_decision(self) -> Decision | None:
        """Return what an earlier life decided last, durably."""
        self._epoch.check()
        before = self._ledger.newest()
        check_owner(before, self._identity)
        check_removed_sinks(before, self._participants, self._identity.name)
        if before is not None:
            self._ledger.settle(before.number)
        return before

    def commit_again(self, before: Decision | None) -> Carried | None:
        """Commit all that a decision names; None where that is known to be done."""
        if before is None or self._ledger.is_committed(before.number):
            return None
        return self._commit_all(before)

    def take_over(self, before: Decision | None, carried: Carried | None) -> bool:
        """Record this start, which closes the ledger to older drivers; return False where one of them decided once more."""
        redo = {} if before is None or carried is None else to_redo(before, carried)
        state = None
        if self._state is not None:
            state = self._state.resume(state_parts(self._ledger, before), again=bool(redo or to_redo(before)))
        start = start_record(
            before,
            ledger=self._ledger,
            identity=self._identity,
            epoch=self._epoch.number,
            now_ms=self._clock.now_ms(),
            sinks=self._participants,
            redo=redo,
            state=state,
        )
        try:
            self._ledger.append(start)
        except FencedError:
            # An older driver was about to decide and was first: its decision stands and is committed as well.
            return False
        self._ledger.mark_committed(start.number)
        self._newest, self._open, self.sources, self.redo = start, False, start.sources, start.redo
        self.watermarks = start.watermarks
        return True

    # --- a decision ----------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Finish what an earlier call left after its decision."""
        newest = self.newest
        self._epoch.check()
        if self._open:  # an earlier call failed after its decision
            self._note(newest, self._commit_all(newest))

    def record(
        self, occasion: Occasion, staged: Mapping[str, Staged], durations: Mapping[str, int], **fields: Any
    ) -> Decision:
        """Make the next record and append it; `fields` is what only a checkpoint says, see `next_record`."""
        decision = next_record(
            self.newest,
            occasion=occasion.value,
            staged=staged,
            epoch=self._epoch.number,
            now_ms=self._clock.now_ms(),
            durations_ms={**durations, **self._last_ms},
            **fields,
        )
        self._append(decision)
        return decision

    def _append(self, decision: Decision) -> None:
        self._epoch.check()
        begun = self._clock.now_ms()
        before, self._newest = self._newest, None  # whatever interrupts this leaves the newest decision unknown
        try:
            self._ledger.append(decision)
        except OSError:
            self._newest = before  # proven: it was not recorded
            raise
        self._newest, self._open = decision, True
        if self._state is not None and decision.state is not None:
            self._state.decided()
        if decision.occasion == Occasion.CHECKPOINT.value:
            self.sources, self.redo = decision.sources, to_redo(decision)
            self.watermarks = decision.watermarks
        self._last_ms = {"decide": max(0, self._clock.now_ms() - begun)}

    def commit(self, decision: Decision) -> Carried:
        """Commit what was just recorded; nothing of it is ever aborted. May run beside anything that decides nothing.

        What came of it counts once `committed` is called.
        """
        hit(Failpoint.DECISION_RECORDED)
        # A driver that slept so long that the number it took was archived since must not commit anything.
        self._epoch.check()
        begun = self._clock.now_ms()
        carried = self._commit_all(decision)
        return replace(carried, took_ms=max(0, self._clock.now_ms() - begun))

    def committed(self, decision: Decision, carried: Carried, durations: Mapping[str, int]) -> Outcome:
        """Take note of what became of the newest decision.

        Raises:
            TransientError: parts of it were aborted from outside, as they were each time before.
        """
        self._note(decision, carried)
        self._last_ms["commit"] = carried.took_ms
        return Outcome(decision=decision, committed=carried.done, durations_ms={**durations, **self._last_ms})

    def _note(self, decision: Decision, carried: Carried) -> None:
        self.redo = to_redo(decision, carried) or to_redo(decision)
        self._open = False
        if self._state is not None and not carried.aborted:
            self._state.committed()
        self._rounds = self._rounds + 1 if carried.aborted else 0
        if self._rounds >= _ROUNDS:
            raise TransientError(
                f"checkpoint {decision.checkpoint} was aborted from outside each time it was produced",
                next="look at the other system's limits, such as the transaction timeout; the job goes on by itself",
            )

    def _commit_all(self, decision: Decision) -> Carried:
        carried = commit_all(decision, self._participants, retry=self._retry, sleep=self._sleep, log=self.log)
        for name in carried.aborted:
            if not isinstance(self._participants[name], Repeatable):
                raise TerminalError(
                    f"sink {name!r} aborted its part of checkpoint {decision.checkpoint}, which was decided",
                    next="look into its log; a sink whose data can be aborted from outside needs a method match()",
                    participant=name,
                )
        if not carried.aborted:
            self._ledger.mark_committed(decision.number)
        return carried
