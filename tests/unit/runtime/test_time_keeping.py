"""Event time while nothing is read: who ticks, and when time is up."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock.operators.job_watermarks import HeldBack
from poundlock.runtime.time_keeping import TimeKeeper


class Time:
    """Event time that is told to move."""

    def __init__(self, **said: Any) -> None:
        self.active, self.clocked, self.over, self.at_end, self.pending = True, False, False, False, False
        self.watermark, self.held_by = 5, HeldBack("time", "t-1")
        self.ticks = self.told = 0
        self.__dict__.update(said)

    def tick(self) -> None:
        self.ticks += 1
        self.pending = True

    def tell(self) -> None:
        self.told += 1

    def end(self) -> None:
        self.at_end = self.pending = True


class Spark:
    """A started query: how many rows it keeps."""

    def __init__(self, *, rows: int | None = 1) -> None:
        told = None if rows is None else json.dumps({"stateOperators": [{"numRowsTotal": rows}]})
        self.lastProgress = lambda: None if told is None else SimpleNamespace(json=lambda: told)


def keeper(time: Time, spark: Spark) -> TimeKeeper:
    return TimeKeeper(
        time,  # type: ignore[arg-type]
        SimpleNamespace(stateless=False),  # type: ignore[arg-type]
        SimpleNamespace(event_time=lambda *told: None),  # type: ignore[arg-type]
        spark=lambda: spark,
    )


@pytest.mark.parametrize(("rows", "ticks"), [(0, 0), (3, 1), (None, 1)])
def test_the_clock_ticks_only_as_long_as_there_may_be_something_to_close(rows: int | None, ticks: int) -> None:
    time = Time(clocked=True)
    keeper(time, Spark(rows=rows)).tick()
    assert time.ticks == ticks


def test_time_is_up_when_the_last_watermark_was_used() -> None:
    time = Time()
    made = keeper(time, Spark())
    assert not made.is_up()
    assert (time.at_end, time.told) == (True, 1)
    time.end = lambda: None  # type: ignore[method-assign]
    time.pending = False
    assert made.is_up()


def test_time_is_up_at_once_where_nothing_was_read_and_where_it_has_no_end() -> None:
    over = Time(over=True)
    assert keeper(over, Spark()).is_up()
    assert not over.at_end
    processing = Time(end=lambda: None, pending=True)
    assert keeper(processing, Spark()).is_up()
