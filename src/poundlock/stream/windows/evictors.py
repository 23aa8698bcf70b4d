"""Evictors: what is taken out of a window around a firing. Also the base of a user's own.

What an evictor takes out is gone for later firings too, whether the function saw it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from poundlock.calls import check_function
from poundlock.errors import DefinitionError
from poundlock.stream.windows.window import Window
from poundlock.values import duration, format_duration, positive, span_ms


class Timestamped(NamedTuple):
    """An element in a window.

    Args:
        timestamp: its event time in ms, None where it has none.
        value: the element.
    """

    timestamp: int | None
    value: Any


Elements = Sequence[Timestamped]


class EvictorContext(Protocol):
    """What an evictor can ask for. Times are ms."""

    def get_current_watermark(self) -> int:
        """Return the watermark; while event-time timers fire it is the new one already."""

    def get_current_processing_time(self) -> int:
        """Return the clock."""


class Evictor:
    """Base of evictors. Both methods return the elements that stay, in order; the base keeps all."""

    def evict_before(self, elements: Elements, window: Window, context: EvictorContext) -> Elements:
        """Return what the function is to see."""
        return elements

    def evict_after(self, elements: Elements, window: Window, context: EvictorContext) -> Elements:
        """Return, of what the function saw, what stays for later firings."""
        return elements

    def describe(self) -> str:
        """Return a few words for `explain`."""
        return type(self).__name__


class _OneSided(Evictor):
    """Works before the function, or after it if `after` is set."""

    after: bool

    def _keep(self, elements: Elements) -> Elements:
        raise NotImplementedError

    def evict_before(self, elements: Elements, window: Window, context: EvictorContext) -> Elements:
        return elements if self.after else self._keep(elements)

    def evict_after(self, elements: Elements, window: Window, context: EvictorContext) -> Elements:
        return self._keep(elements) if self.after else elements

    def _described(self, what: str) -> str:
        return f"{what}{' after the function' if self.after else ''}"


@dataclass(frozen=True)
class CountEvictor(_OneSided):
    """Keeps the last `n` elements.

    Args:
        n: how many stay.
        after: whether they are counted after the function instead of before it.
    """

    n: int
    after: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 0:
            raise DefinitionError(f"a CountEvictor of {self.n!r}", next="give how many elements stay, 0 or more")

    def _keep(self, elements: Elements) -> Elements:
        return elements[max(0, len(elements) - self.n) :]

    def describe(self) -> str:
        return self._described(f"the last {self.n}")


@dataclass(frozen=True)
class TimeEvictor(_OneSided):
    """Keeps the elements later than the latest of the window less a time; all, if the elements have no event time.

    Args:
        span: such as "10 s".
        after: whether it works after the function instead of before it.
    """

    span: str | timedelta
    after: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "span", positive("span", self.span))

    def _keep(self, elements: Elements) -> Elements:
        if not elements or elements[0].timestamp is None:
            return elements
        last = max(e.timestamp for e in elements if e.timestamp is not None)
        limit = last - span_ms(self.span)
        return [e for e in elements if e.timestamp is not None and e.timestamp > limit]

    def describe(self) -> str:
        return self._described(f"the last {format_duration(duration(self.span))}")


@dataclass(frozen=True)
class DeltaEvictor(_OneSided):
    """Keeps the elements that differ by less than a threshold from the last one.

    Args:
        threshold: a difference equal to it is taken out.
        delta: function of (element, last element) to a number.
        after: whether it works after the function instead of before it.
    """

    threshold: float
    delta: Callable[[Any, Any], float]
    after: bool = False

    def __post_init__(self) -> None:
        if not callable(self.delta):
            raise DefinitionError(
                f"{self.delta!r} is no function", next='write DeltaEvictor(5, lambda old, last: last["v"] - old["v"])'
            )
        check_function(self.delta, "DeltaEvictor", "element", "last")

    def _keep(self, elements: Elements) -> Elements:
        if not elements:
            return elements
        last = elements[-1].value
        return [e for e in elements if self.delta(e.value, last) < self.threshold]

    def describe(self) -> str:
        return self._described(f"those within {self.threshold} of the last")
