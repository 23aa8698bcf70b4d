"""What became of the rows on the way to each sink, where Spark runs a part of the way."""

from __future__ import annotations

from typing import Any

from poundlock.checkpoint.participant import Counts
from poundlock.operators.chain import StepCounts
from poundlock.plan.row_accounts import sink_counts
from poundlock.plan.segments import cut_segments
from poundlock.stream.nodes import ApplyNode, Node, PythonNode, SinkNode, SourceNode, SqlNode, UnionNode, walk


def _sql(name: str, parent: Node) -> Node:
    return SqlNode(name, [parent], "select", ["*"])


def _counts(roots: list[SinkNode], rows: dict[str, int]) -> dict[str, Counts]:
    """Return the counts of the sinks, given how many rows came out at each step that is a source, an output or a sink."""
    segments = cut_segments(roots, lambda node: isinstance(node, (SqlNode, ApplyNode)))
    totals = {name: StepCounts(rows_in=count, rows_out={"": count}) for name, count in rows.items()}
    found: Any = sink_counts(list(walk(roots)), segments, totals, keeps_dead_letters=True)
    assert all(counts.balanced() for counts in found.values()), found
    return dict(found)


def _source() -> Node:
    return SourceNode("s", [], object())


def test_rows_that_leave_a_segment_for_another_sink_are_no_part_of_the_account() -> None:
    moved = _sql("moved", _source())
    parts = ApplyNode("parts", [moved], lambda frame: frame)
    roots = [SinkNode("kept", [moved], object()), SinkNode("out", [parts], object())]
    found = _counts(roots, {"s": 300, "moved": 300, "kept": 300, "parts": 1, "out": 1})
    assert found["kept"] == Counts(read=300, written=300)
    assert found["out"] == Counts(read=300, produced=-299, written=1)


def test_what_sql_leaves_out_behind_such_a_step_was_filtered() -> None:
    moved = _sql("moved", _source())
    few = _sql("few", moved)
    roots = [SinkNode("kept", [moved], object()), SinkNode("out", [few], object())]
    found = _counts(roots, {"s": 300, "moved": 300, "kept": 300, "few": 10, "out": 10})
    assert found["out"] == Counts(read=300, filtered=290, written=10)


def test_rows_that_leave_at_two_places_for_one_sink_are_counted_at_both() -> None:
    moved = _sql("moved", _source())
    few = _sql("few", moved)
    back = PythonNode("back", [moved], "map", dict, "a int", {})
    roots = [SinkNode("out", [UnionNode("both", [back, few])], object())]
    found = _counts(roots, {"s": 300, "moved": 300, "back": 300, "few": 10, "both": 310, "out": 310})
    assert found["out"] == Counts(read=300, produced=10, written=310)
