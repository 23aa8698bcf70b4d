"""A job's attempts at checkpoints: how long the running one takes, and how many in a row have failed.

A checkpoint fails when it takes too long, or when its tasks are through and it cannot be decided. What fails in a task is the
job's failure and no checkpoint's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from poundlock.errors import DefinitionError, FencedError, PoundlockError, TerminalError, TransientError
from poundlock.values import format_duration


class CheckpointTimedOut(PoundlockError):
    """A checkpoint took longer than `checkpoint_timeout`. Nothing of it is decided, or all of it is carried out by the next start."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One checkpoint that is under way."""

    checkpoint: int
    began: float  # by the monotonic clock
    ran: bool = False  # its tasks are through, so that what fails now is the checkpoint


class Attempts:
    """The attempts of one driver. Begun by the query's thread, watched by the driver's.

    Args:
        timeout: how long a checkpoint may take; None or zero = as long as it likes.
        tolerable: how many in a row may fail before that counts for the restart strategy.
    """

    def __init__(
        self, timeout: timedelta | None = None, tolerable: int = 0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout = timeout
        self._tolerable = tolerable
        self._now = now
        self._running: list[Attempt] = []  # the newest, and the one before it while it is committed
        self._newest: Attempt | None = None
        self._failed = False
        self._in_a_row = 0

    @contextmanager
    def attempt(
        self, checkpoint: int, undecided: Callable[[], bool], *, began: float | None = None
    ) -> Iterator[Attempt]:
        """Watch a checkpoint while the block runs.

        Args:
            undecided: tells, when it has failed, whether it is known not to be decided.
            began: when it began, by the monotonic clock; None = now.
        """
        mine = self._newest = Attempt(checkpoint, self._now() if began is None else began)
        running = self._running
        running.append(mine)
        try:
            yield mine
        except Exception:
            # One that was given up long ago says nothing about the one that runs now.
            if self._newest is mine and mine.ran and undecided():
                self._failed = True
            raise
        finally:
            running.remove(mine)
            if self._newest is mine:
                self._newest = None

    def check(self) -> None:
        """Raise CheckpointTimedOut if the running checkpoint takes too long."""
        running = min(self._running, key=lambda each: each.began, default=None)
        if running is None or not self._timeout:
            return
        if self._now() - running.began > self._timeout.total_seconds():
            raise CheckpointTimedOut(
                f"checkpoint {running.checkpoint} took longer than checkpoint_timeout ({format_duration(self._timeout)})",
                next="look for what is slow, let a checkpoint read less, or raise it: -D checkpoint_timeout=…",
                checkpoint=running.checkpoint,
            )

    def completed(self) -> None:
        """Note that a checkpoint was decided and committed: failures before it no longer count."""
        self._in_a_row = 0

    def tolerates(self, error: PoundlockError) -> bool:
        """Return whether a life ended with a failed checkpoint that need not count for the restart strategy."""
        failed, self._failed, self._running, self._newest = self._failed, False, [], None
        if isinstance(error, DefinitionError | TerminalError | FencedError):
            return False  # no restart mends it
        if not failed and not isinstance(error, CheckpointTimedOut):
            return False
        self._in_a_row += 1
        return self._in_a_row <= self._tolerable


def known_undecided(newest: Callable[[], int], checkpoint: int) -> bool:
    """Return whether a checkpoint is known not to be decided.

    Args:
        newest: gives the newest decided checkpoint; raises TransientError where that is not known.
    """
    try:
        return newest() < checkpoint
    except TransientError:
        return False
