"""The checkpoints that are under way: which phase each is in, which take too long, which failed, and which failures do not count.

For the restart strategy a checkpoint fails when it takes too long, or when its tasks are through and it cannot be decided; what fails
in a task is the job's failure. For whoever watches, every checkpoint that began and was never decided has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from poundlock.errors import DefinitionError, FencedError, PoundlockError, TerminalError, TransientError
from poundlock.metrics.timeline import FailedCheckpoint, Phase, PhaseName, Timeline, UnderWay
from poundlock.values import format_duration


class CheckpointTimedOut(PoundlockError):
    """A checkpoint took longer than `checkpoint_timeout`. Nothing of it is decided, or all of it is carried out by the next start."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One checkpoint that is under way."""

    checkpoint: int
    began: float  # by the monotonic clock
    never_decided: Callable[[], bool]  # tells, when it has failed, whether it is known not to be decided
    began_ms: int  # ms since the epoch
    ran: bool = False  # its tasks are through, so that what fails now is the checkpoint
    failed: bool = False  # it was counted as failed
    phases: list[tuple[PhaseName, float]] = field(default_factory=list)  # and when each began, by the monotonic clock

    def enter(self, phase: PhaseName) -> None:
        """Note that a phase begins, and the one before it ends."""
        self.phases.append((phase, time.monotonic()))

    def until(self, ended: float) -> tuple[Phase, ...]:
        """Return its phases up to a moment, by the monotonic clock."""
        ends = [*(began for _, began in self.phases[1:]), ended]
        return tuple(
            Phase(name, self.began_ms + round((began - self.began) * 1000), max(0.0, (end - began) * 1000))
            for (name, began), end in zip(self.phases, ends, strict=True)
        )

    @property
    def phase(self) -> PhaseName:
        """The phase it is in."""
        return self.phases[-1][0] if self.phases else "run"


@dataclass(eq=False)
class Attempts:
    """The attempts of one driver. Begun by the query's thread, watched by the driver's."""

    timeout: timedelta | None = None  # how long a checkpoint may take; None or zero = as long as it likes
    tolerable: int = 0  # how many in a row may fail before that counts for the restart strategy
    now: Callable[[], float] = time.monotonic
    # takes each checkpoint that failed, once, and how it went
    on_failure: Callable[[FailedCheckpoint, Timeline], None] = lambda failed, timeline: None
    # the newest, and the one before it while it is committed
    _running: list[Attempt] = field(default_factory=list, init=False)
    _newest: Attempt | None = field(default=None, init=False)
    _failed: bool = field(default=False, init=False)
    _in_a_row: int = field(default=0, init=False)

    @contextmanager
    def attempt(
        self,
        checkpoint: int,
        undecided: Callable[[], bool],
        *,
        never_decided: Callable[[], bool] | None = None,
        began: float | None = None,
        phase: PhaseName = "run",
    ) -> Iterator[Attempt]:
        """Watch a checkpoint while the block runs.

        Args:
            undecided: tells, when it has failed, whether that is its own failure and it is known not to be decided.
            never_decided: tells the latter alone; None = as `undecided`.
            began: when it began, by the monotonic clock; None = now.
            phase: which it is in at first; what was before is its plan.
        """
        now = self.now()
        began = now if began is None else began
        mine = self._newest = Attempt(
            checkpoint, began, never_decided or undecided, _now_ms() - round((now - began) * 1000)
        )
        mine.phases += [("plan", began)] if phase == "run" else []
        mine.enter(phase)
        running = self._running
        running.append(mine)
        try:
            yield mine
        except Exception as error:
            # One that was given up long ago says nothing about the one that runs now.
            if self._newest is mine and mine.ran and undecided():
                self._failed = True
            self._note(mine, error)
            raise
        finally:
            running.remove(mine)
            if self._newest is mine:
                self._newest = None

    def check(self) -> None:
        """Raise CheckpointTimedOut if the running checkpoint takes too long."""
        running = min(self._running, key=lambda each: each.began, default=None)
        if running is None or not self.timeout:
            return
        if self.now() - running.began > self.timeout.total_seconds():
            error = CheckpointTimedOut(
                f"checkpoint {running.checkpoint} took longer than checkpoint_timeout ({format_duration(self.timeout)})",
                next="look for what is slow, let a checkpoint read less, or raise it: -D checkpoint_timeout=…",
                checkpoint=running.checkpoint,
            )
            self._note(running, error)
            raise error

    def under_way(self) -> tuple[UnderWay, ...]:
        """Return the checkpoints that have begun and not ended, the oldest first."""
        return tuple(UnderWay(each.checkpoint, each.phase, each.began_ms) for each in list(self._running))

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
        return self._in_a_row <= self.tolerable

    def _note(self, attempt: Attempt, error: Exception) -> None:
        """Tell of an attempt that failed, once, unless it is decided or may be."""
        if attempt.failed or not attempt.never_decided():
            return
        attempt.failed = True
        cause = error.what if isinstance(error, PoundlockError) else f"{type(error).__name__}: {error}"
        now = _now_ms()
        phases = attempt.until(time.monotonic())
        self.on_failure(
            FailedCheckpoint(attempt.checkpoint, attempt.phase, attempt.began_ms, now, cause),
            Timeline(attempt.checkpoint, attempt.began_ms, now, phases, failure=cause),
        )


def known_undecided(newest: Callable[[], int], checkpoint: int) -> bool:
    """Return whether a checkpoint is known not to be decided.

    Args:
        newest: gives the newest decided checkpoint; raises TransientError where that is not known.
    """
    try:
        return newest() < checkpoint
    except TransientError:
        return False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
