"""What a job has done since this process started, added up from its ledger record by record, so that the driver counts nothing twice.

It only reads, from any thread; a ledger that cannot be read for a moment is read again at the next look.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeVar

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import Counts
from poundlock.errors import PoundlockError
from poundlock.metrics.timeline import Timeline
from poundlock.metrics.user_totals import UserMetrics

T = TypeVar("T")
_HISTORY = 100
_OF_THE_ONE_BEFORE = ("decide", "commit")  # in a record they are those of the record before, which could not know them
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_SIZES = tuple(float(1 << power) for power in (10, 14, 17, 20, 23, 26, 30, 33))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFigures:
    """One completed checkpoint.

    Args:
        started_ms, decided_ms: when, ms since the epoch.
        duration_ms: from its start to its end, or as far as the ledger knows.
        size: bytes of what was written to sinks in it; None where a sink does not tell.
        rows_read, rows_written: rows; None where nobody counted.
        sources: per source, (start, end, rows, bytes).
        phases_ms: how long each phase took, as far as it is known.
    """

    number: int
    started_ms: int
    decided_ms: int
    duration_ms: int
    size: int | None
    rows_read: int | None
    rows_written: int
    late: int
    dead_lettered: int
    sources: Mapping[str, tuple[object, object, int | None, int | None]]
    phases_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, decision: Decision) -> CheckpointFigures:
        """Return what a checkpoint's own decision tells."""
        sizes = [sink.wrote.bytes for sink in decision.sinks.values() if sink.wrote is not None]
        rows = [span.rows for span in decision.sources.values()]
        took = sum(decision.durations_ms.get(part, 0) for part in ("run", "verify"))
        return cls(
            number=decision.checkpoint,
            started_ms=decision.started_ms if decision.started_ms is not None else decision.time_ms - took,
            decided_ms=decision.time_ms,
            duration_ms=took,
            size=None if None in sizes else sum(size for size in sizes if size is not None),
            rows_read=None if None in rows else sum(count for count in rows if count is not None),
            rows_written=sum(sink.counts.written for sink in decision.sinks.values()),
            late=sum(sink.counts.late for sink in decision.sinks.values()),
            dead_lettered=sum(sink.counts.dead_lettered for sink in decision.sinks.values()),
            sources={name: (span.start, span.end, span.rows, span.bytes) for name, span in decision.sources.items()},
            phases_ms={name: ms for name, ms in decision.durations_ms.items() if name not in _OF_THE_ONE_BEFORE},
        )


@dataclass(slots=True)
class Spread:
    """How values are spread, as Prometheus's histograms have it: `bounds` are the upper ends of the classes, rising; the last class has none."""

    bounds: Sequence[float]
    counts: list[int] = field(init=False)
    total: float = 0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def classes(self) -> list[tuple[str, int]]:
        """Return, per upper end, how many values are at most that."""
        return list(zip([*(str(float(bound)) for bound in self.bounds), "+Inf"], accumulate(self.counts), strict=True))


@dataclass(slots=True)
class Totals:
    """Sums over the records since this process started; `seconds` and `sizes` are of checkpoints, what they took and wrote to sinks."""

    records: Counter[str] = field(default_factory=Counter)
    rows_in: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counts] = field(default_factory=dict)
    bytes_in: Counter[str] = field(default_factory=Counter)
    bytes_out: Counter[str] = field(default_factory=Counter)
    seconds: Spread = field(default_factory=lambda: Spread(_SECONDS))
    sizes: Spread = field(default_factory=lambda: Spread(_SIZES))
    watermark_ms: int | None = None
    metrics: UserMetrics = field(default_factory=UserMetrics)  # of the job's whole life

    def add(self, decision: Decision) -> None:
        self.records[decision.occasion] += 1
        if decision.metrics is not None:
            self.metrics = decision.metrics
        if decision.occasion != "checkpoint" or decision.redo:
            return
        for name, span in decision.sources.items():
            if span.rows is not None:
                self.rows_in[name] += span.rows
            if span.bytes is not None:
                self.bytes_in[name] += span.bytes
        for name, sink in decision.sinks.items():
            self.counts.setdefault(name, Counts()).add(sink.counts)
            if sink.wrote is not None and sink.wrote.bytes is not None:
                self.bytes_out[name] += sink.wrote.bytes
        newest = None if decision.watermarks is None else decision.watermarks.watermark
        if newest is None and decision.event_time is not None:
            newest = decision.event_time.watermark_ms
        if newest is not None:
            self.watermark_ms = newest


class Figures:
    """Follows a ledger.

    Args:
        before_ms: what was decided before that was there before the process; None = all that is there now. Where more
            checkpoints came since than are kept, the sums begin with those.
    """

    def __init__(self, ledger: Ledger, before_ms: int | None = None) -> None:
        self._ledger = ledger
        self._before_ms = before_ms
        self._lock = threading.Lock()
        self.restored: int | None = None
        """The checkpoint this process went on from; None on a first start."""
        self.restored_ms = 0
        """When that checkpoint was decided, ms since the epoch."""
        self.restored_savepoint: str | None = None
        """The path of the savepoint, if that is what this process went on from."""
        self.began_with: str | None = None
        """The path of the savepoint the job once began with; None if it began with none, or that is no longer known."""
        self._read: int | None = None
        with suppress(PoundlockError, OSError):  # a ledger that cannot be read is the driver's to tell
            self._begin()
        self._totals = Totals()
        self._history: deque[CheckpointFigures] = deque(maxlen=_HISTORY)
        self._took: dict[int, int] = {}
        self._phases: dict[int, Mapping[str, float]] = {}
        self._last: tuple[int, int] | None = (
            None  # number and checkpoint of the newest record that was added, if it is one's own
        )

    def _begin(self) -> int:
        """Return the number of the newest record that was there before; what follows is counted."""
        newest = last = self._ledger.newest()
        if newest is not None and self._before_ms is not None and newest.time_ms >= self._before_ms:
            number = self._first(newest.number, lambda decision: decision.time_ms >= (self._before_ms or 0)) - 1
            newest = self._ledger.read(number) if number >= self._ledger.first() else None
        if newest is not None and newest.checkpoint >= 0:
            self.restored, self.restored_ms = newest.checkpoint, newest.time_ms
            first = self._ledger.read(self._ledger.first())
            if first.restored is not None:
                self.began_with = first.restored.get("path") or first.restored["savepoint"]
                self.restored_savepoint = self.began_with if newest.checkpoint == first.checkpoint else None
        self._read = -1 if newest is None else newest.number
        if last is not None and self._before_ms is not None:
            self._read = max(self._read, self._ledger.first() - 1, last.number - _HISTORY)
        return self._read

    def _first(self, high: int, condition: Callable[[Decision], bool]) -> int:
        """Return the number of the first record of which a condition is true, as it is of all behind it, `high` at the latest."""
        low = self._ledger.first()
        while low < high:
            middle = (low + high) // 2
            if condition(self._ledger.read(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def took(self, checkpoint: int, ms: int) -> None:
        """Note how long a checkpoint took from its start to its end."""
        _keep(self._took, checkpoint, ms)

    def went(self, timeline: Timeline) -> None:
        """Note how long the phases of a completed checkpoint were."""
        phases: Mapping[str, float] = {phase.name: phase.took_ms for phase in timeline.phases}
        _keep(self._phases, timeline.checkpoint, phases)

    def refresh(self) -> Totals:
        """Read what is new and return the sums."""
        with self._lock:
            with suppress(PoundlockError, OSError):
                read = self._begin() if self._read is None else self._read
                newest = self._ledger.newest()
                last = read if newest is None else newest.number
                for number in range(read + 1, last + 1):
                    self._add(self._ledger.read(number))
                    self._read = number
            return self._totals

    def history(self) -> Sequence[CheckpointFigures]:
        """Return the newest checkpoints of this process, the newest first."""
        self.refresh()
        with self._lock:
            return [self._timed(figures) for figures in reversed(self._history)]

    def find(self, checkpoint: int) -> CheckpointFigures | None:
        """Return a checkpoint of this process or of those before it; None if there is none of the number."""
        for figures in self.history():
            if figures.number == checkpoint:
                return figures
        with suppress(PoundlockError, OSError):
            newest = self._ledger.newest()
            if newest is None or not 0 <= checkpoint <= newest.checkpoint:
                return None
            # Checkpoints rise with the numbers of records.
            number = self._first(newest.number, lambda decision: decision.checkpoint >= checkpoint)
            record = self._ledger.read(number)
            if record.checkpoint == checkpoint and record.occasion == "checkpoint":
                return CheckpointFigures.of(record)
        return None

    def _add(self, decision: Decision) -> None:
        self._totals.add(decision)
        self._add_end(decision)
        if decision.occasion == "checkpoint" and not decision.redo:
            figures = self._timed(CheckpointFigures.of(decision))
            self._history.append(figures)
            self._totals.seconds.add(figures.duration_ms / 1000)
            if figures.size is not None:
                self._totals.sizes.add(figures.size)

    def _add_end(self, decision: Decision) -> None:
        """Add to the checkpoint before what its own record could not say: how long its decision and its commit took."""
        before, own = self._last, decision.occasion == "checkpoint" and not decision.redo
        self._last = (decision.number, decision.checkpoint) if own else None
        if before is not None and before[0] == decision.number - 1 and self._history:
            ends = {name: ms for name, ms in decision.durations_ms.items() if name in _OF_THE_ONE_BEFORE}
            newest = self._history[-1]
            if newest.number == before[1]:
                self._history[-1] = replace(newest, phases_ms={**newest.phases_ms, **ends})

    def _timed(self, figures: CheckpointFigures) -> CheckpointFigures:
        took, phases = self._took.get(figures.number), self._phases.get(figures.number)
        timed = figures if took is None else replace(figures, duration_ms=took)
        return timed if phases is None else replace(timed, phases_ms=phases)


def _keep(known: dict[int, T], checkpoint: int, value: T) -> None:
    """Note something of a checkpoint, and forget the oldest where there are too many."""
    known[checkpoint] = value
    while len(known) > _HISTORY:
        del known[next(iter(known))]
