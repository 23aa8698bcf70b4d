"""The seam between the audit and a sink whose visible output can be read back and compared with what was decided.

A sink is given every committable before it reads, so that it reads its output once, whatever order it has there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from poundlock.checkpoint.participant import JSON


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where a sink holds something else than a decision says.

    Args:
        checkpoint: the checkpoint whose rows they are; None if it is not known.
        path: where, in words a person can use.
        what: what differs.
    """

    checkpoint: int | None
    path: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A committable as the audit meets it.

    Args:
        record: number of the ledger record that names it.
        checkpoint: the checkpoint whose rows it makes visible.
        committable: the committable.
        compared: whether it is to be compared; others are given so that their output is not taken for nobody's.
        committed: whether its record is known to be committed.
    """

    record: int
    checkpoint: int
    committable: JSON
    compared: bool
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditScope:
    """What a sink has to know of an audit before it reads.

    Args:
        complete: whether the ledger is kept from the job's first record on, so that what it does not name was never decided.
        progress: takes a line on how far reading has come; called as often as there is news.
    """

    complete: bool
    progress: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What reading a sink back came to.

    Args:
        compared: committables that were compared.
        disagreements: where the sink holds something else.
        removed: rows of compared committables that the system removed itself, as it was to keep them no longer.
        others: rows there that others wrote.
        uncompared: why some committables could not be compared, a line each.
    """

    compared: int
    disagreements: Sequence[Disagreement] = ()
    removed: int = 0
    others: int = 0
    uncompared: Sequence[str] = ()


class Reading(Protocol):
    """One audit of one sink: `take` each committable, `read`, perhaps `take` what was decided meanwhile, then `result`."""

    whole: bool
    """Whether it wants every committable of the ledger, not only those that are compared."""

    def take(self, decided: Decided) -> None:
        """Note a committable; one that can be compared by itself may be compared at once."""

    def read(self) -> None:
        """Read the output, once. Changes nothing.

        Raises:
            PoundlockError: it cannot be read.
        """

    def result(self) -> ReadBack:
        """Return the result."""


@runtime_checkable
class Auditable(Protocol):
    """A participant whose visible output can be read back and compared with what was decided."""

    @property
    def unaudited(self) -> str:
        """Why nothing of it can be compared; "" if it can."""
        return ""

    @abstractmethod
    def open_audit(self, scope: AuditScope) -> Reading:
        """Begin an audit. Connects to nothing yet."""

    @abstractmethod
    def rows_of(self, committable: JSON) -> int:
        """Return how many rows a committable makes visible."""

    def rows_pending(self, state: JSON) -> int:
        """Return how many rows are prepared and decided to become visible later."""
        return 0
