"""The store against plain dicts: random writes, deletions, timers, time to live, restarts, merges, any parallelism, equal hashes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from copy import deepcopy
from typing import Any
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import PoundlockError
from poundlock.operators.keyed.group import MAX
from poundlock.state import tables, task_state
from poundlock.state.hashing import groups_of, hashes_of
from poundlock.state.inspect import StateReader
from poundlock.state.operator_state import OperatorState
from poundlock.state.runs import compaction
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import OPERATOR, ScratchState

KEYS = ["a", "b", 7, -1, ("a", 1), ("a", None), None, "ä" * 40]
WINDOWS = [(0, 10), (10, 20), None, 3]
PANES = [(0, 10), (10, 20)]
TTL = 20

keys = st.sampled_from(KEYS)
values = st.one_of(st.integers(0, 3), st.lists(st.integers(0, 2), max_size=3), st.just("text" * 20))
times = st.integers(0, 8)
steps = st.one_of(
    st.tuples(st.just("put"), keys, values),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("put window"), keys, st.sampled_from(WINDOWS), values),
    st.tuples(st.just("delete window"), keys, st.sampled_from(WINDOWS)),
    st.tuples(st.just("put pane"), keys, st.sampled_from(PANES), values),
    st.tuples(st.just("drop pane"), st.sampled_from(PANES)),
    st.tuples(st.just("append"), keys, st.integers(0, 2)),
    st.tuples(st.just("touch"), keys, values),
    st.tuples(st.just("clock"), st.integers(1, 15)),
    st.tuples(st.just("broadcast"), st.integers(0, 3)),
    st.tuples(st.just("register"), keys, times),
    st.tuples(st.just("unregister"), keys, times),
    st.tuples(st.just("fire"), times),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("rescale"), st.integers(1, 6)),
)


class Model:
    """What the store must hold."""

    def __init__(self) -> None:
        self.tables: dict[tuple[str, Any], dict[Any, Any]] = {}
        self.timers: list[tuple[int, Any]] = []
        self.now = 0

    def table(self, name: str, space: Any = None) -> dict[Any, Any]:
        return self.tables.setdefault((name, space), {})


class Pair:
    """A model and a store that the same is done to."""

    def __init__(self, policy: MergePolicy, hashes: Callable[[Any], Any]) -> None:
        self.store = ScratchState(6, 1, policy=policy)
        self.model = Model()
        self._hashes = hashes

    def group(self, key: Any) -> int:
        return int(groups_of(self._hashes([key]), 6)[0])

    def state(self, key: Any) -> OperatorState:
        state = self.task(self.group(key) * self.store.parallelism // 6)
        state.prefetch([key])
        return state

    def task(self, number: int) -> OperatorState:
        state = self.store.open(number, 0, self.model.now)
        state.timer_entries = "keys"
        state.declare("value", "value")
        state.declare("windowed", "value", windowed=True)
        state.declare("panes", "panes")
        state.declare("ttl", "value", TTL)
        state.declare("rules", "map", broadcast=True)
        state.processing_time = self.model.now
        return state

    def every_task(self) -> list[OperatorState]:
        return [self.task(number) for number in range(self.store.parallelism)]

    def do(self, step: tuple[Any, ...]) -> None:
        # A value of the script must not be shared by the store, the model and the next example.
        getattr(self, step[0].replace(" ", "_"))(*deepcopy(step[1:]))

    def put(self, key: Any, value: Any) -> None:
        self.state(key).table("value")[key] = deepcopy(value)
        self.model.table("value")[key] = value

    def delete(self, key: Any) -> None:
        assert self.state(key).table("value").pop(key, None) == self.model.table("value").pop(key, None)

    def put_window(self, key: Any, window: Any, value: Any) -> None:
        self.state(key).table("windowed")[key, window] = value
        self.model.table("windowed")[key, window] = value

    def delete_window(self, key: Any, window: Any) -> None:
        entry = key, window
        held = self.state(key).table("windowed").pop(entry, None)
        assert held == self.model.table("windowed").pop(entry, None)

    def put_pane(self, key: Any, pane: Any, value: Any) -> None:
        table, model = self.state(key).table("panes", pane), self.model.table("panes", pane)
        assert table.get(key) == model.get(key)
        table[key], model[key] = deepcopy(value), value

    def drop_pane(self, pane: Any) -> None:
        for state in self.every_task():
            assert set(state.table("panes", pane)) <= set(self.model.table("panes", pane))
            state.drop("panes", pane)
        self.model.table("panes", pane).clear()

    def append(self, key: Any, value: int) -> None:
        """Change a value in place, as user code and folds do."""
        held = self.state(key).table("value").get(key)
        if isinstance(held, list):
            held.append(value)
            model = self.model.table("value")
            model[key] = [*model[key], value]
        assert held == self.model.table("value").get(key)

    def touch(self, key: Any, value: Any) -> None:
        self.state(key).table("ttl")[key] = [self.model.now, value]
        self.model.table("ttl")[key] = [self.model.now, value]

    def clock(self, by: int) -> None:
        self.model.now += by

    def broadcast(self, value: int) -> None:
        for state in self.every_task():
            state.table("rules").setdefault(None, {})[value] = "rule"
        self.model.table("rules").setdefault(None, {})[value] = "rule"

    def register(self, key: Any, time: int) -> None:
        self.state(key).event_timers.register(time, key)
        if (time, key) not in self.model.timers:
            self.model.timers.append((time, key))

    def unregister(self, key: Any, time: int) -> None:
        self.state(key).event_timers.delete(time, key)
        if (time, key) in self.model.timers:
            self.model.timers.remove((time, key))

    def fire(self, limit: int) -> None:
        due = sorted((timer for timer in self.model.timers if timer[0] <= limit), key=lambda timer: timer[0])
        self.model.timers = [timer for timer in self.model.timers if timer[0] > limit]
        fired = [list(state.event_timers.due(limit)) for state in self.every_task()]
        assert sorted(map(repr, due)) == sorted(repr(timer) for some in fired for timer in some)
        for some in fired:
            assert [time for time, _ in some] == sorted(time for time, _ in some)
            # Keys of one group were never in two tasks, so theirs fire as they were registered.
            for group in range(6):
                of_group = [timer for timer in some if self.group(timer[1]) == group]
                assert of_group == [timer for timer in due if timer in of_group]

    def checkpoint(self) -> None:
        self.store.write()

    def rescale(self, parallelism: int) -> None:
        self.store.write()
        self.store.parallelism = parallelism

    def check(self) -> None:
        """Compare all there is, by key, whole, and as people read it."""
        model = self.model
        for state in self.every_task():
            times = [time for time, key in model.timers if self.state(key) is state]
            assert state.event_timers.next_time() == min(times, default=None)
        for (name, space), table in model.tables.items():
            found: dict[Any, Any] = {}
            for state in self.every_task():
                found.update(dict(state.table(name, space).items()))
            assert alive(name, found, model.now) == alive(name, table, model.now)
        self.store.write()
        reader = StateReader(self.store.manifest, self.store.files)
        for (name, space), table in model.tables.items():
            read: dict[Any, Any] = {}
            for entry in reader.entries(OPERATOR):
                if entry.table == name and (name != "panes" or entry.window == space):
                    read[(entry.key, entry.window) if name == "windowed" else entry.key] = entry.value
            assert alive(name, read, model.now) == alive(name, table, model.now)
            for key in KEYS:
                of = [e.value for e in reader.entries_of(OPERATOR, key) if e.table == name and name == "value"]
                assert of == ([table[key]] if name == "value" and key in table else [])
        assert sorted((t.time, repr(t.key)) for t in reader.timers(OPERATOR)) == sorted(
            (time, repr(key)) for time, key in model.timers
        )
        first = min((time for time, _ in model.timers), default=None)
        assert self.store.manifest.next_timers(OPERATOR) == (first, None)


def alive(name: str, table: dict[Any, Any], now: int) -> dict[Any, Any]:
    """Return what of a table counts: expired entries may be there still, or not."""
    return {entry: held for entry, held in table.items() if name != "ttl" or held[0] + TTL > now}


def crowded(keys: Any) -> Any:
    """Return hashes of which there are three, in different groups."""
    return hashes_of(keys) % np.uint64(3) * np.uint64(1 << 62)


@pytest.mark.parametrize("hashes", [hashes_of, crowded], ids=["hashes", "equal hashes"])
@given(
    script=st.lists(steps, max_size=40),
    fan_in=st.integers(2, 4),
    budget=st.sampled_from([1, 3000, 1 << 20]),
    memory=st.sampled_from([0, 100, 1 << 20]),
)
def test_the_store_holds_what_dicts_would(
    hashes: Callable[[Any], Any], script: list[tuple[Any, ...]], fan_in: int, budget: int, memory: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "CHUNK", memory)
        patch.setattr(task_state, "HELD", memory)
        patch.setattr(tables, "hashes_of", hashes)
        patch.setattr("poundlock.state.inspect.hashes_of", hashes)
        pair = Pair(MergePolicy(fan_in=fan_in, budget=budget), hashes)
        for step in script:
            pair.do(step)
        pair.check()


def test_a_key_of_another_task_is_refused() -> None:
    store = ScratchState(6, 2)
    key = next(key for key in KEYS if groups_of(hashes_of([key]), 6)[0] >= 3)
    with pytest.raises(PoundlockError, match="came to the task of groups 0 to 2"):
        store.open(0, 0, 0).prefetch([key])


def test_state_of_a_key_that_was_not_asked_for_is_not_written() -> None:
    store = ScratchState(6, 1)
    store.open(0, 0, 0).table("value")["a"] = 1
    with pytest.raises(PoundlockError, match="not one of the records or timers at work"):
        store.write()


def test_what_a_checkpoint_touched_goes_with_it() -> None:
    store = ScratchState(6, 1)
    state = store.open(0, 0, 0)
    state.prefetch(["a"])
    state.table("value")["a"] = 1
    state.event_timers.register(1, "a")
    touched, enabled = ref(state), gc.isenabled()
    gc.disable()
    try:
        del state
        store.write()
        assert touched() is None, "it waits for the collector of garbage"
    finally:
        if enabled:
            gc.enable()


def test_the_end_of_all_time_is_a_time_like_others() -> None:
    store = ScratchState(6, 1)
    state = store.open(0, 0, 0)
    state.prefetch(["a"])
    state.event_timers.register(MAX, "a")
    state.event_timers.register(-(1 << 63), "a")
    store.write()
    assert list(store.open(0, 0, 0).event_timers.due(MAX)) == [(-(1 << 63), "a"), (MAX, "a")]
    store.write()
    assert store.manifest.next_timers(OPERATOR) == (None, None)
