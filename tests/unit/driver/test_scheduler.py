"""When a checkpoint may begin: the interval, the pause, and who asked for one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from poundlock.driver.requests import CheckpointScheduler, Requests
from poundlock.errors import PoundlockError

MINUTE = timedelta(minutes=1)


class Clock:
    """A monotonic clock that moves when it is told to, seconds."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_the_interval_counts_from_the_beginning_and_the_pause_from_the_end() -> None:
    clock = Clock()
    scheduler = CheckpointScheduler(MINUTE, timedelta(seconds=20), Requests(), clock)
    assert scheduler.due
    clock.at = 110.0
    scheduler.completed(100.0, (), 0)
    assert not scheduler.due
    assert scheduler.wait_s == 50.0
    clock.at = 160.0
    assert scheduler.due
    clock.at = 230.0  # it took longer than the interval: the pause is kept all the same
    scheduler.completed(160.0, (), 1)
    assert scheduler.wait_s == 20.0


def test_a_checkpoint_serves_those_who_asked_before_it_began() -> None:
    requests, clock = Requests(), Clock()
    scheduler = CheckpointScheduler(MINUTE, timedelta(0), requests, clock)
    scheduler.completed(100.0, (), 3)
    assert not scheduler.due
    early = requests.trigger("checkpoint")
    assert requests.take() is early
    scheduler.request(early)
    assert scheduler.due
    assert scheduler.wait_s == 0
    served = scheduler.take()
    late = requests.trigger("checkpoint")
    assert requests.take() is late
    scheduler.request(late)
    scheduler.completed(100.0, served, 4)
    assert (early.location, late.status, scheduler.requested) == (4, "IN_PROGRESS", True)
    scheduler.release()
    assert requests.take() is late, "the next attempt serves it"
    assert not scheduler.requested


def test_who_asks_is_answered_where_there_is_nothing_to_do() -> None:
    requests = Requests()
    scheduler = CheckpointScheduler(MINUTE, timedelta(0), requests, Clock())
    asked = [requests.trigger("checkpoint") for _ in range(2)]
    scheduler.request(asked[0])
    scheduler.nothing_to_do(scheduler.take(), 7)
    assert asked[0].location == 7
    assert not scheduler.due
    scheduler.request(asked[1])
    scheduler.nothing_to_do(scheduler.take(), -1)
    assert asked[1].failure is not None
    with pytest.raises(PoundlockError, match="read nothing"):
        raise asked[1].failure
