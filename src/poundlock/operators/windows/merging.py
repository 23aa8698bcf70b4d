"""Windows that merge: which windows a key has, and what becomes of contents, trigger state and timers when some become one.

At any time the windows of a key are as the assigner would merge them; contents are always under the window they are in now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.stream.windows.assigners import MergingWindowAssigner
from poundlock.stream.windows.window import TimeWindow

if TYPE_CHECKING:
    from poundlock.operators.windows.general import WindowOperator


WINDOWS = "merging windows"
_Span = tuple[int, int]


class MergingWindows:
    """The windows of each key of a general operator."""

    def __init__(self, operator: WindowOperator) -> None:
        self._operator = operator
        assert isinstance(operator.spec.assigner, MergingWindowAssigner)
        self._assigner: MergingWindowAssigner = operator.spec.assigner
        self._of: dict[Any, list[_Span]] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(WINDOWS, "merging windows")
        self._of = group.table(WINDOWS)

    def has(self, key: Any, window: _Span) -> bool:
        """Return whether a key has a window."""
        return window in self._of.get(key, ())

    def retire(self, key: Any, window: _Span) -> None:
        """Forget a window of a key."""
        windows = self._of.get(key, [])
        if window in windows:
            windows.remove(window)
        if not windows:
            self._of.pop(key, None)

    def add(self, key: Any, new: _Span) -> _Span:
        """Put a window among those of a key; return the one it is part of now."""
        windows = self._of.get(key)
        if windows is None:
            self._of[key] = [new]
            return new
        if new in windows:
            return new
        covering, kept = new, []
        merged = self._assigner.merge_windows([TimeWindow(*window) for window in (*windows, new)])
        for result, parts in merged:
            cover = result[0], result[1]
            kept.append(cover)
            spans = [(part[0], part[1]) for part in parts]
            if new in spans:
                covering = cover
            old = [span for span in spans if span in windows]
            if old and old != [cover]:
                self._become(key, cover, old)
        self._of[key] = kept
        return covering

    def _become(self, key: Any, cover: _Span, old: list[_Span]) -> None:
        operator = self._operator
        window, entry = TimeWindow(*cover), (key, cover)
        cleanup = operator.spec.cleanup_time(window.max_timestamp())
        if operator.event_time and cleanup <= operator.group.watermark:
            raise DefinitionError(
                f"{self._assigner.describe()} merged windows into {window}, which has ended already",
                next="return from merge_windows a window that covers those it is made of",
            )
        gone = [(key, span) for span in old if span != cover]
        operator.context.move(entry, gone)
        operator.trigger.on_merge(window, operator.context)
        for left in gone:
            operator.context.move(left)
            operator.trigger.clear(TimeWindow(*left[1]), operator.context)
            cleanup = operator.spec.cleanup_time(left[1][1] - 1)
            timers = operator.group.event_timers if operator.event_time else operator.group.processing_timers
            if cleanup < MAX:
                timers.delete(cleanup, left)
        self._move_contents(key, cover, old)

    def _move_contents(self, key: Any, cover: _Span, old: list[_Span]) -> None:
        contents, fold = self._operator.contents, self._operator.fold
        held = [contents.pop((key, span)) for span in old if (key, span) in contents]
        if not held:
            return
        whole = held[0]
        for other in held[1:]:
            whole = [*whole, *other] if self._operator.evicting else fold.merge(whole, other)
        contents[key, cover] = whole
