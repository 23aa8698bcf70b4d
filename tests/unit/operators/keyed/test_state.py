"""State objects: what they hold for each key, how long, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.state import StateStore
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import ScratchState
from poundlock.stream.functions.base import AggregateFunction
from poundlock.stream.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


class Mean(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [accumulator[0] + value, accumulator[1] + 1]

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [a[0] + b[0], a[1] + b[1]]


def plus(a: int, b: int) -> int:
    return a + b


class Keyed:
    """A store that is moved from key to key and written and read between any two uses."""

    def __init__(self, *descriptors: StateDescriptor) -> None:
        self.store = StateStore("state:")
        self.states = [self.store.get(d) for d in descriptors]
        self.runs = ScratchState(1, policy=MergePolicy(fan_in=2))

    @property
    def group(self) -> KeyGroup:
        return self.runs.open()

    def at(self, key: Any, now: int = 0) -> Any:
        self.runs.write()
        group = self.runs.open()
        group.processing_time = now
        self.store.use(group)
        self.store.entry = key
        group.prefetch([key, "a", "b", "c", "d"])
        return self.states[0] if len(self.states) == 1 else self.states


def ttl(**said: Any) -> StateTtlConfig:
    return StateTtlConfig(ttl="100 ms", **said)


BOTH = pytest.mark.parametrize("config", [None, ttl()], ids=["for ever", "with ttl"])


@BOTH
def test_a_value(config: StateTtlConfig | None) -> None:
    keyed = Keyed(ValueStateDescriptor("v", 7, ttl=config))
    assert keyed.at("a").value() == 7
    keyed.at("a").update(1)
    keyed.at(("b", 1)).update({"n": [2]})
    assert (keyed.at("a").value(), keyed.at(("b", 1)).value(), keyed.at("c").value()) == (1, {"n": [2]}, 7)
    keyed.at("a").update(None)
    keyed.at(("b", 1)).clear()
    assert (keyed.at("a").value(), keyed.at(("b", 1)).value()) == (7, 7)
    assert keyed.group.is_empty()


@BOTH
def test_a_default_that_is_changed_is_not_that_of_the_next_key(config: StateTtlConfig | None) -> None:
    keyed = Keyed(ValueStateDescriptor("v", [], ttl=config))
    for key in ("a", "b"):
        state = keyed.at(key)
        found = state.value()
        found.append(key)
        state.update(found)
        assert keyed.at(key).value() == [key]


@BOTH
def test_a_list(config: StateTtlConfig | None) -> None:
    keyed = Keyed(ListStateDescriptor("l", ttl=config))
    assert keyed.at("a").get() == []
    keyed.at("a").add(1)
    keyed.at("a").add((2, 3))
    keyed.at("a").add_all([4, None])
    assert keyed.at("a").get() == [1, (2, 3), 4, None]
    assert keyed.at("b").get() == []
    keyed.at("a").update([5])
    assert keyed.at("a").get() == [5]
    keyed.at("a").get().append(6)
    assert keyed.at("a").get() == [5]
    keyed.at("a").update([])
    assert keyed.at("a").get() == []
    keyed.at("a").add(1)
    keyed.at("a").clear()
    assert keyed.group.is_empty()


@BOTH
def test_a_map(config: StateTtlConfig | None) -> None:
    keyed = Keyed(MapStateDescriptor("m", ttl=config))
    assert (keyed.at("a").get("x"), keyed.at("a").contains("x"), keyed.at("a").is_empty()) == (None, False, True)
    keyed.at("a").put("x", 1)
    keyed.at("a").put_all({(1, 2): "y", None: 3})
    assert list(keyed.at("a").items()) == [("x", 1), ((1, 2), "y"), (None, 3)]
    assert (list(keyed.at("a").keys()), list(keyed.at("a").values())) == (["x", (1, 2), None], [1, "y", 3])
    assert (keyed.at("a").contains((1, 2)), keyed.at("b").contains("x")) == (True, False)
    state = keyed.at("a")
    for key, _ in state.items():
        state.remove(key)
    state.remove("not there")
    assert state.is_empty()
    assert keyed.at("a").is_empty()
    keyed.at("a").put("x", 1)
    keyed.at("a").clear()
    assert keyed.group.is_empty()


@BOTH
def test_nan_is_one_key_of_a_map_alone_and_in_a_tuple(config: StateTtlConfig | None) -> None:
    """Each put of it was an entry of its own once the map had been read back, and none was ever found."""
    keyed = Keyed(MapStateDescriptor("m", ttl=config))
    for n in (1, 2):
        keyed.at("a").put(float("nan"), n)
        keyed.at("a").put((float("nan"), 1), n)
        keyed.at("a").put((Decimal("NaN"), "kept"), n)
    assert (keyed.at("a").get(float("nan")), keyed.at("a").get((float("nan"), 1))) == (2, 2)
    assert keyed.at("a").contains(float("nan"))
    assert any(type(key) is tuple and type(key[0]) is Decimal for key, _ in keyed.at("a").items())
    state = keyed.at("a")
    state.remove(float("nan"))
    state.remove((float("nan"), 1))
    assert not [key for key, _ in keyed.at("a").items() if type(key) is float or key[1] == 1]


@BOTH
def test_reduced_and_aggregated(config: StateTtlConfig | None) -> None:
    keyed = Keyed(ReducingStateDescriptor("r", plus, ttl=config), AggregatingStateDescriptor("g", Mean(), ttl=config))
    for number in (1, 2, 6):
        for state in keyed.at("a"):
            state.add(number)
    assert [state.get() for state in keyed.at("a")] == [9, 3.0]
    assert [state.get() for state in keyed.at("b")] == [None, None]
    for state in keyed.at("a"):
        state.clear()
    assert [state.get() for state in keyed.at("a")] == [None, None]


@BOTH
def test_entries_merge(config: StateTtlConfig | None) -> None:
    keyed = Keyed(
        ListStateDescriptor("l", ttl=config),
        ReducingStateDescriptor("r", plus, ttl=config),
        AggregatingStateDescriptor("g", Mean(), ttl=config),
    )
    for key, number in (("a", 1), ("b", 2), ("c", 6), ("d", 7)):
        for state in keyed.at(key):
            state.add(number)
    for state in keyed.at("new"):
        state.merge(["a", "b", "not there", "c"])
    assert [state.get() for state in keyed.at("new")] == [[1, 2, 6], 9, 3.0]
    for key in ("a", "b", "c"):
        assert [state.get() for state in keyed.at(key)] == [[], None, None]
    for state in keyed.at("new"):
        state.merge(["d"])
    assert [state.get() for state in keyed.at("new")] == [[1, 2, 6, 7], 16, 4.0]


def test_a_value_lives_until_its_time_is_over() -> None:
    keyed = Keyed(ValueStateDescriptor("v", "gone", ttl=ttl()))
    keyed.at("a", 1000).update(1)
    assert keyed.at("a", 1099).value() == 1
    assert keyed.at("a", 1100).value() == "gone"
    assert keyed.group.is_empty()


def test_a_read_begins_the_time_anew_if_asked_for() -> None:
    keyed = Keyed(ValueStateDescriptor("v", ttl=ttl(update="OnReadAndWrite")))
    keyed.at("a", 1000).update(1)
    for now in (1090, 1180, 1270):
        assert keyed.at("a", now).value() == 1
    assert keyed.at("a", 1370).value() is None


def test_what_is_over_may_be_seen_until_it_is_removed() -> None:
    shown = ttl(visibility="ReturnExpiredIfNotCleanedUp")
    store = StateStore()
    value, items, pairs = (
        store.get(ValueStateDescriptor("v", ttl=shown)),
        store.get(ListStateDescriptor("l", ttl=shown)),
        store.get(MapStateDescriptor("m", ttl=shown)),
    )
    group = KeyGroup(0, processing_time=1000)
    store.use(group)
    store.entry = "a"
    value.update(1)
    items.add(2)
    pairs.put("x", 3)
    pairs.put("y", 4)
    group.processing_time = 2000
    store.use(group)
    assert (value.value(), items.get(), pairs.get("x"), pairs.contains("y"), list(pairs.values())) == (
        1,
        [2],
        3,
        True,
        [],
    )
    assert (value.value(), items.get(), pairs.get("x")) == (None, [], None)


def test_elements_and_entries_have_each_their_own_time() -> None:
    keyed = Keyed(ListStateDescriptor("l", ttl=ttl()), MapStateDescriptor("m", ttl=ttl()))
    for now in (1000, 1060):
        items, pairs = keyed.at("a", now)
        items.add(now)
        pairs.put(now, now)
    items, pairs = keyed.at("a", 1100)
    assert (items.get(), list(pairs.items()), pairs.contains(1000)) == ([1060], [(1060, 1060)], False)


def test_a_sum_that_is_over_begins_anew() -> None:
    keyed = Keyed(ReducingStateDescriptor("r", plus, ttl=ttl()))
    keyed.at("a", 1000).add(1)
    keyed.at("a", 1050).add(2)
    assert keyed.at("a", 1149).get() == 3
    keyed.at("a", 1150).add(5)
    assert keyed.at("a", 1200).get() == 5
    keyed.at("b", 1200).merge(["a"])
    assert keyed.at("b", 1249).get() == 5
    keyed.at("c", 1260).merge(["b"])
    assert keyed.at("c", 1260).get() is None


def test_what_nobody_reads_is_removed_when_the_group_is_written() -> None:
    descriptors = (
        ValueStateDescriptor("v", ttl=ttl()),
        ListStateDescriptor("l", ttl=ttl()),
        MapStateDescriptor("m", ttl=ttl()),
    )
    keyed = Keyed(*descriptors)
    for key, now in (("old", 1000), ("new", 1090)):
        value, items, pairs = keyed.at(key, now)
        value.update(1)
        items.add(1)
        pairs.put(1, 1)
    keyed.at("other", 1150)
    said = keyed.runs.described()["state"]
    assert {name: [e["key"] for e in table["entries"]] for name, table in said.items()} == {
        "state:v": ["new"],
        "state:l": ["new"],
        "state:m": ["new"],
    }


def test_a_state_of_another_kind_is_refused() -> None:
    keyed = Keyed(ValueStateDescriptor("v"))
    keyed.at("a").update(1)
    for descriptor, what in (
        (ListStateDescriptor("v"), "is kept as value state and asked for as list state"),
        (ValueStateDescriptor("v", ttl=ttl()), "was written without a time to live"),
    ):
        store = StateStore("state:")
        store.get(descriptor)
        with pytest.raises(TerminalError, match=what):
            store.use(keyed.group)
    with pytest.raises(DefinitionError, match="asked for as value and as list state"):
        keyed.store.get(ListStateDescriptor("v"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: StateTtlConfig(ttl="0 s"), "a time to live of '0 s'"),
        (lambda: StateTtlConfig(ttl="1 s", update="Never"), "update='Never' is not known"),  # type: ignore[arg-type]
        (lambda: StateTtlConfig(ttl="1 s", visibility="All"), "visibility='All' is not known"),  # type: ignore[arg-type]
        (lambda: ValueStateDescriptor(" "), "' ' is no name of a state"),
        (lambda: ValueStateDescriptor("v", ttl="1 h"), "v: ttl='1 h'"),  # type: ignore[arg-type]
        (lambda: StateStore().get("v"), "'v' is no state descriptor"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()
