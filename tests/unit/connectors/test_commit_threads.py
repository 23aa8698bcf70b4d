"""Commits of one sink by several threads: order, bounds, failures of one, and one connection a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from poundlock.checkpoint.participant import Committed
from poundlock.connectors.commit_threads import ConnectionPool, call_each, commit_each
from poundlock.errors import CommitUnknown

MANY = [{"n": n} for n in range(20)]


def test_outcomes_come_in_order_and_a_failure_of_one_is_its_own() -> None:
    def commit(committable: dict[str, Any]) -> Committed:
        if committable["n"] % 3 == 1:
            raise CommitUnknown(str(committable["n"]))
        return Committed(committable)

    outcomes = list(commit_each(commit, iter(MANY), 4))
    assert [o.detail["n"] for o in outcomes if isinstance(o, Committed)] == [n for n in range(20) if n % 3 != 1]
    assert [o.what for o in outcomes if isinstance(o, CommitUnknown)] == [str(n) for n in range(20) if n % 3 == 1]


def test_as_many_as_may_be_are_under_way_and_no_more_are_asked_for() -> None:
    together = threading.Barrier(4, timeout=30)  # passed by four at once only
    under_way: list[int] = []
    ended: list[int] = []

    def committables() -> Iterator[dict[str, Any]]:
        for each in MANY:
            under_way.append(each["n"])
            assert len(under_way) - len(ended) <= 5  # one may have ended, and not be counted yet
            yield each

    def commit(committable: dict[str, Any]) -> Committed:
        together.wait()
        ended.append(committable["n"])
        return Committed(committable)

    assert list(commit_each(commit, committables(), 4)) == [Committed(each) for each in MANY]


def test_a_slow_first_one_keeps_no_thread_from_the_others() -> None:
    others = threading.Semaphore(0)

    def commit(committable: dict[str, Any]) -> Committed:
        if committable["n"] == 0:
            for _ in MANY[1:]:
                assert others.acquire(timeout=30)
        else:
            others.release()
        return Committed(committable)

    assert list(commit_each(commit, iter(MANY), 2)) == [Committed(each) for each in MANY]


def test_who_stops_asking_waits_for_what_is_under_way_and_begins_no_more() -> None:
    begun: list[int] = []
    ended: list[int] = []

    def call(item: int) -> int:
        begun.append(item)
        ended.append(item)
        return item

    outcomes = call_each(call, iter(range(1000)), 4)
    assert next(outcomes) == 0
    outcomes.close()
    assert begun == ended
    assert len(begun) <= 5


@pytest.mark.parametrize("count", [0, 1])
def test_one_needs_no_thread(count: int) -> None:
    def commit(committable: dict[str, Any]) -> Committed:
        return Committed({"thread": threading.current_thread().name})

    here = threading.current_thread().name
    assert list(commit_each(commit, iter(MANY[:count]), 4)) == [Committed({"thread": here})] * count


def test_a_connection_is_lent_to_one_thread_at_a_time_and_made_only_when_it_is_needed() -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    first = object()
    pool = ConnectionPool(first, make, 3)
    with pool.lent() as one:
        assert one is first
    with pool.lent() as one, pool.lent() as two:
        assert {one, two} == {first, *made}
    in_use: set[int] = set()
    looked = threading.Lock()

    def commit(committable: dict[str, Any]) -> Committed:
        with pool.lent() as connection:
            with looked:
                assert id(connection) not in in_use
                in_use.add(id(connection))
            with looked:
                in_use.discard(id(connection))
        return Committed(committable)

    assert all(isinstance(outcome, Committed) for outcome in commit_each(commit, iter(MANY), 8))
    assert len(made) <= 2
    assert len(pool.idle) == 1 + len(made)
