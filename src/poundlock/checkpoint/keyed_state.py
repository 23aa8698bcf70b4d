"""Keyed state as the coordinator sees it: prepared, verified and decided like a sink, though nothing of it ever becomes visible.

A decision says what changed; a start, and now and then a checkpoint, says all there is, so that a start reads few records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.state.decided_state import DecidedState


class KeyedState(Protocol):
    """The keyed state of a job, in one attempt of its driver."""

    def resume(self, parts: Sequence[DecidedState], *, again: bool) -> DecidedState | None:
        """Take the state as the ledger has it; return what the record of this start says of it.

        Args:
            parts: what decisions say, oldest first, beginning with one that says all there is; none for a new job.
            again: whether part of the newest checkpoint has to be produced again, for which the state before it is needed.
        """
        ...

    def stage(self, prepared: Sequence[Any], *, again: bool) -> DecidedState | None:
        """Check what the tasks prepared; return what the decision is to say.

        Args:
            prepared: their reports.
            again: whether they ran a decided checkpoint once more; its state is decided already.

        Raises:
            TerminalError: it does not add up.
        """
        ...

    def decided(self) -> None:
        """Take note that what was staged last is recorded."""
        ...

    def committed(self) -> None:
        """Take note that the newest decision is carried out: the state before it is no longer needed."""
        ...

    def snapshot(self) -> DecidedState:
        """Return what a record says that says all there is, behind the newest decision."""
        ...

    def sweep(self) -> None:
        """Delete files that nothing refers to; with no task running."""
        ...


def state_parts(ledger: Ledger, newest: Decision | None) -> list[DecidedState]:
    """Return what the newest decisions say of state, oldest first: back to one that says all, and one more than it takes.

    That one more tells the state before the newest checkpoint.
    """
    parts: list[DecidedState] = []
    for record in ledger.back(newest) if newest is not None else ():
        if record.state is not None:
            parts.append(record.state)
            if record.state.manifest is not None and (len(parts) > 1 or record.occasion == "start"):
                break
    return parts[::-1]
