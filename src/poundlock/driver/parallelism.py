"""How many tasks the next checkpoint of a job has: as many as it was set to, or as its autoscaler makes of the last ones.

It changes between two checkpoints only. The decision of a checkpoint says how many it had, so that a start goes on with that, and
parts of a checkpoint that are produced once more are divided as they were.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from poundlock.driver.autoscaler import Autoscaler, CheckpointLoad, Utilization, is_effective
from poundlock.values import duration

_KEPT = 1000  # checkpoints that are remembered for a window


@dataclass(frozen=True, slots=True)
class Rescaling:
    """A change of the parallelism, and why."""

    before: int
    after: int
    seen: Utilization

    def __str__(self) -> str:
        return f"parallelism {self.before} → {self.after}: {self.seen}"


@dataclass(slots=True)
class _UnderWay:
    """A checkpoint that was planned, and what is known of it so far; times by the monotonic clock."""

    began: float
    waiting: int | None
    run_s: float = 0.0
    rows: int = 0
    taken_s: float | None = None  # None as long as it is not decided


@dataclass
class JobParallelism:
    """The parallelism of one attempt of a job. Used by the thread that takes the steps of its checkpoints."""

    current: int
    """How many tasks the next checkpoint has."""
    scaler: Autoscaler | None = None
    interval_s: float = 0.0  # from one checkpoint to the next where none takes longer
    _loads: deque[CheckpointLoad] = field(default_factory=lambda: deque(maxlen=_KEPT), init=False)
    _open: _UnderWay | None = field(default=None, init=False)
    _changed_at: float | None = field(default=None, init=False)  # or started
    _raised_at: float | None = field(default=None, init=False)
    _raised_from: tuple[int, float] | None = field(default=None, init=False)  # parallelism and rate before that

    def __post_init__(self) -> None:
        if self.scaler is not None:
            self.current = self.scaler.within(self.current)

    def next_checkpoint(self, began: float, waiting: int | None) -> Rescaling | None:
        """Begin the next checkpoint; return what changes with it, None where nothing does.

        Args:
            began: by the monotonic clock, seconds.
            waiting: how many records wait in the sources; None where it is not known.
        """
        if self.scaler is None:
            return None
        self._close(began, waiting)
        rescaling = self._decide(self.scaler, began)
        self._open = _UnderWay(began, waiting)
        if rescaling is not None:
            self._change(rescaling, began)
        return rescaling

    def ran(self, seconds: float, rows: int) -> None:
        """Take note of how long the tasks of the checkpoint under way ran, and of what they read."""
        if self._open is not None:
            self._open.run_s, self._open.rows = seconds, rows

    def decided(self, at: float) -> None:
        """Take note that it is decided, by the monotonic clock."""
        if self._open is not None:
            self._open.taken_s = at - self._open.began

    def idle(self) -> None:
        """Take note that there is nothing to take it for: until the next look nothing has to be done."""
        if self._open is not None:
            self._open.taken_s = 0.0

    def dropped(self) -> None:
        """Take note that it is not: it is planned once more, and counts then."""
        self._open = None

    def _close(self, now: float, waiting: int | None) -> None:
        done, self._open = self._open, None
        self._changed_at = now if self._changed_at is None else self._changed_at
        if done is None or done.taken_s is None or now <= done.began:
            return
        assert self.scaler is not None
        if done.began - self._changed_at >= duration(self.scaler.stabilization_interval).total_seconds():
            self._loads.append(
                CheckpointLoad(
                    cycle_s=now - done.began,
                    run_s=done.run_s,
                    taken_s=done.taken_s,
                    rows=done.rows,
                    waiting=done.waiting,
                    waiting_after=waiting,
                )
            )

    def _decide(self, scaler: Autoscaler, now: float) -> Rescaling | None:
        window = scaler.window(list(self._loads))
        if not window:
            return None
        seen = scaler.utilization(window, self.interval_s)
        wanted = scaler.wanted(self.current, seen)
        if wanted == self.current or (wanted < self.current and not self._may_fall(scaler, now)):
            return None
        if wanted > self.current and not self._may_rise(seen):
            return None
        return Rescaling(self.current, wanted, seen)

    def _may_fall(self, scaler: Autoscaler, now: float) -> bool:
        raised = self._raised_at
        return raised is None or now - raised >= duration(scaler.scale_down_interval).total_seconds()

    def _may_rise(self, seen: Utilization) -> bool:
        before = self._raised_from
        return before is None or is_effective(before, (self.current, seen.rate))

    def _change(self, rescaling: Rescaling, now: float) -> None:
        raised = rescaling.after > rescaling.before
        self._raised_at = now if raised else self._raised_at
        self._raised_from = (rescaling.before, rescaling.seen.rate) if raised else None
        self.current, self._changed_at = rescaling.after, now
        self._loads.clear()
