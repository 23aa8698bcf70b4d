"""Event time as a decision has it: the watermark behind a checkpoint, who holds it back, and what the next one goes on from."""

from __future__ import annotations

from typing import Any

import msgspec

from poundlock.errors import TerminalError
from poundlock.operators.combined_watermarks import StreamHolder
from poundlock.operators.time_values import FORMAT as STATE_FORMAT
from poundlock.operators.time_values import TimeDirective, TimeState

FORMAT = 2


class DecidedTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Event time behind a checkpoint.

    Args:
        v: the version of this form.
        watermark: of the job, ms; None = none yet.
        held_by: what the slowest stream waits for; None where nothing is waited for.
        state: what the next checkpoint goes on from.
        directive: what the tasks began with; those that run once more begin with it, too.
    """

    v: int
    watermark: int | None
    held_by: StreamHolder | None = None
    state: TimeState
    directive: TimeDirective

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    @classmethod
    def from_json(cls, value: Any) -> DecidedTime:
        """Return what a JSON object says.

        Raises:
            TerminalError: it is of another version, or damaged.
        """
        try:
            decided = msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise TerminalError(
                f"the event time in the ledger cannot be read: {error}", next="restore the job from a savepoint"
            ) from None
        for format, known in ((decided.v, FORMAT), (decided.state.v, STATE_FORMAT)):
            if format != known:
                raise TerminalError(
                    f"the event time in the ledger has format {format}, and this version knows {known}",
                    next="run the job with the version of poundlock that wrote it",
                )
        return decided
