"""What only a running job knows of itself, kept for some hours: its lag, the size of its state, and how busy its steps were of late.
The ledger remembers all else.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from poundlock.driver.progress import Progress

_EVERY_MS = 10_000
_KEPT = 8640  # a day of them
_CHECKPOINTS = 13  # of twelve, the shares of busy time are


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """A job at one moment, ms since 1970; see `Progress`."""

    at_ms: int
    lag: int | None
    state_bytes: int | None
    restarts: int
    parallelism: int | None


@dataclass(frozen=True, slots=True)
class _Worked:
    """CPU time of operators since the process started, ms, as of one checkpoint; `at_ms` is when that one ended."""

    at_ms: int
    checkpoint: int
    busy_ms: Mapping[str, float]

    def comes_before(self, later: _Worked) -> bool:
        """Return whether both are of one process: in a new one all sums begin again."""
        return self.checkpoint < later.checkpoint and all(
            ms <= later.busy_ms.get(name, -1.0) for name, ms in self.busy_ms.items()
        )


@dataclass
class Trend:
    """The moments of one job that are kept, the newest last; taken every ten seconds at most."""

    _kept: deque[TrendPoint] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _worked: deque[_Worked] = field(default_factory=lambda: deque(maxlen=_CHECKPOINTS))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, progress: Progress, now_ms: int) -> None:
        """Take how a job goes, unless that was done a moment ago."""
        with self._lock:
            if not self._kept or now_ms - self._kept[-1].at_ms >= _EVERY_MS:
                self._kept.append(
                    TrendPoint(now_ms, progress.lag, progress.state_bytes, progress.restarts, progress.parallelism)
                )
            newest = self._worked[-1].checkpoint if self._worked else None
            if progress.checkpoint is not None and progress.checkpoint != newest:
                self._take(_worked(progress, progress.checkpoint, now_ms))

    def began_again(self) -> None:
        """Note that the job has another process, whose sums begin with nothing."""
        with self._lock:
            self._worked.clear()

    def _take(self, worked: _Worked) -> None:
        if self._worked and not self._worked[-1].comes_before(worked):
            self._worked.clear()
        self._worked.append(worked)

    def busy(self, parallelism: int) -> Mapping[str, float]:
        """Return the part of the time of `parallelism` tasks in which each operator had a core, 0 to 1, by id.

        It is of the twelve newest checkpoints as far as they were seen; {} where fewer than two were.
        """
        with self._lock:
            if len(self._worked) < 2:
                return {}
            first, last = self._worked[0], self._worked[-1]
        span = max(1, last.at_ms - first.at_ms) * max(1, parallelism)
        return {name: min(1.0, (ms - first.busy_ms.get(name, 0.0)) / span) for name, ms in last.busy_ms.items()}

    def since(self, ms: int) -> Sequence[TrendPoint]:
        """Return the moments since a time, the oldest first."""
        with self._lock:
            return [point for point in self._kept if point.at_ms >= ms]


def _worked(progress: Progress, checkpoint: int, now_ms: int) -> _Worked:
    ended = progress.timeline
    its_own = ended is not None and ended.checkpoint == checkpoint and ended.failure is None
    at = ended.ended_ms if ended is not None and its_own else now_ms
    return _Worked(at, checkpoint, {name: load.busy_ms for name, load in progress.load.operators.items()})
