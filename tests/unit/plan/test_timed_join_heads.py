"""Joins of SQL by event time as steps: what they give, what an exchange brings to them, what is refused and when."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DatagenSource, DefinitionError, FileSource, Job
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.plan.heads.keyed import exchange_inputs, keyed_head
from poundlock.plan.known_columns import check_columns
from poundlock.plan.normalize import normalize
from poundlock.stream.nodes import KeyedNode, Node, SinkNode, walk
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode
from poundlock.tasks.keyed_stage import KeyedHead

AT = pa.timestamp("us", "UTC")
LEFT = pa.schema([("a", pa.string()), ("w", AT), ("ts", AT)])
RIGHT = pa.schema([("b", pa.string()), ("v", AT), ("pts", AT)])


def nodes() -> list[Node]:
    job = Job("joins")
    return [job.from_source(DatagenSource(), name=name).node for name in ("a", "b")]


def interval(kind: Any, **options: Any) -> SqlIntervalJoinNode:
    times, bounds = ["ts", "pts"], {"lower_ms": -1_000, "upper_ms": 60_000}
    return SqlIntervalJoinNode("join", nodes(), [["a"], ["b"]], times, None, {}, kind=kind, **bounds, **options)


def windows(kind: Any, **options: Any) -> SqlWindowJoinNode:
    return SqlWindowJoinNode("join", nodes(), [["a", "w"], ["b", "v"]], ["ts", "pts"], None, {}, kind=kind, **options)


def head(node: KeyedNode, *schemas: pa.Schema) -> KeyedHead:
    graph = normalize([SinkNode("out", [node], None)], time_in_tasks=lambda each: True)
    (own,) = graph.roots[0].inputs
    assert isinstance(own, KeyedNode)
    made = keyed_head(own, list(schemas), [False, False], graph, lambda schema, text: text, bounded=False)
    for side, (to, columns) in enumerate(exchange_inputs(own, made, max_parallelism=8)):
        assert to.how == "keyed"
        assert sorted(columns) == sorted(schemas[side].names)
    loaded: KeyedHead = pickle.loads(pickle.dumps(made))
    return loaded


def test_the_time_of_a_window_does_not_come_out_and_that_of_a_row_does() -> None:
    for node, wanted in (
        (interval("full"), [*LEFT, *RIGHT]),
        (windows("left"), [*list(LEFT)[:2], *list(RIGHT)[:2]]),
        (windows("semi"), list(LEFT)[:2]),
        (windows("anti"), list(LEFT)[:2]),
    ):
        assert head(node, LEFT, RIGHT).outputs[MAIN].schema == pa.schema(wanted)


def test_what_is_refused_once_the_columns_are_known() -> None:
    with pytest.raises(DefinitionError, match="join: its input is a changelog"):
        head(interval("left"), LEFT, RIGHT.append(pa.field(ROW_KIND, pa.string())))
    with pytest.raises(DefinitionError, match="join: two columns of the result are called w"):
        head(interval("left"), LEFT, RIGHT.append(pa.field("w", pa.string())))
    with pytest.raises(DefinitionError, match="join: the column 'ts' with the event time is gone"):
        head(interval("left"), pa.schema(list(LEFT)[:2]), RIGHT)


def test_columns_are_known_before_anything_starts() -> None:
    job = Job("joins")
    inputs = [
        job.from_source(FileSource("x", format="json", schema=schema), name=name).node
        for name, schema in (("a", "a string, ts timestamp"), ("b", "b string, pts timestamp"))
    ]
    keys, times = [["a"], ["b"]], ["ts", "pts"]
    joined: list[KeyedNode] = [
        SqlIntervalJoinNode("join", inputs, keys, times, None, {}, kind="left", lower_ms=0, upper_ms=1),
        SqlWindowJoinNode("join", inputs, keys, times, None, {}, kind="left"),
    ]
    for node, has_time in zip(joined, (True, False), strict=True):
        for column, known in (("a", True), ("b", True), ("ts", has_time), ("c", False)):
            behind = SqlWindowJoinNode("behind", [node, node], [[column], ["a"]], times, None, {}, kind="inner")
            if known:
                check_columns(list(walk([behind])))
                continue
            with pytest.raises(DefinitionError, match=f"behind: there is no column '{column}'"):
                check_columns(list(walk([behind])))


def test_steps_are_described() -> None:
    assert interval("left").describe() == "left interval join from -1 s to 1 min"
    assert windows("semi", condition=len).describe() == "semi join in windows with a condition"
