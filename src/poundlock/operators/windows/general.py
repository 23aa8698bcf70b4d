"""The general window operator: any assigner, trigger, evictor and function, an element at a time, step for step as in Flink.

For an element: assign, merge, leave out late windows, add to the contents, ask the trigger, fire, purge, set the clean-up timer.
At any time the windows of a key that merge are as the assigner would merge them; contents are always under the window they are in
now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.accumulators import Fold, ReduceFold
from poundlock.operators.keyed.group import MAX, KeyGroup, TimerEntries
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.keyed.state import StateStore
from poundlock.operators.windows.base import CONTENTS, WindowOperatorBase, WindowSpec, as_namespace, as_window
from poundlock.stream.functions.base import KeyedStateStore
from poundlock.stream.functions.state import StateDescriptor
from poundlock.stream.windows.assigners import MergingWindowAssigner
from poundlock.stream.windows.evictors import Evictor, EvictorContext, Timestamped
from poundlock.stream.windows.triggers import TriggerResult
from poundlock.stream.windows.window import TimeWindow, Window


class _AssignerContext:
    def __init__(self) -> None:
        self.store = StateStore("assigner:")

    def get_current_processing_time(self) -> int:
        return self.store.now

    def key_state(self) -> KeyedStateStore:
        return self.store


@runtime_checkable
class _Mergeable(Protocol):
    def merge(self, entries: Sequence[Any]) -> None: ...


class OperatorTriggerContext:
    """A TriggerContext, an OnMergeContext and an EvictorContext: of one key and window, moved from one to the next."""

    def __init__(self) -> None:
        self._store = StateStore("trigger:", windowed=True)
        self._merged: Sequence[Any] = ()

    def use(self, group: KeyGroup) -> None:
        self._store.use(group)

    def move(self, entry: Any, merged: Sequence[Any] = ()) -> None:
        """Belong to (key, window) from now on.

        Args:
            entry: key and window.
            merged: while windows merge, the entries whose state goes into it.
        """
        self._store.entry = entry
        self._merged = merged

    def get_current_watermark(self) -> int:
        return self._store.group.watermark

    def get_current_processing_time(self) -> int:
        return self._store.group.processing_time

    def register_event_time_timer(self, time: int) -> None:
        self._store.group.event_timers.register(time, self._store.entry)

    def register_processing_time_timer(self, time: int) -> None:
        self._store.group.processing_timers.register(time, self._store.entry)

    def delete_event_time_timer(self, time: int) -> None:
        self._store.group.event_timers.delete(time, self._store.entry)

    def delete_processing_time_timer(self, time: int) -> None:
        self._store.group.processing_timers.delete(time, self._store.entry)

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        return self._store.get(descriptor)

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        state = self._store.get(descriptor)
        if not isinstance(state, _Mergeable):
            raise DefinitionError(
                f"state {descriptor.name!r} of a trigger cannot be merged",
                next="use list, reducing or aggregating state",
            )
        state.merge(self._merged)


class Evicting:
    """An evictor, and how its window's elements, each of which is kept with its time, become a result."""

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


class WindowOperator(WindowOperatorBase):
    """Any windows at all."""

    timer_entries: ClassVar[TimerEntries] = "keys and windows"

    def __init__(self, spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(spec, chunk_rows=chunk_rows)
        self.trigger = spec.trigger or spec.assigner.default_trigger()
        evictor = spec.evictor or spec.assigner.default_evictor()
        self.evicting = None if evictor is None else Evicting(evictor, self.fold)
        self.contents: dict[Any, Any] = {}
        self.context = OperatorTriggerContext()
        self._assigning = _AssignerContext()
        merges = isinstance(spec.assigner, MergingWindowAssigner)
        self.merging = MergingWindows(self) if merges else None

    def bind(self, group: KeyGroup) -> None:
        kind = "evictable windows" if self.evicting else "windows"
        group.declare(CONTENTS, kind, windowed=True)
        self.contents = group.table(CONTENTS)
        if self.merging:
            self.merging.bind(group)

    def use(self, group: KeyGroup) -> None:
        super().use(group)
        self.context.use(group)
        self._assigning.store.use(group)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        times = batch.timestamps or [None] * len(batch)
        out = self.out
        for at, (key, value, time) in enumerate(zip(batch.keys, batch.values, times, strict=True)):
            if not self._element(key, value, time) and self._is_behind(time):
                self.late(batch, at, self.spec.late_tag)
            if out.full:
                yield from out.drain()

    def _is_behind(self, time: int | None) -> bool:
        return self.event_time and time is not None and time + self.spec.allowed_lateness_ms <= self.group.watermark

    def _element(self, key: Any, value: Any, time: int | None) -> bool:
        """Add an element to its windows; return whether any of them took it."""
        self._assigning.store.entry = key
        taken = False
        for window in self.spec.assigner.assign_windows(value, time, self._assigning):
            namespace = as_namespace(window)
            if self.merging:
                namespace = self.merging.add(key, namespace)
                window = as_window(namespace)
            cleanup = self.spec.cleanup_time(window.max_timestamp())
            if self.event_time and cleanup <= self.group.watermark:
                if self.merging:
                    self.merging.retire(key, namespace)
                continue
            taken = True
            entry = key, namespace
            held = self.contents.get(entry, self)
            kept = value if self.evicting is None else [time, value]
            self.contents[entry] = self._begun(kept) if held is self else self._grown(kept, held)
            self.context.move(entry)
            self._do(self.trigger.on_element(value, time, window, self.context), entry, window)
            if cleanup < MAX:
                self.timers.register(cleanup, entry)
        return taken

    def _begun(self, kept: Any) -> Any:
        return self.fold.first(kept) if self.evicting is None else [kept]

    def _grown(self, kept: Any, held: Any) -> Any:
        if self.evicting is None:
            return self.fold.add(kept, held)
        held.append(kept)
        return held

    def _do(self, result: TriggerResult, entry: Any, window: Window) -> None:
        if result is TriggerResult.CONTINUE:
            return
        if not isinstance(result, TriggerResult):
            raise DefinitionError(
                f"the trigger {type(self.trigger).__name__} returned {result!r}",
                next="return TriggerResult.CONTINUE, FIRE, PURGE or FIRE_AND_PURGE",
            )
        if result.is_fire and entry in self.contents:
            self._fire(entry, window)
        if result.is_purge:
            self.contents.pop(entry, None)

    def _fire(self, entry: Any, window: Window) -> None:
        key, namespace = entry
        held, last = self.contents[entry], window.max_timestamp()
        if self.evicting is None:
            self.firing.fire(key, namespace, last, self.fold.result(held))
            return
        seen = self.evicting.before(held, window, self.context)
        if seen or self.evicting.fires_empty:
            self.firing.fire(key, namespace, last, self.evicting.result(seen))
        left = self.evicting.after(seen, window, self.context)
        if left:
            self.contents[entry] = left
        else:
            del self.contents[entry]

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        key, namespace = entry
        if self.merging and not self.merging.has(key, namespace):
            return  # it was merged into another, and its trigger forgot a timer
        window = as_window(namespace)
        self.context.move(entry)
        ask = self.trigger.on_event_time if event else self.trigger.on_processing_time
        self._do(ask(time, window, self.context), entry, window)
        if event == self.event_time and time == self.spec.cleanup_time(window.max_timestamp()):
            self._clear(entry, window)

    def _clear(self, entry: Any, window: Window) -> None:
        self.contents.pop(entry, None)
        self.context.move(entry)
        self.trigger.clear(window, self.context)
        self.firing.clear(*entry)
        if self.merging:
            self.merging.retire(*entry)


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
        return window in self._of.get(key, ())

    def retire(self, key: Any, window: _Span) -> None:
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
            if cleanup < MAX:
                operator.timers.delete(cleanup, left)
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
