"""Spark segments: rows go in as blocks, come out as blocks, and are what Spark would make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.plan.segments import cut_segments
from poundlock.spark.segments import SparkSegment
from poundlock.stream.nodes import ApplyNode, Node, SinkNode, SourceNode, SqlNode, UnionNode
from poundlock.tasks.columns import EVENT_TIME, HIDDEN_TYPES, ROW, SPLIT
from poundlock.tasks.exchange.segment_blocks import read_blocks, write_blocks

pytestmark = pytest.mark.engine

_EVERY_TYPE = ddl.parse(
    "id bigint, b boolean, ti tinyint, si smallint, i int, f float, d double, s string, bin binary, day date, t timestamp, "
    "tn timestamp_ntz, dec decimal(12,3), l array<int>, m map<string,bigint>, st struct<`a b`: int, c: array<struct<x: string>>>"
)


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def _everything() -> pa.Table:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    full = {
        "id": 1, "b": True, "ti": -3, "si": 300, "i": 7, "f": 1.5, "d": float("nan"), "s": "grüße", "bin": b"\x00\xff", "day": date(1600, 2, 29),
        "t": datetime(2024, 3, 10, 7, 30, 0, 123456, UTC), "tn": datetime(1, 1, 1), "dec": Decimal("-12345.678"), "l": [1, None], "m": [("k", 5)],
        "st": {"a b": 4, "c": [{"x": "y"}, None]},
    }  # fmt: skip
    return _table([full, {"id": 2}], _EVERY_TYPE)


def _with_hidden(table: pa.Table, splits: int = 2) -> pa.Table:
    rows = table.num_rows
    columns = {
        EVENT_TIME: [i * 1_000_000 if i % 3 else None for i in range(rows)],
        SPLIT: [i * splits // max(rows, 1) for i in range(rows)],
        ROW: list(range(rows)),
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, HIDDEN_TYPES[name]))
    return table


def _segments(*outputs: Node) -> list[Any]:
    sinks = [SinkNode(f"sink{i}", [node], object()) for i, node in enumerate(outputs)]
    return cut_segments(sinks, lambda node: isinstance(node, (SqlNode, ApplyNode)))


def _run(jvm: Any, tables: Mapping[str, pa.Table], *outputs: Node, partitions: int = 2) -> dict[str, pa.Table]:
    (segment,) = _segments(*outputs)
    spark = SparkSegment(segment, {name: table.schema for name, table in tables.items()})
    context = jvm.sparkContext
    blocks = {
        name: context.parallelize(
            [
                block.to_pybytes()
                for block in write_blocks(table.to_batches(max_chunksize=3), table.schema, block_bytes=500)
            ],
            partitions,
        )
        for name, table in tables.items()
    }
    lowered = spark.lower(jvm, blocks)
    schemas = spark.schemas(jvm)
    found = {}
    for name, rdd in lowered.blocks.items():
        batches = [batch for block in rdd.collect() for batch in read_blocks(block)]
        assert all(batch.schema.equals(schemas[name]) for batch in batches)
        found[name] = pa.Table.from_batches(batches, schemas[name])
    lowered.release()
    return found


def _source(name: str = "s") -> SourceNode:
    return SourceNode(name, [], object())


def _sql(parent: Node, kind: Any, *arguments: str, name: str = "q") -> SqlNode:
    return SqlNode(name, [parent], kind, list(arguments))


@pytest.fixture
def new_york(jvm: Any) -> Iterator[None]:
    """A session of the user's may have any time zone."""
    before = jvm.conf.get("spark.sql.session.timeZone")
    jvm.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    jvm.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("new_york")
def test_every_type_crosses_unchanged(jvm: Any) -> None:
    table = _everything()
    found = _run(jvm, {"s": table}, _sql(_source(), "select", "*"))["q"]
    assert found.schema.equals(table.schema)
    assert repr(found.to_pylist()) == repr(table.to_pylist())


def test_rows_keep_their_order_and_hidden_columns_through_row_wise_sql(jvm: Any) -> None:
    numbers = _with_hidden(_table([{"n": i} for i in range(100)], ddl.parse("n bigint")))
    kept = _sql(
        _sql(_source(), "where", "n % 7 = 3", name="w"),
        "select",
        "n * 2 AS twice",
        "to_json(struct(*)) AS json",
        name="p",
    )
    more = _sql(_sql(kept, "with_column", "all", "struct(*)", name="x"), "drop", "twice", name="last")
    found = _run(jvm, {"s": numbers}, more)["last"].to_pylist()
    rows = numbers.to_pylist()
    wanted = [
        {
            "json": f'{{"n":{n}}}',
            "all": {"twice": 2 * n, "json": f'{{"n":{n}}}'},
            **{h: rows[n][h] for h in HIDDEN_TYPES},
        }
        for n in range(3, 100, 7)
    ]
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("*", ["n", "t"]), ("* EXCEPT (T)", ["n"]), ("n*n AS nn", ["nn"]), ("2 * n AS c", ["c"]), ("(n)*3 AS c", ["c"]),
        ("struct( * ).t AS c", ["c"]), ("array(1)[0]*n AS c", ["c"]), ("coalesce(*) AS c", ["c"]), ("'*' AS c", ["c"]),
    ],
)  # fmt: skip
def test_a_star_means_the_visible_columns(jvm: Any, text: str, columns: list[str]) -> None:
    table = _table([{"n": 3, "t": 5}], ddl.parse("n int, t int"))
    hidden = _run(jvm, {"s": _with_hidden(table)}, _sql(_source(), "select", text))["q"]
    plain = jvm.createDataFrame([(3, 5)], "n int, t int")
    wanted = [(3,)] if "EXCEPT" in text else [tuple(row) for row in plain.selectExpr(text).collect()]
    assert hidden.schema.names == [*columns, *HIDDEN_TYPES]
    assert [tuple(row.values()) for row in hidden.select(columns).to_pylist()] == wanted


def test_several_outputs_of_one_input_read_it_once(jvm: Any) -> None:
    reads = jvm.sparkContext.accumulator(0)
    source = _source()
    table = _with_hidden(_table([{"n": i} for i in range(50)], ddl.parse("n bigint")))
    outputs = [
        _sql(
            _sql(source, "where", f"n % 5 = {i} AND 100 / (n % 5 - {i} + 1) > 0", name=f"w{i}"),
            "select",
            f"n + {i} AS m{i}",
            name=f"q{i}",
        )
        for i in range(4)
    ]
    (segment,) = _segments(*outputs)

    def counted(block: bytes) -> bytes:
        reads.add(1)
        return block

    blocks = [block.to_pybytes() for block in write_blocks(table.to_batches(), table.schema)]
    lowered = SparkSegment(segment, {"s": table.schema}).lower(
        jvm, {"s": jvm.sparkContext.parallelize(blocks, 1).map(counted)}
    )
    rows = table.to_pylist()
    for i in range(4):
        found = [
            row
            for block in lowered.blocks[f"q{i}"].collect()
            for batch in read_blocks(block)
            for row in batch.to_pylist()
        ]
        assert found == [{f"m{i}": n + i, **{h: rows[n][h] for h in HIDDEN_TYPES}} for n in range(i, 50, 5)]
    assert reads.value == 1
    lowered.release()


def test_a_condition_in_one_branch_shields_what_follows_it(jvm: Any) -> None:
    table = _table([{"n": n} for n in (0, 1, 2)], ddl.parse("n int"))
    source = _source()
    shielded = _sql(_sql(source, "where", "n > 0", name="w"), "select", "10 DIV n AS d", name="a")
    found = _run(jvm, {"s": table}, shielded, _sql(source, "select", "n", name="b"))
    assert found["a"].to_pylist() == [{"d": 10}, {"d": 5}]
    assert found["b"].to_pylist() == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_dataframe_function_sees_one_checkpoint_without_hidden_columns(jvm: Any) -> None:
    table = _with_hidden(_table([{"k": i % 2, "n": i} for i in range(10)], ddl.parse("k int, n bigint")))
    seen: list[list[str]] = []

    def totals(frame: Any) -> Any:
        seen.append(frame.columns)
        return frame.groupBy("k").agg({"n": "sum"}).withColumnRenamed("sum(n)", "total")

    found = _run(jvm, {"s": table}, ApplyNode("f", [_source()], totals))["f"]
    assert sorted(found.to_pylist(), key=repr) == [{"k": 0, "total": 20}, {"k": 1, "total": 25}]
    assert {tuple(columns) for columns in seen} == {("k", "n")}


def test_a_function_may_join_a_stream_with_itself_and_with_a_static_table(jvm: Any) -> None:
    source = _source()
    users = jvm.createDataFrame([(1, "ada"), (2, "bob")], "id int, name string")

    def joined(left: Any, right: Any) -> Any:
        pairs = left.join(right, left.n == right.n - 1).select(left.n.alias("a"), right.n.alias("b"))
        return pairs.join(users, pairs.a == users.id, "left").select("a", "b", "name")

    table = _table([{"n": i} for i in range(4)], ddl.parse("n int"))
    function = ApplyNode("f", [source, source], joined)
    found = _run(jvm, {"s": table}, _sql(function, "where", "a > 0", name="w"))["w"]
    assert sorted(found.to_pylist(), key=repr) == [{"a": 1, "b": 2, "name": "ada"}, {"a": 2, "b": 3, "name": "bob"}]


def test_a_union_inside_matches_columns_by_name(jvm: Any) -> None:
    one, other = _source("s"), _source("t")
    union = UnionNode("u", [_sql(one, "with_column", "m", "n + 1", name="a"), other])
    tables = {"s": _table([{"n": 1}], ddl.parse("n int")), "t": _table([{"m": 9, "n": 8}], ddl.parse("m int, n int"))}
    found = _run(jvm, tables, _sql(union, "select", "*", name="all"))["all"]
    assert sorted(found.to_pylist(), key=repr) == [{"n": 1, "m": 2}, {"n": 8, "m": 9}]


def test_no_rows_and_no_partitions(jvm: Any) -> None:
    table = _table([], ddl.parse("n int"))
    (segment,) = _segments(_sql(_source(), "select", "n"))
    lowered = SparkSegment(segment, {"s": table.schema}).lower(jvm, {"s": jvm.sparkContext.emptyRDD()})
    assert lowered.blocks["q"].collect() == []


def test_a_function_that_returns_something_else_is_refused(jvm: Any) -> None:
    (segment,) = _segments(ApplyNode("f", [_source()], lambda frame: frame.columns))
    with pytest.raises(DefinitionError, match="f: the function returned list, not a DataFrame"):
        SparkSegment(segment, {"s": ddl.parse("n int")}).schemas(jvm)


def test_a_function_that_reads_a_stream_is_refused(jvm: Any) -> None:
    (segment,) = _segments(
        ApplyNode("f", [_source()], lambda frame: frame.sparkSession.readStream.format("rate").load())
    )
    with pytest.raises(DefinitionError, match="f: the function reads a stream of its own"):
        SparkSegment(segment, {"s": ddl.parse("n int")}).schemas(jvm)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["NULL AS nothing"], "the column 'nothing' is of type void"),
        (["INTERVAL '1' DAY AS span"], "the column 'span' is of type interval day"),
        (["n AS a", "n AS a"], "the column 'a' is there twice"),
    ],
)
def test_columns_that_tasks_cannot_have_are_refused(jvm: Any, texts: list[str], message: str) -> None:
    (segment,) = _segments(_sql(_source(), "select", *texts))
    with pytest.raises(DefinitionError, match=message):
        SparkSegment(segment, {"s": ddl.parse("n int")}).schemas(jvm)
