"""Steps over rows in an order: what they give, when rows come out, what is refused and when."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DatagenSource, DataStream, DefinitionError, FileSource, Job
from poundlock.operators.columns.over.moving_ranks import ColumnMovingRanksOperator
from poundlock.operators.columns.over.over import ColumnOverOperator
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.plan.heads.keyed import exchange_inputs, keyed_head
from poundlock.plan.known_columns import check_columns
from poundlock.plan.normalize import normalize
from poundlock.stream.nodes import KeyedNode, SinkNode, SortColumn, walk
from poundlock.stream.over_nodes import OverCall, OverNode, RowFrame, TemporalJoinNode
from poundlock.tasks.keyed_stage import KeyedHead

ROWS = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int64()), ("f", pa.bool_())])
VERSIONS = pa.schema([("key", pa.string()), ("since", pa.timestamp("us")), ("m", pa.int64())])
KIND = pa.field(ROW_KIND, pa.string())
TOTAL = OverCall(function="sum", name="total", type=pa.int64(), column="N", filter="F", frame=RowFrame("rows", 2))
NUMBER = OverCall(function="row_number", name="place", type=pa.int64())


def over(by: Any, *calls: OverCall, order: str = "TS", keys: tuple[str, ...] = ("K",), **options: Any) -> DataStream:
    stream = Job("over").from_source(DatagenSource(), name="rows")
    node = OverNode(
        "over", [stream.node], [keys], [None], None, {}, order=[SortColumn(order)], by=by, calls=calls, **options
    )
    return stream.then(node)


def versions(keys: list[list[str]], **options: Any) -> DataStream:
    job = Job("over")
    nodes = [job.from_source(DatagenSource(), name=name).node for name in ("a", "b")]
    times = ("ts", "since")
    return DataStream(job, TemporalJoinNode("joined", nodes, keys, [None, None], None, {}, times=times, **options))


def head(stream: DataStream, *schemas: pa.Schema, bounded: bool = False) -> tuple[KeyedNode, KeyedHead]:
    graph = normalize([SinkNode("out", [stream.node], None)], time_in_tasks=lambda node: True)
    (node,) = graph.roots[0].inputs
    assert isinstance(node, KeyedNode)
    timed = [False] * len(schemas)
    made = keyed_head(node, list(schemas), timed, graph, lambda schema, text: text, bounded=bounded)
    return node, pickle.loads(pickle.dumps(made))


def test_results_stand_behind_the_columns_of_a_row() -> None:
    node, made = head(over("event_time", TOTAL), ROWS)
    assert made.outputs[MAIN].schema == pa.schema([*ROWS, ("total", pa.int64())])
    ((to, columns),) = exchange_inputs(node, made, max_parallelism=8)
    assert (to.how, to.keys, columns) == ("keyed", ("k",), ROWS.names)


def test_rows_without_a_key_come_to_one_task() -> None:
    node, made = head(over("event_time", keys=()), ROWS)
    ((to, _),) = exchange_inputs(node, made, max_parallelism=8)
    assert (to.how, to.keys) == ("keyed", ())


def test_numbers_by_any_order_are_a_changelog() -> None:
    wanted = pa.schema([*ROWS, ("place", pa.int64()), KIND])
    for schema in (ROWS, ROWS.append(KIND)):
        _, made = head(over("any", NUMBER, order="n"), schema)
        assert made.outputs[MAIN].schema == wanted
        assert isinstance(made.make(), ColumnMovingRanksOperator)
        _, made = head(over("any", NUMBER, order="n"), schema, bounded=True)
        assert made.outputs[MAIN].schema == wanted
        assert isinstance(made.make(), ColumnOverOperator)
    _, made = head(over("event_time", NUMBER), ROWS)
    assert made.outputs[MAIN].schema == pa.schema([*ROWS, ("place", pa.int64())])


@pytest.mark.parametrize(
    "stream",
    [
        over("any", TOTAL),
        over("any", TOTAL, NUMBER),
        over("any"),
        over("event_time", OverCall(function="ntile", name="part", type=pa.int64(), offset=2)),
        over("event_time", OverCall(function="lead", name="next", type=pa.int64(), column="n")),
        over("event_time", OverCall(function="count", name="c", type=pa.int64(), frame=RowFrame("rows", 1, 1))),
    ],
)
def test_what_is_certain_at_the_end_alone_is_refused_in_a_stream(stream: DataStream) -> None:
    with pytest.raises(DefinitionError, match="what comes out of it is certain at the end of the input alone"):
        head(stream, ROWS)
    _, made = head(stream, ROWS, bounded=True)
    assert isinstance(made.make(), ColumnOverOperator)


def test_a_join_has_the_columns_of_both_sides() -> None:
    for schema in (VERSIONS, VERSIONS.append(KIND)):
        _, made = head(versions([["k"], ["key"]], kind="left"), ROWS, schema)
        assert made.outputs[MAIN].schema == pa.schema([*ROWS, *VERSIONS])


def test_what_is_refused_once_the_columns_are_known() -> None:
    flawed = OverCall(function="count", name="c", type=pa.int64(), filter="n", frame=RowFrame("rows", 1))
    with pytest.raises(DefinitionError, match="over: the filter n of c is of type int64"):
        head(over("event_time", flawed), ROWS)
    with pytest.raises(DefinitionError, match="over: two columns of the result are called total"):
        head(over("event_time", TOTAL, TOTAL), ROWS)
    with pytest.raises(DefinitionError, match="joined: the left rows of a temporal join change"):
        head(versions([["k"], ["key"]], kind="inner"), ROWS.append(KIND), VERSIONS)
    with pytest.raises(DefinitionError, match="joined: two columns of the result are called f"):
        head(versions([["k"], ["k"]], kind="inner"), ROWS, ROWS.append(pa.field("since", pa.timestamp("us"))))
    nameless = ROWS.append(pa.field("clock", pa.time64("us")))
    _, made = head(over("event_time", TOTAL), nameless)
    with pytest.raises(DefinitionError, match=r"over: rows wait in state, which has no name for the type time64\[us\] of clock"):  # fmt: skip
        made.make()


def test_what_no_aggregate_is() -> None:
    with pytest.raises(DefinitionError, match="'summ' is no aggregate"):
        OverCall(function="summ", name="s", type=pa.int64(), column="n")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="sum of no column"):
        OverCall(function="sum", name="s", type=pa.int64())
    with pytest.raises(DefinitionError, match="ntile with 0"):
        OverCall(function="ntile", name="s", type=pa.int64(), offset=0)


def test_columns_are_known_before_anything_starts() -> None:
    job = Job("over")
    left, right = (
        job.from_source(FileSource("x", format="json", schema=schema), name=name)
        for name, schema in (
            ("a", "k string, ts timestamp, n bigint, f boolean"),
            ("b", "key string, since timestamp, m bigint"),
        )
    )
    place = [NUMBER]
    numbered = OverNode("over", [left.node], [["k"]], [None], None, {}, order=[SortColumn("n")], by="any", calls=place)
    nodes = [left.node, right.node]
    joined = TemporalJoinNode(
        "joined", nodes, [["k"], ["key"]], [None, None], None, {}, times=("ts", "since"), kind="left"
    )
    known: dict[OverNode | TemporalJoinNode, list[str]] = {
        numbered: ["k", "ts", "n", "f", "place", ROW_KIND],
        joined: ["k", "ts", "n", "f", "key", "since", "m"],
    }
    for node, columns in known.items():
        for column in (*columns, "nn"):
            order = [SortColumn(column)]
            behind = list(walk([OverNode("behind", [node], [[]], [None], None, {}, order=order, by="any")]))
            if column != "nn":
                check_columns(behind)
                continue
            with pytest.raises(DefinitionError, match="behind: there is no column 'nn'"):
                check_columns(behind)


def test_steps_are_described() -> None:
    lag = OverCall(function="lag", name="before", type=pa.int64(), column="n", offset=2)
    node = over("event_time", TOTAL, lag, ttl_ms=60_000).node
    assert isinstance(node, KeyedNode)
    assert node.describe() == (
        "over sum(N) FILTER (WHERE F) over rows between 2 preceding and current row AS total, lag(n, 2) AS before, "
        "by TS, known for 1 min"
    )
    node = over("any", limit=3, offset=2).node
    assert isinstance(node, KeyedNode)
    assert node.describe() == "sort, by TS, 3 rows behind the first 2"
    node = versions([["k"], ["key"]], kind="left", condition=len).node
    assert isinstance(node, KeyedNode)
    assert node.describe() == "temporal left join with a condition: the version of since at ts"
