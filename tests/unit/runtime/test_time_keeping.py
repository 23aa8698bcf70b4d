"""Event time while nothing is read: who ticks, when the query is started with a pulse, and when time is up."""

from __future__ import annotations

import json
from datetime import timedelta
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
    """A started query: whether it has run a batch, whether it runs one without data, and how many rows it keeps."""

    def __init__(self, *, run: bool = False, rows: int | None = 1, no_data: str = "true") -> None:
        execution = object() if run else None
        conf = SimpleNamespace(get=lambda name, default: no_data)
        told = None if rows is None else json.dumps({"stateOperators": [{"numRowsTotal": rows}]})
        self.streamingQuery = lambda: SimpleNamespace(lastExecution=lambda: execution)
        self.sparkSession = lambda: SimpleNamespace(conf=lambda: conf)
        self.lastProgress = lambda: None if told is None else SimpleNamespace(json=lambda: told)


def keeper(time: Time, spark: Spark, *, ticks: bool = False, windowed: bool = True, idle: bool = False) -> TimeKeeper:
    said: list[Any] = []
    made = TimeKeeper(
        time,  # type: ignore[arg-type]
        SimpleNamespace(stateless=False, windowed=windowed),  # type: ignore[arg-type]
        timedelta(0),
        SimpleNamespace(event_time=lambda *told: said.append(told)),  # type: ignore[arg-type]
        spark=lambda: spark,
        ticks=lambda: ticks,
        idle=lambda: idle,
    )
    made.said = said  # type: ignore[attr-defined]
    return made


def test_a_query_that_has_run_nothing_gets_a_pulse_until_the_watermark_is_used() -> None:
    time = Time()
    made = keeper(time, Spark())
    made.move_on()
    assert (time.ticks, time.told, made.pulsing) == (1, 1, True)
    assert made.said == [(5, HeldBack("time", "t-1"))]  # type: ignore[attr-defined]
    made.move_on()
    assert made.pulsing, "the batch is still to come"
    time.pending = False
    made.move_on()
    assert not made.pulsing


@pytest.mark.parametrize(
    ("spark", "more", "pulse"),
    [
        (Spark(run=True), {}, False),  # Spark runs a batch without data by itself
        (Spark(run=True, no_data="false"), {}, True),  # it was told not to
        (Spark(), {"windowed": False}, False),  # there may be nothing that a batch would do
    ],
)
def test_a_pulse_is_given_only_where_nothing_else_makes_a_batch(spark: Spark, more: Any, pulse: bool) -> None:
    made = keeper(Time(), spark, **more)
    made.move_on()
    assert made.pulsing is pulse


def test_nothing_moves_before_spark_had_a_chance_to_find_data_or_where_it_has_batches_anyway() -> None:
    time = Time()
    made = keeper(time, Spark())
    made.look()
    made.move_on()
    ticking = keeper(time, Spark(), ticks=True)
    ticking.move_on()
    assert (time.ticks, made.pulsing, ticking.pulsing) == (0, False, False)


@pytest.mark.parametrize(("rows", "ticks"), [(0, 0), (3, 1), (None, 1)])
def test_the_clock_ticks_only_as_long_as_there_may_be_something_to_close(rows: int | None, ticks: int) -> None:
    time = Time(clocked=True)
    keeper(time, Spark(run=True, rows=rows)).tick()
    assert time.ticks == ticks


def test_time_is_up_when_the_last_watermark_was_used() -> None:
    time = Time()
    made = keeper(time, Spark(run=True))
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


def test_a_function_without_state_is_waited_for_only_until_spark_is_idle() -> None:
    assert keeper(Time(), Spark(run=True), windowed=False, idle=True).is_up()
    assert not keeper(Time(), Spark(run=True), windowed=False).is_up()
