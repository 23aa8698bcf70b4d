"""The decisions of one life of a driver: each is recorded, and carried out to its end, before the next.

What is the newest, whether it is carried out, and what of it was aborted from outside is known here and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from poundlock.checkpoint.capabilities import Repeatable
from poundlock.checkpoint.committer import Carried, Retry, carry_out
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
from poundlock.operators.decided_time import DecidedTime
from poundlock.values import Clock


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
        ignore_ledger: bool = False,
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
        self._ignore_ledger, self._state = ignore_ledger, state
        self._newest: Decision | None = None  # None until recovered, and again when a decision's fate is not known
        self._settled = False  # whether the newest decision is carried out
        self._last_ms: dict[str, int] = {}

    @property
    def newest(self) -> Decision:
        """The newest decision, this life's start record at first.

        Raises:
            TransientError: `take_over` has not been called, or must be called again.
        """
        if self._newest is None:
            raise TransientError(
                "the newest decision is not known", next="start the job again; it reads the ledger and goes on"
            )
        return self._newest

    def is_decided(self, checkpoint: int) -> bool:
        """Return whether a checkpoint is decided, produced again or not."""
        return not self._ignore_ledger and checkpoint <= self.newest.checkpoint

    def is_produced_again(self, checkpoint: int) -> bool:
        """Return whether a decided checkpoint has parts that were aborted and must be produced once more."""
        return bool(self.redo) and checkpoint == self.newest.checkpoint

    def find(self, checkpoint: int) -> Decision:
        """Return the record of a decided checkpoint. Raises TerminalError where the ledger never decided it."""
        return find_checkpoint(self._ledger, self.newest, checkpoint)

    def take_over(self) -> tuple[Decision | None, int]:
        """Carry the newest decision out and close the ledger to older drivers; return it and how much was committed."""
        while True:
            self._epoch.check()
            before, committed = self._ledger.newest(), 0
            redo: Mapping[str, Redo] = {}
            check_owner(before, self._identity)
            check_removed_sinks(before, self._participants, self._identity.name)
            if before is not None and not self._ignore_ledger:
                self._ledger.settle(before.number)
                if not self._ledger.is_carried_out(before.number):
                    carried = self._carry_out(before)
                    committed = sum(len(done) for done in carried.done.values())
                    redo = to_redo(before, carried)
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
                # An older driver was about to decide and was first: its decision stands and is carried out as well.
                continue
            self._ledger.mark_carried_out(start.number)
            self._newest, self._settled, self.sources, self.redo = start, True, start.sources, start.redo
            self.watermarks = start.watermarks
            return before, committed

    def ready(self) -> None:
        """Finish what an earlier call left after its decision."""
        newest = self.newest
        self._epoch.check()
        if not self._settled:  # an earlier call failed after its decision
            self.redo = to_redo(newest, self._carry_out(newest)) or self.redo
            self._settled = True

    def record(
        self, occasion: Occasion, staged: Mapping[str, Staged], durations: Mapping[str, int], **said: Any
    ) -> Decision:
        """Make the next record and append it; `said` is what only a checkpoint says, see `next_record`."""
        decision = next_record(
            self.newest,
            occasion=occasion.value,
            staged=staged,
            epoch=self._epoch.number,
            now_ms=self._clock.now_ms(),
            durations_ms={**durations, **self._last_ms},
            **said,
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
        self._newest, self._settled = decision, False
        if self._state is not None and decision.state is not None:
            self._state.decided()
        if decision.occasion == Occasion.CHECKPOINT.value:
            self.sources, self.redo = decision.sources, to_redo(decision)
            self.watermarks = decision.watermarks
        self._last_ms = {"decide": max(0, self._clock.now_ms() - begun)}

    def finish(self, decision: Decision, durations: Mapping[str, int]) -> Outcome:
        """Carry out what was just recorded. From here on nothing is ever aborted."""
        hit(Failpoint.DECISION_RECORDED)
        # A driver that slept so long that the number it took was archived since must not carry anything out.
        self._epoch.check()
        begun = self._clock.now_ms()
        carried = self._carry_out(decision)
        self.redo = to_redo(decision, carried) or to_redo(decision)
        self._settled = True
        self._last_ms["commit"] = max(0, self._clock.now_ms() - begun)
        return Outcome(decision=decision, committed=carried.done, durations_ms={**durations, **self._last_ms})

    def _carry_out(self, decision: Decision) -> Carried:
        carried = carry_out(decision, self._participants, retry=self._retry, sleep=self._sleep, log=self.log)
        for name in carried.aborted:
            if not isinstance(self._participants[name], Repeatable):
                raise TerminalError(
                    f"sink {name!r} aborted its part of checkpoint {decision.checkpoint}, which was decided",
                    next="look into its log; a sink whose data can be aborted from outside needs a method match()",
                    participant=name,
                )
        if not carried.aborted:
            self._ledger.mark_carried_out(decision.number)
            if self._state is not None and self._newest is not None:
                self._state.committed()
        return carried
