"""When a checkpoint may begin: the interval, the pause, and who asked for one."""

from __future__ import annotations

from datetime import timedelta

from poundlock.driver.requests import CheckpointScheduler, Requests

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
