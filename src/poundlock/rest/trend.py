"""What only a running job knows of itself, kept for some hours: its lag, the size of its state. The ledger remembers all else."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from poundlock.driver.progress import Progress

_EVERY_MS = 10_000
_KEPT = 8640  # a day of them


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """A job at one moment, ms since 1970; see `Progress`."""

    at_ms: int
    lag: int | None
    state_bytes: int | None
    restarts: int
    parallelism: int | None


@dataclass
class Trend:
    """The moments of one job that are kept, the newest last; taken every ten seconds at most."""

    _kept: deque[TrendPoint] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, progress: Progress, now_ms: int) -> None:
        """Take how a job goes, unless that was done a moment ago."""
        with self._lock:
            if not self._kept or now_ms - self._kept[-1].at_ms >= _EVERY_MS:
                self._kept.append(
                    TrendPoint(now_ms, progress.lag, progress.state_bytes, progress.restarts, progress.parallelism)
                )

    def since(self, ms: int) -> Sequence[TrendPoint]:
        """Return the moments since a time, the oldest first."""
        with self._lock:
            return [point for point in self._kept if point.at_ms >= ms]
