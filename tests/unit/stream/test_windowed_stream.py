"""Windows on a stream: what a chain of calls says, as the node it makes, and what is refused where it is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from poundlock import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountSlidingWindows,
    CountTrigger,
    CountTumblingWindows,
    DataStream,
    DefinitionError,
    DeltaTrigger,
    EventTimeSessionWindows,
    FileSource,
    GlobalWindows,
    Job,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    PurgingTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
)
from poundlock.stream.functions.process import AggregateWindow, ProcessWindow, ReduceWindow
from poundlock.stream.keyed import KeyedStream
from poundlock.stream.nodes import SideOutputNode, WindowNode
from poundlock.stream.windows.triggers import MergingTrigger, TriggerResult
from poundlock.stream.windows.windowed import WindowedStream

MINUTE = TumblingEventTimeWindows("1 min")


class Total(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value["n"])

    def get_result(self, accumulator: int) -> dict[str, int]:
        return {"n": accumulator}


class Mergeable(Total):
    def merge(self, a: int, b: int) -> int:
        return a + b


class First(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterable[Any]:
        return elements[:1]


def plus(a: Any, b: Any) -> Any:
    return {"n": a["n"] + b["n"]}


def stream(timed: bool = True) -> DataStream:
    rows = Job("a", on_error="skip").from_source(FileSource("/in", format="json", schema="ts long, n long"), name="in")
    if not timed:
        return rows
    return rows.assign_timestamps_and_watermarks(
        WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="timestamp_seconds(ts)")
    )


def keyed(timed: bool = True) -> KeyedStream:
    return stream(timed).key_by("user")


def minute() -> WindowedStream:
    return keyed().window(MINUTE)


def node(of: DataStream) -> WindowNode:
    assert isinstance(of.node, WindowNode)
    return of.node


def test_a_node_carries_all_that_was_said() -> None:
    trigger, evictor = ContinuousEventTimeTrigger("10 s"), CountEvictor(5)
    result = (
        minute()
        .trigger(trigger)
        .evictor(evictor)
        .allowed_lateness("1 min")
        .side_output_late_data("late")
        .process(First(), schema="n long", side_outputs={"odd": "n long"}, name="first")
    )
    made = node(result)
    assert (made.id, list(made.keys), made.assigner, made.column) == ("first", ["user"], MINUTE, "event_time")
    assert (made.trigger, made.evictor, made.allowed_lateness, made.late_tag) == (
        trigger,
        evictor,
        timedelta(minutes=1),
        "late",
    )
    assert isinstance(made.function, ProcessWindow)
    assert (made.schema, made.side_outputs, list(made.aggregates)) == ("n long", {"odd": "n long"}, [])
    assert made.describe() == (
        "tumbling windows of 1 min, fired every 10 s of event time, keeping the last 5, late by up to 1 min, late rows to late"
    )
    late, odd = result.side_output("late").node, result.side_output("odd").node
    assert isinstance(late, SideOutputNode)
    assert isinstance(odd, SideOutputNode)
    assert (late.tag, late.schema, odd.tag, odd.schema) == ("late", None, "odd", "n long")
    with pytest.raises(DefinitionError, match=r"first has no side output 'other'\n.*side_outputs="):
        result.side_output("other")
    with pytest.raises(DefinitionError, match=r"sums has no side output 'late'\n.*side_output_late_data\(.late.\)"):
        minute().aggregate("count(*) as n", name="sums").side_output("late")
    with pytest.raises(DefinitionError, match=r"Total is a class, .*\nNext: write Total\("):
        minute().aggregate(Total, schema="n long")  # type: ignore[arg-type]


def test_the_functions() -> None:
    reduced = node(minute().reduce(plus))
    assert isinstance(reduced.function, ReduceWindow)
    assert (reduced.function.process, reduced.schema) == (None, None)
    told = node(minute().reduce(plus, process=First(), schema="n long"))
    assert isinstance(told.function, ReduceWindow)
    assert isinstance(told.function.process, First)
    added = node(minute().aggregate(Total(), schema="n long"))
    assert isinstance(added.function, AggregateWindow)
    sql = node(minute().aggregate("count(*) as n", "max(ts) as ts"))
    assert (sql.function, list(sql.aggregates)) == (None, ["count(*) as n", "max(ts) as ts"])


def test_windows_that_are_not_of_event_time_need_no_watermark() -> None:
    for windowed in (
        keyed(timed=False).window(TumblingProcessingTimeWindows("1 min")),
        keyed(timed=False).count_window(3),
        stream(timed=False).window_all(GlobalWindows()),
    ):
        assert node(windowed.reduce(plus)).column is None
    assert node(keyed().count_window(3).reduce(plus)).column == "event_time"
    assert node(keyed().count_window(4, 2).reduce(plus)).assigner == CountSlidingWindows(4, 2)
    assert node(keyed().count_window(3).reduce(plus)).assigner == CountTumblingWindows(3)
    assert list(node(stream().window_all(MINUTE).reduce(plus)).keys) == []


def test_a_chain_changes_nothing_it_came_from() -> None:
    plain = minute()
    plain.trigger(CountTrigger(1)).allowed_lateness("1 s")
    made = node(plain.reduce(plus))
    assert (made.trigger, made.allowed_lateness) == (None, timedelta(0))


SESSIONS = EventTimeSessionWindows("1 min")


class WithoutMerge(MergingTrigger):
    """Says that it can merge, and has no method for it."""

    def on_element(self, value: Any, timestamp: int | None, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: minute().trigger("count"), "'count' is no trigger"),  # type: ignore[arg-type]
        (lambda: minute().evictor(3), "3 is no evictor"),  # type: ignore[arg-type]
        (
            lambda: keyed().window(SESSIONS).trigger(DeltaTrigger(1, plus)),
            "DeltaTrigger does not know what to do when session",
        ),
        (
            lambda: keyed().window(SESSIONS).trigger(PurgingTrigger(DeltaTrigger(1, plus))),
            "PurgingTrigger does not know",
        ),
        (lambda: keyed().window(SESSIONS).trigger(WithoutMerge()), "WithoutMerge does not know"),
        (lambda: keyed().window(SESSIONS).aggregate(Total(), schema="n long"), "Total has no merge"),
        (lambda: keyed().window(SESSIONS).aggregate(Mergeable()), "aggregate does not say which columns come out"),
        (lambda: keyed().count_window(3).allowed_lateness("1 s"), "allowed_lateness on windows of 3 elements"),
        (
            lambda: keyed().window(ProcessingTimeSessionWindows("1 s")).side_output_late_data("late"),
            "side_output_late_data on session windows with a gap of 1 s by the clock, in which nothing is late",
        ),
        (lambda: minute().side_output_late_data(" "), "' ' is no name of a side output"),
        (lambda: minute().allowed_lateness("-1 s"), "is not a duration"),
        (lambda: minute().allowed_lateness("9999999999 d"), "longer than 999999999 days"),
        (lambda: minute().aggregate(), "windows without an aggregate"),
        (lambda: minute().aggregate("count(*) as n", Total()), "windows without an aggregate"),
        (lambda: minute().aggregate("count(*) as n", process=First()), "SQL aggregates take no process function"),
        (lambda: minute().aggregate(Total(), schema="n what"), "what"),
        (lambda: minute().reduce(3), "reduce needs a function, got 3"),  # type: ignore[arg-type]
        (lambda: minute().reduce(plus, process=First()), "reduce with process does not say which columns come out"),
        (lambda: minute().reduce(plus, side_outputs={"x": "n long"}), "side outputs without a process function"),
        (lambda: minute().process(First, schema="n long"), "is no ProcessWindowFunction"),  # type: ignore[arg-type]
        (lambda: minute().process(First(), schema=""), "process does not say which columns come out"),
        (
            lambda: minute().side_output_late_data("x").process(First(), schema="n long", side_outputs={"x": "n long"}),
            "the side output 'x' is of late rows and of the function",
        ),
        (lambda: keyed().count_window(0), "count is 0"),
        (lambda: keyed().count_window(3, 0), "slide is 0"),
        (
            lambda: keyed(timed=False).window(MINUTE),
            "a window needs event time, and no watermark is assigned before it",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as error:
        make()
    assert str(error.value).count("\n") == 1
