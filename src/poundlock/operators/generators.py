"""Watermark generators of one source partition, and the timer that tells an idle one.

Nothing here knows a clock: what depends on the time takes it as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from poundlock.errors import DefinitionError
from poundlock.stream.watermarks import WatermarkOutput, WatermarkStrategy
from poundlock.values import span_ms

MIN, MAX = -(1 << 63), (1 << 63) - 1
"""The watermark before any, and the one behind the end of the input."""


class Generator(Protocol):
    """The watermarks of one partition."""

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        """Take the greatest event time (ms) of some rows, and how many there were."""
        ...

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        """Emit what there is to emit; called after every checkpoint and while nothing comes."""
        ...

    def snapshot(self) -> Any:
        """Return what a new one needs to go on, as JSON."""
        ...

    def restore(self, state: Any) -> None:
        """Go on from a snapshot, which may be that of another strategy."""
        ...


@dataclass(slots=True)
class BoundedOutOfOrderness:
    """The greatest event time less a delay and one millisecond.

    Args:
        delay_ms: the delay; 0 for rows in order.
    """

    delay_ms: int
    greatest: int = MIN

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        self.greatest = max(self.greatest, timestamp)

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        if self.greatest != MIN:
            output.emit_watermark(self.watermark)

    @property
    def watermark(self) -> int:
        """The watermark of what came so far, MIN before anything."""
        return MIN if self.greatest == MIN else max(MIN, self.greatest - self.delay_ms - 1)

    def snapshot(self) -> Any:
        return None if self.greatest == MIN else self.greatest

    def restore(self, state: Any) -> None:
        if isinstance(state, int):
            self.greatest = state


@dataclass(slots=True)
class NoWatermarks:
    """Never emits one."""

    def on_event(self, timestamp: int, count: int, output: WatermarkOutput) -> None:
        """Nothing follows from it."""

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        """There is nothing to emit."""

    def snapshot(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """There is nothing to go on from."""


@dataclass(slots=True)
class OfTheClock(NoWatermarks):
    """The time by the clock, less one millisecond: rows that come from now on are given a later time."""

    def on_periodic_emit(self, now_ms: int, output: WatermarkOutput) -> None:
        output.emit_watermark(now_ms - 1)


_MADE: Mapping[str, Callable[[WatermarkStrategy], Generator]] = {
    "bounded": lambda s: BoundedOutOfOrderness(span_ms(s.delay)),
    "monotonous": lambda s: BoundedOutOfOrderness(0),
    "none": lambda s: NoWatermarks(),
    "ingestion": lambda s: OfTheClock(),
    "processing": lambda s: OfTheClock(),
}


def generator_of(strategy: WatermarkStrategy) -> Generator:
    """Return a new generator for one partition.

    Raises:
        DefinitionError: it looks at each record, which only the task that reads them can have it do.
    """
    if strategy.per_record:
        raise DefinitionError(
            "a watermark generator with per_record=True is run by the tasks that read a source, and not here",
            next="leave per_record=True out, and write on_event(self, timestamp, count, output)",
        )
    return _MADE[strategy.kind](strategy)


@dataclass(slots=True)
class IdlenessTimer:
    """Tells whether nothing has come for longer than a timeout, counted from the first check that found nothing new.

    Args:
        timeout_ms: the timeout.
        silent_since: the time of that first check, ms; None = something has come since the last one.
    """

    timeout_ms: int
    silent_since: int | None = None
    _active: bool = field(default=False)

    def activity(self) -> None:
        """Note that something came."""
        self._active = True

    def is_idle(self, now_ms: int) -> bool:
        """Check, at a time by the clock."""
        if self._active:
            self._active, self.silent_since = False, None
            return False
        if self.silent_since is None:
            self.silent_since = now_ms
            return False
        return now_ms - self.silent_since > self.timeout_ms
