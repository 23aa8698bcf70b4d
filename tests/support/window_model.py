"""The window operator of Flink written down once more, as plainly as it can be: lists that are searched, no batches, no bytes.

It shares with poundlock only what a user can write too: assigners, triggers and evictors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from poundlock.operators.windows.base import as_namespace
from poundlock.stream.functions.state import ReducingStateDescriptor
from poundlock.stream.windows.assigners import MergingWindowAssigner
from poundlock.stream.windows.evictors import Timestamped
from poundlock.stream.windows.triggers import TriggerResult
from poundlock.stream.windows.window import MAX_TIMESTAMP, TimeWindow
from support.window_scripts import Setting, Step

MIN = -(1 << 63)


class Cell:
    """State of a value, or reduced to one."""

    def __init__(self, held: dict[Any, Any], place: Any, descriptor: Any) -> None:
        self.held, self.place, self.descriptor = held, place, descriptor

    def get(self) -> Any:
        return self.held.get(self.place)

    def value(self) -> Any:
        return self.held.get(self.place, self.descriptor.default)

    def update(self, value: Any) -> None:
        self.held[self.place] = value

    def add(self, value: Any) -> None:
        self.held[self.place] = (
            self.descriptor.reduce(self.held[self.place], value) if self.place in self.held else value
        )

    def clear(self) -> None:
        self.held.pop(self.place, None)


class Model:
    """All windows of all keys: what trigger, evictor and assigner can ask for is asked of this."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.assigner = setting, setting.assigner
        self.trigger = setting.trigger or setting.assigner.default_trigger()
        self.evictor = setting.evictor or setting.assigner.default_evictor()
        self.merges = isinstance(self.assigner, MergingWindowAssigner)
        self.contents: dict[Any, list[Timestamped]] = {}  # by (key, window)
        self.open: set[Any] = set()  # the (key, window) there are, where they merge
        self.state: dict[Any, Any] = {}
        self.timers: dict[str, list[tuple[int, Any]]] = {"event": [], "clock": []}
        self.mark, self.now = MIN, 0
        self.entry: Any = None
        self.merged: list[Any] = []
        self.out: list[Any] = []
        self.late: list[Any] = []

    # --- what user code asks --------------------------------------------------------------------------------------------

    def get_current_watermark(self) -> int:
        return self.mark

    def get_current_processing_time(self) -> int:
        return self.now

    def _set(self, kind: str, time: int) -> None:
        if (time, self.entry) not in self.timers[kind]:
            self.timers[kind].append((time, self.entry))

    def _unset(self, kind: str, time: int) -> None:
        if (time, self.entry) in self.timers[kind]:
            self.timers[kind].remove((time, self.entry))

    def register_event_time_timer(self, time: int) -> None:
        self._set("event", time)

    def register_processing_time_timer(self, time: int) -> None:
        self._set("clock", time)

    def delete_event_time_timer(self, time: int) -> None:
        self._unset("event", time)

    def delete_processing_time_timer(self, time: int) -> None:
        self._unset("clock", time)

    def get_partitioned_state(self, descriptor: Any) -> Cell:
        return Cell(self.state, (self.entry, descriptor.name), descriptor)

    def merge_partitioned_state(self, descriptor: ReducingStateDescriptor) -> None:
        for old in self.merged:
            if (old, descriptor.name) in self.state:
                self.get_partitioned_state(descriptor).add(self.state.pop((old, descriptor.name)))

    def key_state(self) -> Model:
        return self

    def get_state(self, descriptor: Any) -> Cell:
        return Cell(self.state, ("of the key", self.entry[0], descriptor.name), descriptor)

    # --- elements -------------------------------------------------------------------------------------------------------

    def cleanup(self, window: Any) -> int:
        last: int = window.max_timestamp()
        return min(last + self.setting.lateness, MAX_TIMESTAMP) if self.assigner.is_event_time() else last

    def element(self, key: Any, value: Any, time: int) -> None:
        event, taken = self.assigner.is_event_time(), False
        self.entry = key, None
        context: Any = self
        for window in list(self.assigner.assign_windows(value, time, context)):
            if self.merges:
                assert isinstance(window, TimeWindow)
                window = self.merge(key, window)
            if event and self.cleanup(window) <= self.mark:
                self.open.discard((key, window))
                continue
            taken = True
            self.contents.setdefault((key, window), []).append(Timestamped(time, value))
            self.entry = key, window
            self.act(self.trigger.on_element(value, time, window, context))
            if self.cleanup(window) < MAX_TIMESTAMP:
                self._set("event" if event else "clock", self.cleanup(window))
        if not taken and event and time + self.setting.lateness <= self.mark:
            self.late.append((key, value["v"], time))

    def merge(self, key: Any, window: TimeWindow) -> TimeWindow:
        """Return what the window is part of now; those it touches become that."""
        touched = [entry for entry in self.open if entry[0] == key and entry[1].intersects(window)]
        cover = window
        for _, other in touched:
            cover = cover.cover(other)
        self.open = self.open - set(touched) | {(key, cover)}
        if touched and touched != [(key, cover)]:
            self.entry, self.merged = (key, cover), [entry for entry in touched if entry[1] != cover]
            context: Any = self
            self.trigger.on_merge(cover, context)
            whole = [element for entry in touched for element in self.contents.pop(entry, [])]
            if whole:
                self.contents[key, cover] = whole
            for gone in self.merged:
                self.entry = gone
                self.trigger.clear(self.entry[1], context)
                self._unset("event" if self.assigner.is_event_time() else "clock", self.cleanup(self.entry[1]))
        return cover

    # --- firings --------------------------------------------------------------------------------------------------------

    def act(self, result: TriggerResult) -> None:
        if result.is_fire and self.contents.get(self.entry):
            self.fire()
        if result.is_purge:
            self.contents.pop(self.entry, None)

    def fire(self) -> None:
        (key, window), context = self.entry, self
        held: Sequence[Any] = self.contents[self.entry]
        if self.evictor is not None:
            held = self.evictor.evict_before(held, window, context)
        self.out.append((key, [element.value["v"] for element in held], self.mark, window))
        if self.evictor is not None:
            self.contents[self.entry] = list(self.evictor.evict_after(held, window, context))

    def fire_timers(self, kind: str, limit: int) -> None:
        context: Any = self
        ask: Callable[..., TriggerResult] = (
            self.trigger.on_event_time if kind == "event" else self.trigger.on_processing_time
        )
        while due := [timer for timer in self.timers[kind] if timer[0] <= limit]:
            time, self.entry = min(due, key=lambda timer: timer[0])
            self.timers[kind].remove((time, self.entry))
            window = self.entry[1]
            if self.merges and self.entry not in self.open:
                continue
            self.act(ask(time, window, context))
            if (kind == "event") == self.assigner.is_event_time() and time == self.cleanup(window):
                self.contents.pop(self.entry, None)
                self.trigger.clear(window, context)
                self.open.discard(self.entry)

    # --- what is left ---------------------------------------------------------------------------------------------------

    def set_timers(self) -> set[Any]:
        """Return (domain, time, key, window) of each timer."""
        domains = {"event": "event", "clock": "processing"}
        return {
            (domains[kind], time, key, as_namespace(window))
            for kind, timers in self.timers.items()
            for time, (key, window) in timers
        }

    def trigger_states(self) -> dict[str, set[Any]]:
        """Return which (key, window) have state of a trigger, by its name."""
        found: dict[str, set[Any]] = {}
        for place in self.state:
            if place[0] != "of the key":
                (key, window), name = place
                found.setdefault(f"trigger:{name}", set()).add((key, as_namespace(window)))
        return found

    # --- scripts --------------------------------------------------------------------------------------------------------

    def run(self, step: Step) -> tuple[Counter[Any], Counter[Any]]:
        """Run a step; return what came out, and what was late."""
        kind, what = step
        self.out, self.late = [], []
        if kind == "elements":
            for key, value, time in what:
                self.element(key, {"k": key, "v": value}, time)
        elif kind == "clock":
            self.now = max(self.now, what)
            self.fire_timers("clock", self.now)
        else:
            mark = MAX_TIMESTAMP if kind == "end" else what
            if mark > self.mark:
                self.mark = mark
                self.fire_timers("event", mark)
        out = Counter(shown(key, values, mark, window, self.merges) for key, values, mark, window in self.out)
        return out, Counter(self.late)


def shown(key: Any, values: Sequence[int], mark: int, window: Any, merges: bool) -> Any:
    """Return a result that can be counted; elements of windows that merged have no order."""
    return key, tuple(sorted(values) if merges else values), mark, window
