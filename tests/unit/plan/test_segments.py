"""Segments: which steps Spark runs together, and what goes in and comes out."""

from __future__ import annotations

from typing import Any

import pytest

from poundlock.plan.segments import Segment, cut_segments
from poundlock.stream.nodes import ApplyNode, Node, PythonNode, SinkNode, SourceNode, SqlNode, UnionNode


def _source(name: str) -> Node:
    return SourceNode(name, [], object())


def _sql(name: str, parent: Node) -> Node:
    return SqlNode(name, [parent], "select", ["*"])


def _python(name: str, parent: Node) -> Node:
    return PythonNode(name, [parent], "map", dict, "a int", {})


def _apply(name: str, *parents: Node) -> Node:
    return ApplyNode(name, list(parents), lambda *frames: frames[0])


def _sink(name: str, parent: Node) -> Node:
    return SinkNode(name, [parent], object())


def _in_spark(node: Node) -> bool:
    assert not isinstance(node, UnionNode)
    return isinstance(node, (SqlNode, ApplyNode))


def _cut(*roots: Node) -> list[Any]:
    return [_shape(segment) for segment in cut_segments(roots, _in_spark)]


def _shape(segment: Segment) -> tuple[str, str, str]:
    return tuple(" ".join(node.id for node in nodes) for nodes in (segment.inputs, segment.nodes, segment.outputs))


def test_neighbours_are_one_segment() -> None:
    source = _source("s")
    assert _cut(_sink("out", _apply("f", _sql("b", _sql("a", source))))) == [("s", "a b f", "f")]


def test_a_job_without_sql_has_none() -> None:
    assert _cut(_sink("out", _python("m", _source("s")))) == []


def test_a_step_of_the_tasks_between_makes_two() -> None:
    assert _cut(_sink("out", _sql("b", _python("m", _sql("a", _source("s")))))) == [("s", "a", "a"), ("m", "b", "b")]


def test_rows_that_leave_and_come_back_do_not_make_a_circle() -> None:
    before = _sql("a", _source("s"))
    joined = _apply("join", before, _python("m", before))
    assert _cut(_sink("out", joined)) == [("s", "a", "a"), ("a m", "join", "join")]


def test_branches_that_read_the_same_rows_are_one_segment_with_several_outputs() -> None:
    source = _source("s")
    outs = [_sink(f"out{i}", _sql(f"b{i}", source)) for i in range(3)]
    segments = cut_segments(outs, _in_spark)
    assert [_shape(each) for each in segments] == [("s", "b0 b1 b2", "b0 b1 b2")]
    assert segments[0].id == "b0+b1+b2"


def test_a_step_that_is_read_inside_and_outside_is_an_output() -> None:
    first = _sql("a", _source("s"))
    assert _cut(_sink("o1", first), _sink("o2", _sql("b", first))) == [("s", "a b", "a b")]


def test_several_inputs() -> None:
    assert _cut(_sink("out", _apply("join", _source("s"), _sql("a", _source("t"))))) == [("t s", "a join", "join")]


def test_a_union_between_steps_of_spark_is_inside() -> None:
    union = UnionNode("u", [_sql("a", _source("s")), _source("t")])
    assert _cut(_sink("out", _sql("b", union))) == [("s t", "a u b", "b")]


@pytest.mark.parametrize("reader", [_python, _sink])
def test_a_union_whose_rows_go_on_in_tasks_is_outside(reader: Any) -> None:
    union = UnionNode("u", [_sql("a", _source("s")), _source("t")])
    last = reader("m", union)
    assert _cut(last if isinstance(last, SinkNode) else _sink("out", last)) == [("s", "a", "a")]


def test_a_union_of_tasks_before_spark_is_outside() -> None:
    union = UnionNode("u", [_source("s"), _source("t")])
    assert _cut(_sink("out", _sql("b", union))) == [("u", "b", "b")]


def test_unions_of_unions() -> None:
    inner = UnionNode("u", [_sql("a", _source("s")), _source("t")])
    outer = UnionNode("v", [inner, _source("w")])
    assert _cut(_sink("out", _sql("b", outer))) == [("s t w", "a u v b", "b")]


def test_the_same_input_at_two_depths_is_two_segments() -> None:
    source = _source("s")
    near = _sql("near", source)
    far = _apply("far", source, _python("m", near))
    assert _cut(_sink("o", near), _sink("p", far)) == [("s", "near", "near"), ("s m", "far", "far")]
