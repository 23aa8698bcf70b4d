"""Timers against a sorted list, and the cases that only firing callbacks meet."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.keyed.group import Timers

times = st.integers(0, 6)
entries = st.sampled_from(["a", "b", ("a", (0, 5)), None])
actions = st.one_of(
    st.tuples(st.just("register"), times, entries),
    st.tuples(st.just("delete"), times, entries),
    st.tuples(st.just("fire"), times, st.none()),
)


@given(st.lists(actions, max_size=40))
def test_timers_are_a_sorted_list_without_repetition(script: list[tuple[str, int, Any]]) -> None:
    timers, model = Timers(), []
    for action, time, entry in script:
        if action == "register":
            timers.register(time, entry)
            model += [(time, entry)] if (time, entry) not in model else []
        elif action == "delete":
            timers.delete(time, entry)
            model = [one for one in model if one != (time, entry)]
        else:
            due = sorted((one for one in model if one[0] <= time), key=lambda one: one[0])
            assert list(timers.due(time)) == due
            model = [one for one in model if one[0] > time]
        assert len(timers) == len(model)
        assert bool(timers) == bool(model)
        assert timers.next_time() == min((t for t, _ in model), default=None)
        assert list(timers.listed()) == sorted(model, key=lambda one: one[0])


def fired(timers: Timers, limit: int, then: dict[Any, Any]) -> list[tuple[int, Any]]:
    """Fire timers; `then` says what a timer does when it fires."""
    found = []
    for time, entry in timers.due(limit):
        found.append((time, entry))
        if entry in then:
            then.pop(entry)(timers)
    return found


def make(*pairs: tuple[int, Any]) -> Timers:
    timers = Timers()
    for time, entry in pairs:
        timers.register(time, entry)
    return timers


def test_a_timer_registered_while_others_fire_fires_in_its_turn() -> None:
    timers = make((1, "a"), (1, "b"), (5, "c"), (9, "d"))
    then = {"a": lambda t: (t.register(3, "x"), t.register(0, "y"), t.register(8, "z"))}
    assert fired(timers, 5, then) == [(1, "a"), (1, "b"), (0, "y"), (3, "x"), (5, "c")]
    assert list(timers.listed()) == [(8, "z"), (9, "d")]


def test_a_timer_deleted_while_others_of_its_time_fire_does_not() -> None:
    assert fired(make((1, "a"), (1, "b"), (1, "c")), 1, {"a": lambda t: t.delete(1, "b")}) == [(1, "a"), (1, "c")]


def test_a_timer_registered_again_before_its_turn_fires_once_and_after_it_again() -> None:
    pairs = (1, "a"), (1, "b")
    assert fired(make(*pairs), 1, {"a": lambda t: t.register(1, "b")}) == [(1, "a"), (1, "b")]
    assert fired(make(*pairs), 1, {"b": lambda t: t.register(1, "a")}) == [(1, "a"), (1, "b"), (1, "a")]


def test_a_timer_of_nan_is_one_timer_and_can_be_deleted() -> None:
    timers = Timers()
    timers.register(5, math.nan)
    timers.register(5, math.nan)
    assert len(timers) == 1
    timers.delete(5, math.nan)
    assert not timers
