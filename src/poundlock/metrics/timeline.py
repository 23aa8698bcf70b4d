"""When a checkpoint was planned, run, verified, decided and committed, or in which of these phases it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PhaseName = Literal["plan", "run", "await", "verify", "decide", "commit"]
PHASES: tuple[PhaseName, ...] = ("plan", "run", "await", "verify", "decide", "commit")
"""In order. "await" is the wait for the commit of the checkpoint before, beside which the tasks may have run."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a checkpoint: when it began, ms since the epoch, and how long it took."""

    name: PhaseName
    started_ms: int
    took_ms: float


@dataclass(frozen=True, slots=True)
class CommitCall:
    """The commit of one sink's part in a decision.

    Args:
        committables: how many there were.
        retries: how often one was asked for again because its outcome was not known.
    """

    sink: str
    started_ms: int
    took_ms: float
    committables: int
    retries: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One checkpoint from its beginning to its end.

    Args:
        started_ms, ended_ms: ms since the epoch.
        failure: what it failed with, None where it is complete; the last phase is the one in which it failed.
    """

    checkpoint: int
    started_ms: int
    ended_ms: int
    phases: tuple[Phase, ...] = ()
    commits: tuple[CommitCall, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A checkpoint that has begun and not ended: its phase, and when it began, ms since the epoch."""

    checkpoint: int
    phase: PhaseName
    started_ms: int


@dataclass(frozen=True, slots=True)
class FailedCheckpoint:
    """A checkpoint that was begun and never decided.

    Args:
        phase: in which it failed.
        started_ms, failed_ms: ms since the epoch.
        cause: the error's text.
    """

    checkpoint: int
    phase: PhaseName
    started_ms: int
    failed_ms: int
    cause: str
