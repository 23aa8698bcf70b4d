"""Graphs with columns where the user wrote expressions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from poundlock import Job, WatermarkStrategy
from poundlock.plan.normalize import Normalized, normalize
from poundlock.stream.nodes import IntervalJoinNode, Node, SinkNode, SourceNode, SqlNode, WatermarkNode, walk
from poundlock.stream.stream import DataStream
from poundlock.stream.windows.builtin_assigners import TumblingEventTimeWindows


def _job() -> Job:
    return Job("j")


def _stream(job: Job, name: str = "s") -> DataStream:
    return DataStream(job, SourceNode(name, [], object()))


def _timed(stream: DataStream, timestamp: Any = "ts") -> DataStream:
    return stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp=timestamp)
    )


def _sink(stream: DataStream, sink: Any = None, name: str = "out") -> SinkNode:
    return SinkNode(name, [stream.node], sink or object())


def _normalize(*sinks: SinkNode, time_in_tasks: bool = True) -> Normalized:
    return normalize(sinks, time_in_tasks=lambda node: time_in_tasks)


def _put_in(found: Normalized) -> dict[str, list[str]]:
    """Return the steps of row-wise SQL, by id."""
    return {node.id: [node.kind, *node.arguments] for node in walk(found.roots) if isinstance(node, SqlNode)}


def _node(found: Normalized, kind: type[Node]) -> Any:
    return next(node for node in walk(found.roots) if isinstance(node, kind))


def test_plain_columns_need_nothing() -> None:
    stream = _timed(_stream(_job())).key_by("user", "`a b` AS c").window(TumblingEventTimeWindows("1 min"))
    found = _normalize(_sink(stream.aggregate("count(*) as n", "sum(x)", name="w")))
    assert _put_in(found) == {}
    (given,) = found.inputs["w"]
    assert [(key.column, key.name) for key in given.keys] == [("user", "user"), ("a b", "c")]
    assert given.hidden == []
    window = found.aggregates["w"]
    assert (window.arguments, [each.name for each in window.results]) == (["x"], ["n", "sum(x)"])
    schema = pa.schema([("X", pa.float32())])
    assert window.result_types(schema, "w") == [pa.int64(), pa.float64()]


def test_expressions_become_columns_before_the_operator() -> None:
    stream = _timed(_stream(_job())).key_by("upper(user)", "user").window(TumblingEventTimeWindows("1 min"))
    found = _normalize(
        _sink(stream.aggregate("sum(n * 2) as total", "max(n * 2)", "min(n)", "first(upper(user))", name="w"))
    )
    assert _put_in(found) == {
        "w.key0": ["with_column", "__key0", "upper(user)"],
        "w.argument0": ["with_column", "__argument0", "n * 2"],
    }
    (given,) = found.inputs["w"]
    assert [(key.column, key.name, key.text) for key in given.keys] == [
        ("__key0", None, "upper(user)"),
        ("user", "user", "user"),
    ]
    assert given.hidden == ["__key0", "__argument0"]
    assert found.aggregates["w"].arguments == ["__argument0", "n", "__key0"]
    assert [each.column for each in found.aggregates["w"].aggregates] == [0, 0, 1, 2]


def test_a_field_of_a_struct_becomes_a_column_and_keeps_its_name() -> None:
    stream = _timed(_stream(_job())).key_by("a.b").window(TumblingEventTimeWindows("1 min"))
    found = _normalize(_sink(stream.aggregate("count(*)", name="w")))
    assert _put_in(found) == {"w.key0": ["with_column", "__key0", "a.b"]}
    assert [(key.column, key.name) for key in found.inputs["w"][0].keys] == [("__key0", "b")]


def test_the_late_rows_of_a_window_come_from_the_window_itself() -> None:
    windows = (
        _timed(_stream(_job()))
        .key_by("upper(user)")
        .window(TumblingEventTimeWindows("1 min"))
        .side_output_late_data("late")
    )
    results = windows.aggregate("count(*) as n", name="w")
    found = _normalize(_sink(results), _sink(results.side_output("late"), name="late-out"))
    assert _put_in(found) == {"w.key0": ["with_column", "__key0", "upper(user)"]}
    assert found.roots[1].inputs[0].inputs[0] is found.roots[0].inputs[0]


def test_the_event_time_of_a_watermark() -> None:
    job = _job()
    plain = _timed(_stream(job))
    assert _put_in(_normalize(_sink(plain), time_in_tasks=False)) == {}
    expression = _timed(_stream(job), "timestamp_seconds(ts + 1)")
    assert _put_in(_normalize(_sink(expression), time_in_tasks=True)) == {}
    found = _normalize(_sink(expression), time_in_tasks=False)
    mark = _node(found, WatermarkNode)
    assert _put_in(found) == {f"{mark.id}.time": ["with_column", "event_time", "timestamp_seconds(ts + 1)"]}
    assert mark.strategy.timestamp == "event_time"
    assert _put_in(_normalize(_sink(_timed(_stream(job), lambda record: 1)), time_in_tasks=False)) == {}


def test_columns_that_a_sink_wants_computed() -> None:
    sink = SimpleNamespace(computed_columns={"__bucket": "date_format(t, 'yyyy')", "__topic": "kind"})
    found = _normalize(_sink(_stream(_job()), sink))
    assert _put_in(found) == {
        "out.bucket": ["with_column", "__bucket", "date_format(t, 'yyyy')"],
        "out.topic": ["with_column", "__topic", "kind"],
    }
    assert found.roots[0].sink is sink


def _joined(job: Job, *select: str) -> DataStream:
    left, right = _timed(_stream(job, "l")), _timed(_stream(job, "r"))
    joined = left.key_by("id").interval_join(right.key_by("lower(name)")).between("-1 s", "1 s")
    return joined.side_output_left_late_data("late").select(*select, name="j")


def test_an_interval_join_of_plain_columns() -> None:
    found = _normalize(_sink(_joined(_job(), "left.id", "RIGHT.price AS p")))
    assert [(pair.side, pair.column, pair.name) for pair in found.pairs["j"]] == [(0, "id", "id"), (1, "price", "p")]
    assert _put_in(found) == {"j.right.key0": ["with_column", "__key0", "lower(name)"]}
    assert [[key.column for key in each.keys] for each in found.inputs["j"]] == [["id"], ["__key0"]]
    assert [each.hidden for each in found.inputs["j"]] == [[], ["__key0"]]


def test_an_interval_join_of_expressions_has_a_step_behind_it() -> None:
    job = _job()
    stream = _joined(job, "left.id", "right.price * 2 AS twice")
    found = _normalize(_sink(stream), _sink(stream.side_output("late"), name="late"))
    assert found.pairs == {}
    assert _put_in(found)["j.select"] == ["select", "left.id", "right.price * 2 AS twice"]
    join = _node(found, IntervalJoinNode)
    assert found.roots[0].inputs[0].inputs == [join]
    assert found.roots[1].inputs[0].inputs == [join]


def test_a_window_join_is_selected_from_as_an_interval_join_is() -> None:
    job = _job()
    joined = _timed(_stream(job, "l")).join(_timed(_stream(job, "r"))).where("id").equal_to("id")
    windows = joined.window(TumblingEventTimeWindows("1 s"))
    plain = _normalize(_sink(windows.select("left.id", "right.price AS p", name="w")))
    assert [(pair.side, pair.column, pair.name) for pair in plain.pairs["w"]] == [(0, "id", "id"), (1, "price", "p")]
    found = _normalize(_sink(windows.select("left.id", "right.price * 2 AS twice", name="x")))
    assert found.pairs == {}
    assert _put_in(found)["x.select"] == ["select", "left.id", "right.price * 2 AS twice"]


def test_the_user_s_graph_is_not_changed_and_shared_steps_stay_shared() -> None:
    stream = _stream(_job()).select("*", name="shared")
    before = list(walk([stream.node]))
    found = _normalize(_sink(stream), _sink(stream.key_by("upper(a)").sum("n"), name="sums"))
    assert list(walk([stream.node])) == before
    shared = [node for node in walk(found.roots) if node.id == "shared"]
    assert shared == [stream.node]
