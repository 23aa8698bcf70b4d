"""Commits of one sink by several threads: order, bounds, failures of one, and one connection a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock.checkpoint.participant import Committed
from poundlock.connectors import commit_threads
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
    first_is_known = threading.Event()

    def call(item: int) -> int:
        begun.append(item)
        if item:
            assert first_is_known.wait(30)
        ended.append(item)
        return item

    outcomes = call_each(call, iter(range(1_000_000)), 4)
    assert next(outcomes) == 0
    assert len(begun) <= 5
    first_is_known.set()
    outcomes.close()
    assert sorted(begun) == sorted(ended) == list(range(len(begun)))
    assert len(begun) < 1_000_000
    assert not [thread for thread in threading.enumerate() if thread.name == "poundlock-commit"]


def test_what_an_item_raises_comes_behind_the_outcomes_before_it() -> None:
    class Killed(BaseException):
        pass

    def items() -> Iterator[int]:
        yield from range(10)
        raise Killed

    seen: list[object] = []
    with pytest.raises(Killed):
        seen.extend(call_each(lambda item: item, items(), 4))
    assert seen == list(range(10))


def test_a_call_that_raises_no_exception_ends_it() -> None:
    def call(item: int) -> int:
        if item == 3:
            raise SystemExit(item)
        return item

    outcomes = call_each(call, iter(range(10)), 4)
    assert [next(outcomes) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(SystemExit):
        next(outcomes)


def test_no_more_threads_than_the_system_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    class Few(threading.Thread):
        started = 0

        def start(self) -> None:
            if Few.started == 2:
                raise RuntimeError("can't start new thread")
            Few.started += 1
            super().start()

    fake = SimpleNamespace(Thread=Few, Condition=threading.Condition, Lock=threading.Lock)
    monkeypatch.setattr(commit_threads, "threading", fake)
    assert list(call_each(lambda item: item, iter(range(100)), 8)) == list(range(100))
    assert Few.started == 2


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
