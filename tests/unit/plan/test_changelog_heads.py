"""Aggregates of groups and regular joins as steps: what they give, what an exchange brings to them, what is refused and when."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DatagenSource, DataStream, DefinitionError, FileSource, Job
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.plan.heads.keyed import exchange_inputs, keyed_head
from poundlock.plan.known_columns import check_columns
from poundlock.plan.normalize import normalize
from poundlock.stream.changelog_nodes import (
    AggregateCall,
    ChangelogTopNNode,
    GroupAggregateNode,
    JoinKind,
    RegularJoinNode,
)
from poundlock.stream.nodes import KeyedNode, SinkNode, SortColumn, TopNNode, walk
from poundlock.tasks.keyed_stage import KeyedHead

LEFT = pa.schema([("k", pa.string()), ("n", pa.int64()), ("f", pa.bool_())])
RIGHT = pa.schema([("key", pa.string()), ("m", pa.int64())])
KIND = pa.field(ROW_KIND, pa.string())
COUNT = AggregateCall(function="count", name="c", type=pa.int64())


def rows() -> DataStream:
    return Job("changes").from_source(DatagenSource(), name="rows")


def aggregate(keys: list[str], *calls: AggregateCall) -> DataStream:
    stream = rows()
    return stream.then(GroupAggregateNode("groups", [stream.node], [keys], [None], None, {}, calls))


def joined(kind: JoinKind, keys: list[list[str]], **options: Any) -> DataStream:
    job = Job("changes")
    nodes = [job.from_source(DatagenSource(), name=name).node for name in ("a", "b")]
    return DataStream(job, RegularJoinNode("joined", nodes, keys, [None, None], None, {}, kind=kind, **options))


def top(keys: list[str], order: list[SortColumn], **options: Any) -> DataStream:
    stream = rows()
    node = ChangelogTopNNode("top", [stream.node], [keys], [None], None, {}, last=3, order_by=order, **options)
    return stream.then(node)


def head(stream: DataStream, *schemas: pa.Schema) -> tuple[KeyedNode, KeyedHead]:
    graph = normalize([SinkNode("out", [stream.node], None)], time_in_tasks=lambda node: True)
    (node,) = graph.roots[0].inputs
    assert isinstance(node, KeyedNode)
    timed = [False] * len(schemas)
    made = keyed_head(node, list(schemas), timed, graph, lambda schema, text: text, bounded=False)
    return node, pickle.loads(pickle.dumps(made))


def test_keys_stand_before_results_and_the_kind_of_change_behind_them() -> None:
    total = AggregateCall(function="sum", name="total", type=pa.int64(), column="N", filter="F")
    node, made = head(aggregate(["K"], total, COUNT), LEFT.append(KIND))
    assert made.outputs[MAIN].schema == pa.schema(
        [("K", pa.string()), ("total", pa.int64()), ("c", pa.int64()), (ROW_KIND, pa.string())]
    )
    ((to, columns),) = exchange_inputs(node, made, max_parallelism=8)
    assert (to.how, to.keys, columns) == ("keyed", ("k",), ["k", "n", "f", ROW_KIND])


def test_without_a_key_all_rows_come_to_one_task_with_a_column_at_least() -> None:
    node, made = head(aggregate([], COUNT), LEFT)
    ((to, columns),) = exchange_inputs(node, made, max_parallelism=8)
    assert (to.how, to.keys, columns) == ("keyed", (), ["k"])
    node, made = head(joined("inner", [[], []]), LEFT, RIGHT)
    assert [to.how for to, _ in exchange_inputs(node, made, max_parallelism=8)] == ["keyed", "keyed"]


def test_top_n_has_the_columns_of_its_input_the_place_and_the_kind_of_change() -> None:
    for schema in (LEFT, LEFT.append(KIND)):
        node, made = head(top(["K"], [SortColumn("N")], rank="place"), schema)
        assert made.outputs[MAIN].schema == pa.schema([*LEFT, ("place", pa.int64()), KIND])
        ((to, columns),) = exchange_inputs(node, made, max_parallelism=8)
        assert (to.how, to.keys, columns) == ("keyed", ("k",), schema.names)


def test_of_rows_without_a_key_one_task_has_the_first_ones() -> None:
    stream = rows()
    of_rows = TopNNode("first", [stream.node], [[]], [None], None, {}, n=3, order_by=[])
    for each, schema in ((top([], []), LEFT.append(KIND)), (stream.then(of_rows), LEFT)):
        node, made = head(each, schema)
        ((to, _),) = exchange_inputs(node, made, max_parallelism=8)
        assert (to.how, to.keys) == ("keyed", ())


def test_a_join_has_the_columns_of_both_sides_or_of_left_alone() -> None:
    for kind, schemas, wanted in (
        ("inner", (LEFT, RIGHT), [*LEFT, *RIGHT]),
        ("inner", (LEFT.append(KIND), RIGHT.append(KIND)), [*LEFT, *RIGHT, KIND]),
        ("full", (LEFT, RIGHT), [*LEFT, *RIGHT, KIND]),
        ("semi", (LEFT, RIGHT), LEFT),
        ("anti", (LEFT, RIGHT), [*LEFT, KIND]),
    ):
        _, made = head(joined(kind, [["k"], ["key"]]), *schemas)  # type: ignore[arg-type]
        assert made.outputs[MAIN].schema == pa.schema(wanted)


def test_what_is_refused_once_the_columns_are_known() -> None:
    flawed = AggregateCall(function="count", name="c", type=pa.int64(), filter="n")
    with pytest.raises(DefinitionError, match="groups: the filter n of c is of type int64"):
        head(aggregate(["k"], flawed), LEFT)
    with pytest.raises(DefinitionError, match="groups: two columns of the result are called c"):
        head(aggregate(["k"], COUNT, COUNT), LEFT)
    with pytest.raises(DefinitionError, match="top: there is no column 'm'"):
        head(top(["k"], [SortColumn("m")]), LEFT)
    with pytest.raises(DefinitionError, match="top: values of type map<string, int64> have no order"):
        head(top(["k"], [SortColumn("m")]), LEFT.append(pa.field("m", pa.map_(pa.string(), pa.int64()))))
    with pytest.raises(DefinitionError, match="the records have a column 'n' already"):
        head(top(["k"], [], rank="n"), LEFT)
    with pytest.raises(DefinitionError, match="the keys k and m are of the types string and int64, which never meet"):
        head(joined("inner", [["k"], ["m"]]), LEFT, RIGHT)
    with pytest.raises(DefinitionError, match="joined: two columns of the result are called f"):
        head(joined("left", [["k"], ["k"]]), LEFT, LEFT)


def test_columns_are_known_before_anything_starts() -> None:
    job = Job("changes")
    left, right = (
        job.from_source(FileSource("x", format="json", schema=schema), name=name)
        for name, schema in (("a", "k string, n bigint"), ("b", "key string, m bigint"))
    )
    of_groups = GroupAggregateNode("groups", [left.node], [["k"]], [None], None, {}, [COUNT])
    nodes = [of_groups, right.node]
    after = RegularJoinNode("joined", nodes, [["k"], ["key"]], [None, None], None, {}, kind="left")
    first = ChangelogTopNNode("top", nodes[:1], [["k"]], [None], None, {}, last=1, order_by=[], rank="place")
    known = {
        "top": (first, ["k", "c", "place", ROW_KIND]),
        "groups": (of_groups, ["k", "c", ROW_KIND]),
        "joined": (after, ["k", "c", "key", "m", ROW_KIND]),
    }
    for node, columns in known.values():
        for column in (*columns, "nn"):
            total = AggregateCall(function="max", name="t", type=pa.string(), column=column)
            behind = list(walk([GroupAggregateNode("behind", [node], [["k"]], [None], None, {}, [total])]))
            if column != "nn":
                check_columns(behind)
                continue
            with pytest.raises(DefinitionError, match="behind: there is no column 'nn'"):
                check_columns(behind)


def test_steps_are_described() -> None:
    total = AggregateCall(function="sum", name="t", type=pa.int64(), column="n", distinct=True, filter="f")
    node = aggregate(["k"], total, COUNT).node
    assert isinstance(node, KeyedNode)
    assert node.describe() == "group aggregate sum(DISTINCT n) FILTER (WHERE f) AS t, count(*) AS c"
    node = top(["k"], [SortColumn("n", descending=True)], first=2, newest_first=True, ttl_ms=60_000).node
    assert isinstance(node, KeyedNode)
    assert node.describe() == "places 2 to 3 by n desc nulls first, the newest first of a changelog, known for 1 min"
    node = top(["k"], []).node
    assert isinstance(node, KeyedNode)
    assert node.describe() == "the first 3 as they come of a changelog"
    node = joined("left", [["k"], ["key"]], condition=len).node
    assert isinstance(node, KeyedNode)
    assert node.describe() == "regular left join with a condition"
