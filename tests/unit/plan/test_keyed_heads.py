"""What a step by key refuses once the columns of its input are known."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest

from poundlock import DatagenSource, DataStream, DefinitionError, Job, TumblingProcessingTimeWindows
from poundlock.operators.keyed.output import MAIN
from poundlock.plan.keyed_heads import keyed_head
from poundlock.plan.normalize import normalize
from poundlock.stream.nodes import KeyedNode, SinkNode, WindowNode

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("price", pa.float64())])


def plan(make: Callable[[DataStream], DataStream]) -> pa.Schema:
    """Return the columns of a step's main output."""
    stream = make(Job("keyed").from_source(DatagenSource(), name="rows"))
    graph = normalize([SinkNode("out", [stream.node], None)], time_in_tasks=lambda node: True)
    (node,) = graph.roots[0].inputs
    assert isinstance(node, (KeyedNode, WindowNode))
    head = keyed_head(node, [SCHEMA], [False], graph, lambda schema, text: text, bounded=False)
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
