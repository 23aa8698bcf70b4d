"""Every operator that works by columns and has state: windows, joins, first and last records, rankings, sums; for a job that is killed."""

from os import environ
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock import (
    ArrowAggregateFunction,
    CumulativeEventTimeWindows,
    DataStream,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FileSink,
    FileSource,
    Job,
    PurgingTrigger,
    RollingPolicy,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.stream.changelog_nodes import AggregateCall, ChangelogTopNNode, GroupAggregateNode, RegularJoinNode
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import OverCall, OverNode, RowFrame, TemporalJoinNode
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode

ROW = "k string, id bigint, at bigint, v bigint"


class Weighted(ArrowAggregateFunction):
    """The sum of the values, each as often as its number says, and how many there were."""

    accumulator = "total bigint, n bigint"
    columns = ("id", "v")

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        product = rows["id"].to_numpy() * rows["v"].to_numpy()
        return {"total": _added(product, groups, count), "n": np.bincount(groups, minlength=count)}

    def merge(self, accumulators: Any, groups: Any, count: int) -> Any:
        return {name: _added(accumulators[name].to_numpy(), groups, count) for name in ("total", "n")}

    def result(self, accumulators: Any) -> Any:
        return {name: accumulators[name] for name in ("total", "n")}


def _added(values: Any, groups: Any, count: int) -> Any:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, values)
    return sums


job = Job(
    "crash-columns",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    parallelism=int(environ.get("CRASH_TASKS", "2")),
    runtime_mode="streaming",  # every change comes out, so that state which was lost or counted twice shows at once
)
# One file a checkpoint, however often it is planned: what comes out does not depend on where a life ended.
rows = job.from_source(
    FileSource(
        environ["CRASH_IN"],
        format="json",
        schema=ROW,
        max_files_per_checkpoint=1,
        **({"watch": True, "discover_every": "200 ms"} if environ.get("CRASH_WATCH") == "1" else {}),
    ),
    WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="at"),
    name="rows",
)
keyed = rows.key_by("k")
rolling = (
    RollingPolicy(on_checkpoint=True) if environ.get("CRASH_EACH") == "1" else RollingPolicy(every="1 h", size="2 KB")
)


def into(stream: DataStream, name: str) -> None:
    stream.sink_to(FileSink(f"{environ['CRASH_OUT']}/{name}", format="json", rolling=rolling), name=f"{name}-out")


sums = ("count(*) as n", "sum(v) as total", "min(id) as least", "max(id) as most")
in_order = ("first(id) as head", "last(id) as tail", "collect_list(id) as ids", "min_by(id, v) as cheapest")
sessions = (
    keyed.window(EventTimeSessionWindows("500 ms"))
    .side_output_late_data("late")
    .aggregate(*sums, *in_order, name="sessions")
)
into(sessions, "sessions")
into(sessions.side_output("late"), "sessions-late")
sliding = (
    keyed.window(SlidingEventTimeWindows("10 s", "2500 ms"))
    .allowed_lateness("4 s")
    .side_output_late_data("late")
    .aggregate(*sums, *in_order, "count(distinct v) as values", name="sliding")
)
into(sliding, "sliding")
into(sliding.side_output("late"), "sliding-late")
into(
    keyed.window(CumulativeEventTimeWindows("5 s", "20 s")).aggregate(*sums, *in_order, name="cumulative"),
    "cumulative",
)
again = (
    keyed.window(TumblingEventTimeWindows("10 s"))
    .allowed_lateness("15 s")
    .aggregate("first(id) as head", "collect_list(id) as ids", "min_by(id, v) as cheapest", name="again")
)
into(again, "again")
into(
    keyed.window(TumblingEventTimeWindows("10 s")).aggregate(Weighted(), schema="total bigint, n bigint", name="own"),
    "own",
)
into(keyed.count_window(7).aggregate(*sums, "first(id) as head", "last(id) as tail", name="counted"), "counted")
into(keyed.count_window(9, 6).aggregate(*sums, "first(id) as head", "last(id) as tail", name="slid"), "slid")
emptied = keyed.window(SlidingEventTimeWindows("4 s", "5 s")).trigger(PurgingTrigger(EventTimeTrigger()))
into(emptied.allowed_lateness("15 s").aggregate(*sums, name="emptied"), "emptied")
into(rows.key_by("k", "v").deduplicate(order="event_time", name="first"), "first")
into(rows.key_by("k", "v").deduplicate("last", order="event_time", update_before=True, name="last"), "last")
into(keyed.top_n(3, ["v desc", "id"], rank="place", update_before=True, name="highest"), "highest")
into(keyed.sum("v", name="added"), "added")
into(keyed.max_by("v", name="greatest"), "greatest")
pair = ("left.k", "left.id", "right.id as other")
near = (
    keyed.interval_join(rows.key_by("k"))
    .between("-3 s", "-1 ms")
    .side_output_left_late_data("late")
    .select(*pair, name="near")
)
into(near, "near")
into(near.side_output("late"), "near-late")
paired = rows.join(rows).where("k").equal_to("k").window(TumblingEventTimeWindows("2 s")).select(*pair, name="paired")
into(paired, "paired")

# As SQL has them: aggregates of groups, aggregates of those, a join with their changes, places of them, and joins by event time.
number = pa.int64()
groups = rows.then(
    GroupAggregateNode(
        "groups",
        [rows.node],
        [["k"]],
        [None],
        None,
        {},
        [
            AggregateCall(function="sum", column="v", name="total", type=number),
            AggregateCall(function="max", column="id", name="most", type=number),
            AggregateCall(function="count", column="v", distinct=True, name="values", type=number),
        ],
    )
)
into(groups, "groups")
of_groups = [
    AggregateCall(function="min", column="total", name="least", type=number),
    AggregateCall(function="last_value", column="most", name="newest", type=number),
    AggregateCall(function="array_agg", column="values", name="all", type=pa.list_(number)),
]
into(
    rows.then(GroupAggregateNode("regrouped", [groups.node], [["most % 3"]], [None], None, {}, of_groups)), "regrouped"
)
renamed = groups.select("k AS group", "most", "row_kind")
nodes = [rows.node, renamed.node]
into(
    rows.then(RegularJoinNode("newest", nodes, [["k", "id"], ["group", "most"]], [None, None], None, {}, kind="left")),
    "newest",
)


def over(name: str, order: str, by: Any, *calls: OverCall) -> None:
    order_by = [SortColumn(order), *([SortColumn("id")] if by == "any" else [])]
    into(rows.then(OverNode(name, [rows.node], [["k"]], [None], None, {}, order=order_by, by=by, calls=calls)), name)


def total(frame: RowFrame) -> OverCall:
    return OverCall(function="sum", column="v", name="total", type=number, frame=frame)


over("framed", "event_time", "event_time", total(RowFrame("rows", 3)))
over("spanned", "event_time", "event_time", total(RowFrame("range", 6_000)))
before = OverCall(function="lag", column="id", name="before", type=number, offset=2)
values = OverCall(function="count", column="v", distinct=True, name="values", type=number)
over("running", "event_time", "event_time", total(RowFrame("rows", None)), before, values)
over("placed", "v", "any", OverCall(function="row_number", name="place", type=number))
versions = rows.select("k AS key", "event_time AS since", "id AS version")
nodes = [rows.node, versions.node]
times = ("event_time", "since")
into(
    rows.then(TemporalJoinNode("versioned", nodes, [["k"], ["key"]], [None, None], None, {}, times=times, kind="left")),
    "versioned",
)
by_total = [SortColumn("total", descending=True), SortColumn("k")]
places = {"last": 5, "first": 2, "rank": "place"}
into(
    groups.then(ChangelogTopNNode("ranked", [groups.node], [[]], [None], None, {}, order_by=by_total, **places)),
    "ranked",
)


def smaller(pairs: pa.RecordBatch) -> pa.Array:
    """What holds of a pair of rows of a join in intervals."""
    return pc.less(pairs.column("v"), pairs.column("value"))


end = "timestamp_millis((at div 2000 + 1) * 2000 - 1)"
timed = rows.select("k", "id", "v", "event_time", f"{end} AS ends")
others = timed.select("k AS key", "id AS other", "v AS value", "event_time AS time", "ends AS ended")
sides = [timed.node, others.node]
awaited = SqlIntervalJoinNode(
    "awaited",
    sides,
    [["k"], ["key"]],
    ["event_time", "time"],
    None,
    {},
    kind="full",
    lower_ms=-1_000,
    upper_ms=500,
    condition=smaller,
)
into(timed.then(awaited), "awaited")
unpaired = SqlWindowJoinNode(
    "unpaired",
    sides,
    [["k", "ends", "v % 5"], ["key", "ended", "value % 3"]],
    ["ends", "ended"],
    None,
    {},
    kind="full",
)
into(timed.then(unpaired), "unpaired")
