"""Windows that lie the same for all keys, fire at their end and need no evictor: a batch at a time.

A window of all keys is one table, its pane, and one timer. The elements of a batch are sorted by window once, then added to
each pane in the order they arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from math import gcd
from typing import Any, ClassVar, cast

from poundlock.operators.keyed.group import MAX, KeyGroup, TimerEntries
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.windows.base import CONTENTS, WindowOperatorBase, WindowSpec
from poundlock.stream.windows.assigners import AlignedWindows, require_time
from poundlock.stream.windows.builtin_assigners import Cumulative, Sliding, Tumbling
from poundlock.stream.windows.window import TimeWindow


def slice_of(assigner: AlignedWindows) -> tuple[int, int] | None:
    """Return (offset, width) in ms of the spans of time within which all elements are in the same windows, None if not known."""
    if isinstance(assigner, Sliding):
        return assigner.offset_ms, gcd(assigner.size_ms, assigner.slide_ms)
    if isinstance(assigner, Tumbling):
        return assigner.offset_ms, assigner.size_ms
    if isinstance(assigner, Cumulative):
        return assigner.offset_ms, assigner.step_ms
    return None


class AlignedWindowOperator(WindowOperatorBase):
    """Tumbling, sliding and cumulative windows with the default trigger."""

    timer_entries: ClassVar[TimerEntries] = "windows"

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(spec, chunk_rows=chunk_rows)
        assert isinstance(spec.assigner, AlignedWindows)
        self._assigner: AlignedWindows = spec.assigner
        width = slice_of(spec.assigner)
        assert width is not None
        self._offset, self._width = width

    def bind(self, group: KeyGroup) -> None:
        group.declare(CONTENTS, "panes")
        for namespace in group.namespaces(CONTENTS):
            self._set_timers(namespace)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        if not len(batch):
            return
        by_window: dict[TimeWindow, list[Sequence[int]]] = {}
        for time, positions in self._sliced(batch):
            windows = [w for w in self._assigner.windows_at(time) if not self._is_late(w)]
            for window in windows:
                by_window.setdefault(window, []).append(positions)
            if not windows and self.event_time:
                self._late(batch, positions)
        for window, parts in by_window.items():
            # Lists, and what is not commutative, hold elements in the order they arrived.
            positions = parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))
            whole = len(positions) == len(batch)
            keys = batch.keys if whole else [batch.keys[i] for i in positions]
            values = batch.values if whole else [batch.values[i] for i in positions]
            if self.event_time and window.end - 1 <= self.group.watermark:
                yield from self._add_and_fire(window, keys, values)
            else:
                self.fold.add_batch(self._pane(window), keys, values)

    def _sliced(self, batch: GroupBatch) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield a time and the places of all elements that are in the same windows as it."""
        if not self.event_time:
            yield self.group.processing_time, range(len(batch))
            return
        if batch.timestamps is None or None in batch.timestamps:
            require_time(None, self._assigner)
        times = cast("Sequence[int]", batch.timestamps)
        low, high = min(times), max(times)
        offset, width = self._offset, self._width
        if (low - offset) // width == (high - offset) // width:
            yield low, range(len(batch))
            return
        slices: dict[int, list[int]] = {}
        start = end = high + 1  # of the slice of the element before: most are in the same
        places: list[int] = []
        for place, time in enumerate(times):
            if not start <= time < end:
                start = time - (time - offset) % width
                end = start + width
                places = slices.setdefault(start, [])
            places.append(place)
        yield from slices.items()

    def _is_late(self, window: TimeWindow) -> bool:
        return self.event_time and self.spec.cleanup_time(window.end - 1) <= self.group.watermark

    def _late(self, batch: GroupBatch, positions: Sequence[int]) -> None:
        # An element in a gap between windows is late only if it is behind the watermark itself.
        assert batch.timestamps is not None
        limit = self.group.watermark - self.spec.allowed_lateness_ms
        for at in positions:
            time = batch.timestamps[at]
            if time is not None and time <= limit:
                self.late(batch, at, self.spec.late_tag)

    def _pane(self, window: TimeWindow) -> dict[Any, Any]:
        """Return the table of a window, with its timers set."""
        namespace = window[0], window[1]
        self._set_timers(namespace)
        return self.group.table(CONTENTS, namespace)

    def _set_timers(self, namespace: tuple[int, int]) -> None:
        """Make a window fire at its end, if that is to come, and go away when its lateness is over.

        The timers of a window of all keys follow from the window and the watermark, so a store need not keep them.
        """
        last = namespace[1] - 1
        if not self.event_time:
            self.group.processing_timers.register(last, namespace)
            return
        if last > self.group.watermark:
            self.group.event_timers.register(last, namespace)
        cleanup = self.spec.cleanup_time(last)
        if self.group.watermark < cleanup < MAX:
            self.group.event_timers.register(cleanup, namespace)

    def _add_and_fire(self, window: TimeWindow, keys: Sequence[Any], values: Sequence[Any]) -> Iterator[OutputChunk]:
        """Add elements to a window that has fired: each makes it fire again."""
        pane, fold, namespace = self._pane(window), self.fold, (window[0], window[1])
        for key, value in zip(keys, values, strict=True):
            pane[key] = fold.add(value, pane[key]) if key in pane else fold.first(value)
            self.firing.fire(key, namespace, window.end - 1, fold.result(pane[key]))
            if self.out.full:
                yield from self.out.drain()

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[OutputChunk]:
        namespace, last = entry, entry[1] - 1
        if time == last:
            yield from self._fire(namespace, last)
        if time == self.spec.cleanup_time(last):
            if self.firing.clears:
                self.group.prefetch(list(self.group.table(CONTENTS, namespace)))
                for key in self.group.table(CONTENTS, namespace):
                    self.firing.clear(key, namespace)
            self.group.drop(CONTENTS, namespace)

    def _fire(self, namespace: Any, last: int) -> Iterator[OutputChunk]:
        pane, result, out = self.group.table(CONTENTS, namespace), self.fold.result, self.out
        if self.firing.process is not None:
            self.group.prefetch(list(pane))
            for key, held in pane.items():
                self.firing.fire(key, namespace, last, result(held))
                if out.full:
                    yield from out.drain()
            return
        keys, contents = iter(pane), iter(pane.values())
        while some := list(islice(keys, max(out.look_at - out.size, 1))):
            out.emit_windows(list(map(result, islice(contents, len(some)))), some, last, namespace)
            if out.full:
                yield from out.drain()
