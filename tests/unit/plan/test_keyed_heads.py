"""What a step by key refuses once the columns of its input are known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from poundlock import (
    CountTrigger,
    DatagenSource,
    DataStream,
    DefinitionError,
    Job,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
)
from poundlock.operators.columns.rows.counts import ColumnCountOperator
from poundlock.operators.columns.rows.sliding_counts import ColumnSlidingCountOperator
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.windows.general import WindowOperator
from poundlock.plan.heads.keyed import keyed_head
from poundlock.plan.normalize import normalize
from poundlock.stream.nodes import KeyedNode, SinkNode, WindowJoinNode, WindowNode
from support.own_aggregate import OWN_RESULT, Own

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("price", pa.float64())])


def plan(make: Callable[[DataStream], DataStream], columns: pa.Schema = SCHEMA) -> pa.Schema:
    """Return the columns of a step's main output."""
    stream = make(Job("keyed").from_source(DatagenSource(), name="rows"))
    graph = normalize([SinkNode("out", [stream.node], None)], time_in_tasks=lambda node: True)
    (node,) = graph.roots[0].inputs
    assert isinstance(node, (KeyedNode, WindowNode))
    head = keyed_head(node, [columns], [False], graph, lambda schema, text: text, bounded=False)
    return head.outputs[MAIN].schema


@pytest.mark.parametrize("kind", ["sum", "min", "max", "min_by", "max_by"])
def test_a_rolling_aggregate_of_no_column_is_refused(kind: str) -> None:
    with pytest.raises(
        DefinitionError,
        match="rolled: there is no column 'pirce'; there are n, text, price\nNext: did you mean 'price'\\?",
    ):
        plan(lambda rows: getattr(rows.key_by("text"), kind)("pirce", name="rolled"))
    assert plan(lambda rows: getattr(rows.key_by("text"), kind)("PRICE", name="rolled")) == SCHEMA


def test_a_rolling_sum_of_text_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match="rolled: there is no sum of values of type string\nNext: make them numbers"
    ):
        plan(lambda rows: rows.key_by("n").sum("text", name="rolled"))
    assert plan(lambda rows: rows.key_by("n").max("text", name="rolled")) == SCHEMA


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (lambda rows: rows.key_by("n").max("m", name="step"), "step: values of type {} have no order, and m has such"),
        (lambda rows: rows.key_by("n").min_by("m", name="step"), "step: values of type {} have no order, and m has such"),
        (lambda rows: rows.key_by("n").top_n(2, ["n", "M"], name="step"), "step: values of type {} have no order, and m has"),
        (lambda rows: rows.key_by("n").count_window(2).aggregate("max(m)", name="step"), "step: there is no max of values of type {}"),
        (lambda rows: rows.key_by("n").count_window(2).aggregate("min_by(n, m)", name="step"), "step: there is no min_by of values of type {}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nested", [lambda kind: kind, pa.list_, lambda kind: pa.struct([("in", pa.list_(kind))])])
def test_an_order_of_maps_is_refused(make: Any, step: str, nested: Any) -> None:
    kind = nested(pa.map_(pa.string(), pa.int64()))
    with pytest.raises(DefinitionError, match=re.escape(step.format(kind))):
        plan(make, pa.schema([("n", pa.int64()), ("m", kind)]))
    plan(make, pa.schema([("n", pa.int64()), ("m", nested(pa.string()))]))
    counted = plan(
        lambda rows: rows.key_by("n").count_window(2).aggregate("count(distinct m) as d"),
        pa.schema([("n", pa.int64()), ("m", kind)]),
    )
    assert counted.field("d").type == pa.int64()


@pytest.mark.parametrize("text", ["count(*) as n", "max(price) as window_end"])
def test_an_aggregate_with_the_name_of_another_column_is_refused(text: str) -> None:
    name = text.split()[-1]
    for windows in (
        lambda rows: rows.key_by("n").count_window(3),
        lambda rows: rows.key_by("n").window(TumblingProcessingTimeWindows("1 s")),
    ):
        with pytest.raises(
            DefinitionError,
            match=re.escape(f"w: two columns of the result are called {name}\nNext: give the aggregate"),
        ):
            plan(lambda rows, windows=windows: windows(rows).aggregate(text, name="w"))


def test_windows_of_the_clock_go_by_it_on_a_stream_with_event_time_too() -> None:
    by_time = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at")
    rows = Job("clock").from_source(DatagenSource(), name="rows").assign_timestamps_and_watermarks(by_time)
    schema = pa.schema([*SCHEMA, ("event_time", pa.timestamp("us", "UTC"))])
    for assigner, column in (
        (TumblingProcessingTimeWindows("1 min"), None),
        (TumblingEventTimeWindows("1 min"), "event_time"),
    ):
        stream = rows.key_by("text").window(assigner).aggregate("count(*) as c")
        graph = normalize([SinkNode("out", [stream.node], None)], time_in_tasks=lambda node: True)
        (node,) = graph.roots[0].inputs
        assert isinstance(node, WindowNode)
        head = keyed_head(node, [schema], [False], graph, lambda schema, text: text, bounded=False)
        assert head.windows is not None
        assert head.windows.partial.time == column


@pytest.mark.parametrize(
    ("write", "operator"),
    [
        (lambda rows: rows.count_window(4).aggregate("count(*) as c"), ColumnCountOperator),
        (lambda rows: rows.count_window(4, 2).aggregate("count(*) as c"), ColumnSlidingCountOperator),
        (lambda rows: rows.count_window(4).aggregate(Own(), schema=OWN_RESULT), ColumnSlidingCountOperator),
        (lambda rows: rows.count_window(4, 2).aggregate(Own(), schema=OWN_RESULT), ColumnSlidingCountOperator),
        (lambda rows: rows.count_window(4, 2).trigger(CountTrigger(3)).aggregate("count(*) as c"), WindowOperator),
    ],
)
def test_windows_of_a_number_of_rows_have_the_operator_that_explain_says(write: Any, operator: type[Any]) -> None:
    stream = write(Job("counted").from_source(DatagenSource(), name="rows").key_by("text"))
    graph = normalize([SinkNode("out", [stream.node], None)], time_in_tasks=lambda node: True)
    (node,) = graph.roots[0].inputs
    assert isinstance(node, WindowNode)
    head = keyed_head(node, [SCHEMA], [False], graph, lambda schema, text: text, bounded=False)
    assert type(head.make()) is operator
    assert head.windows is None, "its rows come as they are"


def test_windows_of_event_time_over_two_streams_need_its_column() -> None:
    by_time = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at")
    job = Job("joined")
    left, right = (
        job.from_source(DatagenSource(), name=name).assign_timestamps_and_watermarks(by_time) for name in "ab"
    )
    joined = left.join(right).where("text").equal_to("text").window(TumblingEventTimeWindows("1 min"))
    graph = normalize(
        [SinkNode("out", [joined.select("left.n", name="joined").node], None)], time_in_tasks=lambda node: True
    )
    (node,) = graph.roots[0].inputs
    assert isinstance(node, WindowJoinNode)
    with pytest.raises(DefinitionError, match="joined: the column 'event_time' with the event time is gone before it"):
        keyed_head(node, [SCHEMA, SCHEMA], [False, False], graph, lambda schema, text: text, bounded=False)
