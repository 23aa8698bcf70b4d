"""Process functions, joins and rolling aggregates as the user writes them: the nodes they become, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from poundlock import (
    BroadcastProcessFunction,
    CoGroupFunction,
    CoProcessFunction,
    DataStream,
    DefinitionError,
    FileSink,
    FileSource,
    Job,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessFunction,
    ProcessJoinFunction,
    StateTtlConfig,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from poundlock.operators.factory import process_by_record, process_operator
from poundlock.operators.process.deduplicate import FirstRecordOperator, LastRecordOperator
from poundlock.operators.process.joins import IntervalJoinOperator, JoinedSides
from poundlock.operators.process.process import ProcessOperator
from poundlock.operators.process.rolling import RollingOperator
from poundlock.operators.process.top_n import TopNOperator
from poundlock.operators.windows.base import WindowOperatorBase
from poundlock.plan.plan import make_plan
from poundlock.stream.nodes import (
    DeduplicateNode,
    IntervalJoinNode,
    ProcessNode,
    RollingNode,
    TopNNode,
    WindowJoinNode,
)
from poundlock.stream.windows.builtin_assigners import TumblingProcessingTimeWindows
from poundlock.stream.windows.builtin_triggers import CountTrigger
from poundlock.stream.windows.evictors import CountEvictor

RULES = MapStateDescriptor("rules")
SCHEMA = "user string, n bigint"
MINUTE = TumblingEventTimeWindows("1 min")


class P(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any: ...


class K(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any: ...


class C(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any: ...

    def process_element2(self, value: Any, ctx: Any) -> Any: ...


class KC(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any: ...

    def process_element2(self, value: Any, ctx: Any) -> Any: ...


class B(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any: ...


class KB(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any: ...


class PJ(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any: ...


def two(column: str = "event_time", *, timed: bool = True) -> tuple[DataStream, DataStream]:
    """Return two streams of one job, with event time or without."""
    job = Job("a")
    streams = [job.from_source(FileSource(f"/{name}")) for name in "ab"]
    if timed:
        columns = ("event_time", column)
        streams = [
            stream.assign_timestamps_and_watermarks(
                WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="ts", column=name)
            )
            for stream, name in zip(streams, columns, strict=True)
        ]
    return streams[0], streams[1]


def node_of(stream: DataStream) -> Any:
    return stream.node


def test_process_functions_become_nodes() -> None:
    a, b = two(timed=False)
    node = node_of(
        a.key_by("user", "lower(x) as y").process(K(), schema=SCHEMA, side_outputs={"late": "n int"}, name="p")
    )
    assert isinstance(node, ProcessNode)
    assert (node.id, node.inputs, node.keys, node.columns) == ("p", [a.node], [["user", "lower(x) as y"]], [None])
    assert (node.schema, node.side_outputs, node.describe()) == (SCHEMA, {"late": "n int"}, "process K")
    assert isinstance(process_operator(node), ProcessOperator)

    assert node_of(a.process(P(), schema=SCHEMA)).keys == [[]]
    assert node_of(a.connect(b).process(C(), schema=SCHEMA)).inputs == [a.node, b.node]
    for connected in (a.connect(b).key_by("user", ["id"]), a.key_by("user").connect(b.key_by("id"))):
        assert node_of(connected.process(KC(), schema=SCHEMA)).keys == [["user"], ["id"]]


def test_broadcast_becomes_part_of_the_node() -> None:
    a, b = two("at")
    node = node_of(a.key_by("user").connect(b.broadcast(RULES)).process(KB(), schema=SCHEMA))
    assert (node.keys, node.broadcast, node.columns) == ([["user"], []], [RULES], ["event_time", "at"])
    assert node.describe() == "process KB, broadcast state rules"
    assert node_of(a.connect(b.broadcast(RULES)).process(B(), schema=SCHEMA)).keys == [[], []]


def test_rolling_aggregates_become_nodes() -> None:
    a, _ = two()
    keyed = a.key_by("user")
    for kind in ("sum", "min", "max", "min_by", "max_by"):
        node = node_of(getattr(keyed, kind)("n", name=kind))
        assert isinstance(node, RollingNode)
        assert (node.id, node.kind, node.column, node.schema, node.describe()) == (
            kind,
            kind,
            "n",
            None,
            f"rolling {kind} of n",
        )
        assert isinstance(process_operator(node), RollingOperator)
    assert node_of(keyed.max_by("n", first=False)).first is False

    def longest(x: Any, y: Any) -> Any:
        return max(x, y)

    assert node_of(keyed.reduce(longest)).describe() == "rolling reduce of longest"


def test_deduplication_becomes_a_node() -> None:
    a, _ = two()
    node = node_of(a.key_by("user").deduplicate(name="seen", ttl="1 day"))
    assert isinstance(node, DeduplicateNode)
    assert (node.id, node.keep, node.order, node.ttl_ms, node.schema) == ("seen", "first", "arrival", 86_400_000, None)
    assert node.describe() == "the first record that arrived, known for 1 d"
    assert isinstance(process_operator(node), FirstRecordOperator)
    node = node_of(a.key_by("user").deduplicate("last", order="event_time", update_before=True))
    assert (node.describe(), node.columns) == ("the last record by event time", ["event_time"])
    assert isinstance(process_operator(node), LastRecordOperator)
    assert process_by_record(node) is None


def test_top_n_becomes_a_node() -> None:
    a, _ = two()
    node = node_of(a.key_by("user").top_n(3, ["n desc nulls first", "`id`", "x desc"], rank="place", name="top"))
    assert isinstance(node, TopNNode)
    orders = [(each.column, each.descending, each.nulls_first) for each in node.order_by]
    assert orders == [("n", True, True), ("id", False, True), ("x", True, False)]
    assert node.describe() == "the first 3 by n desc nulls first, id, x desc"
    assert isinstance(process_operator(node), TopNOperator)
    assert process_by_record(node) is None


def test_a_reduce_works_record_by_record_and_explain_says_why() -> None:
    job = Job("a")
    rows = job.from_source(FileSource("/in", format="json", schema="k string, n int"), name="in").key_by("k")
    rows.reduce(max, name="most").sink_to(FileSink("/out"), name="out")
    rows.top_n(2, "n", name="top").sink_to(FileSink("/top"), name="top-out")
    assert "rolling reduce of max, record by record, since a Python function makes one record of two" in job.explain()
    assert "top: by k, the first 2 by n, by columns <- in" in job.explain()


def test_interval_joins_become_nodes() -> None:
    a, b = two("at")
    join = a.key_by("user").interval_join(b.key_by("id")).between("-5 min", "1 s")
    node = node_of(join.select("left.user", "right.n"))
    assert isinstance(node, IntervalJoinNode)
    assert (node.lower_ms, node.upper_ms, node.select, node.schema) == (-300_000, 1000, ["left.user", "right.n"], None)
    assert (node.keys, node.columns) == ([["user"], ["id"]], ["event_time", "at"])
    assert node.describe() == "interval join from -5 min to 1 s: left.user, right.n"
    assert isinstance(process_operator(node), IntervalJoinOperator)

    twice = join.lower_bound_exclusive().lower_bound_exclusive().upper_bound_exclusive().upper_bound_exclusive()
    late = twice.side_output_left_late_data("l").side_output_right_late_data("r")
    stream = late.process(PJ(), schema=SCHEMA, side_outputs={"s": "n int"})
    node = node_of(stream)
    assert (node.lower_ms, node.upper_ms, node.late_tags) == (-299_999, 999, ("l", "r"))
    assert node.side_outputs == {"s": "n int", "l": None, "r": None}
    assert [(side.node.tag, node_of(side).schema) for side in map(stream.side_output, "srl")] == [  # type: ignore[attr-defined]
        ("s", "n int"),
        ("r", None),
        ("l", None),
    ]


def test_window_joins_become_nodes() -> None:
    a, b = two()
    joined = a.join(b).where("user", "x").equal_to("id", "y").window(MINUTE)
    node = node_of(
        joined.trigger(CountTrigger(5))
        .evictor(CountEvictor(3))
        .allowed_lateness("1 min")
        .apply(lambda x, y: x, schema=SCHEMA)
    )
    assert isinstance(node, WindowJoinNode)
    assert (node.kind, node.keys, node.schema) == ("join", [["user", "x"], ["id", "y"]], SCHEMA)
    assert node.describe().startswith("join in tumbling windows of 1 min, fired ")
    assert node.describe().endswith(", late by up to 1 min")
    operator = process_operator(node)
    assert isinstance(operator, WindowOperatorBase)
    assert (operator.spec.with_sides, type(operator.spec.process)) == (True, JoinedSides)
    selected = node_of(joined.select("left.user", "right.n as m", name="pairs"))
    assert isinstance(selected, WindowJoinNode)
    assert (selected.id, selected.select, selected.function, selected.schema) == (
        "pairs",
        ["left.user", "right.n as m"],
        None,
        None,
    )
    assert selected.describe() == "join in tumbling windows of 1 min: left.user, right.n as m"
    c, d = two(timed=False)
    grouped = c.co_group(d).where("user").equal_to("id").window(TumblingProcessingTimeWindows("1 min"))
    assert node_of(grouped.apply(lambda x, y: x, schema=SCHEMA)).columns == [None, None]


def test_operators_with_state_should_be_named() -> None:
    job = Job("a")
    rows = job.from_source(FileSource("/in", format="json", schema="k string, n int"), name="in")
    stream = rows.key_by("k").sum("n")
    stream.sink_to(FileSink("/out"), name="out")
    assert job.unnamed_operators() == ["sum-0"]
    assert make_plan(job).keyed
    assert "sum-0: by k, rolling sum of n, by columns <- in" in job.explain()


def other_job() -> DataStream:
    return Job("b").from_source(FileSource("/x"))


@pytest.mark.parametrize(
    ("write", "says", "advises"),
    [
        (
            lambda a, b: a.key_by("k").process(K, schema=SCHEMA),
            "K is a class, and a KeyedProcessFunction is an object of one",
            "write K(…)",
        ),
        (
            lambda a, b: a.process(K(), schema=SCHEMA),
            "K is a KeyedProcessFunction, and a ProcessFunction",
            "key_by(…).process",
        ),
        (
            lambda a, b: a.key_by("k").process(P(), schema=SCHEMA),
            "a KeyedProcessFunction is needed here",
            "stream.process",
        ),
        (lambda a, b: a.key_by("k").process(print, schema=SCHEMA), "is no KeyedProcessFunction", "derive a class"),
        (lambda a, b: a.key_by("k").process(K(), schema=""), "does not say which columns come out", "schema="),
        (lambda a, b: a.key_by("k").process(K(), schema="user strin"), "strin", ""),
        (
            lambda a, b: a.key_by("k").process(K(), schema=SCHEMA, side_outputs={" ": SCHEMA}),
            "' ' is no name of a side output",
            "",
        ),
        (
            lambda a, b: a.key_by("k").process(K(), schema=SCHEMA, side_outputs={"x": ""}),
            "the side output 'x' does not",
            "",
        ),
        (lambda a, b: a.process(P(), schema=SCHEMA).side_output("x"), "has no side output 'x'", "side_outputs="),
        (lambda a, b: a.where(lambda record: True), "where needs Spark SQL text, got <function", "write filter"),
        (lambda a, b: a.select(None), "select needs Spark SQL text, got None", 'select("…")'),
        (lambda a, b: a.filter("n > 3"), "filter needs a function, got 'n > 3'", "where("),
        (lambda a, b: a.key_by("k").sum(5), "sum needs the name of a column, got 5", 'write sum("n")'),
        (lambda a, b: a.key_by("k").reduce("n"), "reduce needs a function", ""),
        (lambda a, b: a.key_by("k").deduplicate("newest"), "keep='newest' is not known", "'first' or 'last'"),
        (lambda a, b: a.key_by("k").deduplicate(update_before=True), "update_before with the first records", "leave"),
        (lambda a, b: a.key_by("k").deduplicate(ttl="0 s"), "a time to live of '0 s'", ""),
        (lambda a, b: other_job().key_by("k").deduplicate(order="event_time"), "needs event time", "assign_timestamps"),
        (lambda a, b: a.key_by("k").top_n(0, "n"), "the first 0 records", "from 1 on"),
        (lambda a, b: a.key_by("k").top_n(1, []), "an order by []", 'order_by="price desc"'),
        (lambda a, b: a.key_by("k").top_n(1, "n + 1"), "an order by 'n + 1'", "with_column"),
        (lambda a, b: a.key_by("k").top_n(1, "n", update_before=True), "update_before without rank", 'rank="place"'),
        (lambda a, b: a.connect(b.key_by("k")), "a keyed stream and one without key", ".key_by("),
        (lambda a, b: a.key_by("k").connect(b), "a keyed stream and one without key", ".key_by("),
        (lambda a, b: a.connect("b"), "connect with 'b', which is no stream", "a.connect(b)"),
        (lambda a, b: a.connect(other_job()), "connect of streams of two jobs", "one Job"),
        (lambda a, b: a.connect(other_job().broadcast(RULES)), "connect of streams of two jobs", "one Job"),
        (
            lambda a, b: a.connect(b).key_by("k", ["x", "y"]),
            "by 1 keys on one side and 2 on the other: k and x, y",
            "as many",
        ),
        (lambda a, b: a.connect(b).key_by("k", ""), "key_by needs Spark SQL text", ""),
        (lambda a, b: a.key_by("k").connect(b.key_by("x", "y")), "by 1 keys on one side and 2", "as many"),
        (
            lambda a, b: a.key_by("k").connect(b.key_by("k")).key_by("k", "k"),
            "key_by on streams that are keyed",
            "leave out",
        ),
        (lambda a, b: a.connect(b).process(KC(), schema=SCHEMA), "a CoProcessFunction is needed here", "key_by(…, …)"),
        (lambda a, b: a.connect(b).key_by("k", "k").process(C(), schema=SCHEMA), "a KeyedCoProcessFunction is", ""),
        (lambda a, b: b.broadcast(), "broadcast without a state", 'MapStateDescriptor("rules")'),
        (lambda a, b: b.broadcast(ValueStateDescriptor("v")), "cannot be broadcast state", "MapStateDescriptor"),
        (lambda a, b: b.broadcast(RULES, RULES), "two broadcast states have one name", "name them apart"),
        (
            lambda a, b: b.broadcast(MapStateDescriptor("r", ttl=StateTtlConfig(ttl="1 h"))),
            "broadcast state 'r' with a time to live",
            "leave out ttl=",
        ),
        (lambda a, b: a.connect(b.broadcast(RULES)).process(KB(), schema=SCHEMA), "a BroadcastProcessFunction is", ""),
        (
            lambda a, b: a.key_by("k").connect(b.broadcast(RULES)).process(B(), schema=SCHEMA),
            "a KeyedBroadcastProcessFunction is",
            "",
        ),
        (lambda a, b: a.key_by("k").interval_join(b), "with DataStream, which has no key", "b.key_by"),
        (lambda a, b: a.key_by("k").interval_join(other_job().key_by("k")), "streams of two jobs", ""),
        (lambda a, b: a.key_by("k").interval_join(b.key_by("x", "y")), "interval_join by 1 keys", ""),
        (lambda a, b: ij(a, b, "1 s", "0 s"), "an interval from 1000 ms to 0 ms holds no time", "lower bound first"),
        (lambda a, b: ij(a, b, "1 s", "1 s").lower_bound_exclusive(), "from 1001 ms to 1000 ms holds no time", ""),
        (lambda a, b: ij(a, b, "-1 s", "1 s").process(print, schema=SCHEMA), "is no ProcessJoinFunction", ".select("),
        (lambda a, b: ij(a, b, "-1 s", "1 s").select(), "select needs Spark SQL text", ""),
        (lambda a, b: ij(a, b, "-1 s", "1 s").side_output_left_late_data(""), "is no name of a side output", ""),
        (
            lambda a, b: (
                ij(a, b, "-1 s", "1 s")
                .side_output_left_late_data("x")
                .side_output_right_late_data("x")
                .select("left.k")
            ),
            "two side outputs have one name: x, x",
            "name them apart",
        ),
        (lambda a, b: a.join(b).window(MINUTE), "join without where", '.where("user")'),
        (lambda a, b: a.co_group(b).where("k").window(MINUTE), "co_group without equal_to", '.equal_to("id")'),
        (lambda a, b: a.join(b).where("k").equal_to("x", "y").window(MINUTE), "join by 1 keys", ""),
        (lambda a, b: a.join(b).where("k").equal_to("k").window("1 min"), "is no window assigner", ""),
        (lambda a, b: a.join(other_job()), "join of streams of two jobs", ""),
        (lambda a, b: wj(a, b).apply(Co(), schema=SCHEMA), "is no JoinFunction", ""),
        (lambda a, b: wj(a, b).apply(Pair, schema=SCHEMA), "is no JoinFunction", "give an object"),
        (lambda a, b: wj(a, b).apply(5, schema=SCHEMA), "5 is no JoinFunction", ""),
        (lambda a, b: wj(a, b).apply(lambda x, y: x, schema=" "), "apply does not say which columns", ""),
        (lambda a, b: wj(a, b).trigger(5), "5 is no trigger", ""),
        (lambda a, b: wj(a, b).evictor(5), "5 is no evictor", ""),
        (
            lambda a, b: (
                a.join(b).where("k").equal_to("k").window(TumblingProcessingTimeWindows("1 s")).allowed_lateness("1 s")
            ),
            "in which nothing is late",
            "leave out",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(write: Any, says: str, advises: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(says)) as caught:
        write(*two())
    assert advises in caught.value.next
    assert len(str(caught.value).splitlines()) <= 2


class Pair(JoinFunction):
    def join(self, left: Any, right: Any) -> Any: ...


class Co(CoGroupFunction):
    def co_group(self, left: Any, right: Any) -> Any: ...


def ij(a: DataStream, b: DataStream, lower: str, upper: str) -> Any:
    return a.key_by("k").interval_join(b.key_by("k")).between(lower, upper)


def wj(a: DataStream, b: DataStream) -> Any:
    return a.join(b).where("k").equal_to("k").window(MINUTE)


@pytest.mark.parametrize(
    "write",
    [
        lambda a, b: a.key_by("k").interval_join(b.key_by("k")),
        lambda a, b: a.join(b).where("k").equal_to("k").window(MINUTE),
    ],
)
def test_joins_by_event_time_need_it_on_both_sides(write: Any) -> None:
    timed, _ = two()
    plain = timed.job.from_source(FileSource("/plain"))
    for a, b in ((timed, plain), (plain, timed)):
        with pytest.raises(DefinitionError, match="needs event time, and no watermark is assigned before it"):
            write(a, b)


def test_one_stream_has_one_column_of_event_time() -> None:
    a, b = two("at")
    with pytest.raises(DefinitionError, match="keep their event time in different columns: at, event_time"):
        a.union(b).key_by("k").process(K(), schema=SCHEMA)
