"""The general window operator: any assigner, trigger, evictor and function, an element at a time, step for step as in Flink.

For an element: assign, merge, leave out late windows, add to the contents, ask the trigger, fire, purge, set the clean-up timer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import MAX, KeyGroup, TimerEntries
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk
from poundlock.operators.keyed.state import StateStore
from poundlock.operators.windows.base import WindowOperatorBase
from poundlock.operators.windows.evicting import Evicting
from poundlock.operators.windows.firing import as_namespace, as_window
from poundlock.operators.windows.merging import MergingWindows
from poundlock.operators.windows.spec import WindowSpec
from poundlock.operators.windows.triggering import OperatorTriggerContext
from poundlock.stream.functions.base import KeyedStateStore
from poundlock.stream.windows.assigners import MergingWindowAssigner
from poundlock.stream.windows.triggers import TriggerResult
from poundlock.stream.windows.window import Window

CONTENTS = "contents"


class _AssignerContext:
    def __init__(self) -> None:
        self.store = StateStore("assigner:")

    def get_current_processing_time(self) -> int:
        return self.store.now

    def key_state(self) -> KeyedStateStore:
        return self.store


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
                self._cleanup_timers().register(cleanup, entry)
        return taken

    def _begun(self, kept: Any) -> Any:
        return self.fold.first(kept) if self.evicting is None else [kept]

    def _grown(self, kept: Any, held: Any) -> Any:
        if self.evicting is None:
            return self.fold.add(kept, held)
        held.append(kept)
        return held

    def _cleanup_timers(self) -> Any:
        return self.group.event_timers if self.event_time else self.group.processing_timers

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
