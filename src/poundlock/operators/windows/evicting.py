"""Evictors at work: the contents of a window are every element with its time.

A firing leaves behind what the evictor lets stay, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.accumulators import Fold, ReduceFold
from poundlock.stream.windows.evictors import Evictor, EvictorContext, Timestamped
from poundlock.stream.windows.window import Window


class Evicting:
    """An evictor, and the function its window has.

    Args:
        evictor: the user's, or the assigner's.
        fold: how elements become a result.
    """

    def __init__(self, evictor: Evictor, fold: Fold) -> None:
        self._evictor = evictor
        self._fold = fold
        self.fires_empty = not isinstance(fold, ReduceFold)  # nothing cannot be reduced to a record

    def before(self, held: list[Any], window: Window, context: EvictorContext) -> Sequence[Timestamped]:
        """Return what the function is to see."""
        return self._kept(self._evictor.evict_before([Timestamped(*item) for item in held], window, context))

    def result(self, seen: Sequence[Timestamped]) -> Any:
        """Return what comes of the elements the function sees."""
        return self._fold.of([item.value for item in seen])

    def after(self, seen: Sequence[Timestamped], window: Window, context: EvictorContext) -> list[Any]:
        """Return what stays in the window."""
        return [list(item) for item in self._kept(self._evictor.evict_after(seen, window, context))]

    def _kept(self, elements: Any) -> Sequence[Timestamped]:
        kept = list(elements) if isinstance(elements, Iterable) else [elements]
        for kind in set(map(type, kept)) - {Timestamped}:
            raise DefinitionError(
                f"the evictor {type(self._evictor).__name__} returned {kind.__name__} where elements of the window belong",
                next="return those of the elements it was given that stay",
            )
        return kept
