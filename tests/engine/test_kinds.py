"""One step of every kind in one job of Spark: what comes out is what the harness says for the same records."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ArrowAggregateFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    CountTrigger,
    DataStream,
    DeltaEvictor,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FileSink,
    FileSource,
    GlobalWindows,
    Job,
    KeyedCoProcessFunction,
    MapStateDescriptor,
    ProcessFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    Side,
    SlidingEventTimeWindows,
    StateTtlConfig,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from poundlock.driver.driver import run
from poundlock.stream.functions.process import AggregateWindow
from poundlock.testing import Element, KeyedOperatorHarness, ProcessHarness, WindowHarness
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

BASE = 1_545_184_220_000
PAIR = "k string, n bigint, m bigint"
LIMITS = MapStateDescriptor("limits")


class Total(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0, 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        return [accumulator[0] + value["n"], accumulator[1] + 1]

    def get_result(self, accumulator: Any) -> Any:
        return {"n": accumulator[0], "m": accumulator[1]}

    def merge(self, a: Any, b: Any) -> Any:
        return [a[0] + b[0], a[1] + b[1]]


class Named(ProcessWindowFunction):
    """Adds the key, and the length of the window, to the one result."""

    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterator[Any]:
        (total,) = elements
        yield {"k": key, "n": total["n"], "m": context.window().end - context.window().start}


class Listed(ProcessWindowFunction):
    """The elements, with the number of the key's firing, and of the window's."""

    def process(self, key: Any, context: Any, elements: Sequence[Any]) -> Iterator[Any]:
        counts = [
            store.get_state(ValueStateDescriptor("firings", default=0))
            for store in (context.global_state(), context.window_state())
        ]
        for count in counts:
            count.update(count.value() + 1)
        yield {"k": key, "ns": [e["n"] for e in elements], "firings": [count.value() for count in counts]}

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("firings", default=0)).clear()


class Both(KeyedCoProcessFunction):
    """Each side adds to state of a kind of its own; a timer tells all of it at the end."""

    def open(self, context: Any) -> None:
        self.sum = context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        self.all = context.get_aggregating_state(AggregatingStateDescriptor("all", Total()))
        self.seen = context.get_map_state(MapStateDescriptor("seen", ttl=StateTtlConfig(ttl="1 h")))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.sum.add(value["n"])
        self.seen.put(value["n"] % 3, value["n"])
        ctx.timer_service().register_event_time_timer(BASE + 5_000)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.all.add(value)
        yield Side("second", {"k": ctx.get_current_key(), "n": self.sum.get(), "m": self.all.get()["m"]})

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield {"k": ctx.get_current_key(), "n": self.sum.get(), "m": sum(self.seen.values())}


class Told(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield {"k": value["k"], "n": value["n"], "m": ctx.timestamp() - BASE}

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield {"k": value["k"], "n": -value["n"], "m": ctx.timestamp() - BASE}


class Over(BroadcastProcessFunction):
    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(LIMITS).put(value["k"], value["n"])

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        limit = ctx.get_broadcast_state(LIMITS).get(value["k"])
        if limit is not None and value["n"] > limit:
            yield {"k": value["k"], "n": value["n"], "m": limit}


class Sorted(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        row = {"k": value["k"], "n": value["n"], "m": 0}
        yield Side("odd", row) if value["n"] % 2 else row


def pair(left: Any, right: Any) -> Any:
    return {"k": left["k"], "n": left["n"], "m": right["n"]}


def group(left: Any, right: Any) -> Any:
    return {"k": [*left, *right][0]["k"], "n": sum(e["n"] for e in left), "m": sum(e["n"] for e in right)}


def apart(old: Any, last: Any) -> float:
    return abs(float(last["n"] - old["n"]))


def gap(element: Any) -> int:
    return 200 + 10 * int(element["n"])


def add(a: Any, b: Any) -> Any:
    return {**a, "n": a["n"] + b["n"]}


def steps(a: DataStream, b: DataStream) -> dict[str, tuple[DataStream, KeyedOperatorHarness]]:
    """Return a stream of each kind, and the harness that runs its operator."""
    both = [a.key_by("k").connect(b.key_by("k")), a.connect(b), a.connect(b.broadcast(LIMITS))]
    named = {
        "near": a.key_by("k")
        .interval_join(b.key_by("k"))
        .between("-2 s", "1 s")
        .upper_bound_exclusive()
        .select("left.k", "left.n", "right.n as m", name="near"),
        "pairs": a.join(b)
        .where("k")
        .equal_to("k")
        .window(SlidingEventTimeWindows("4 s", "2 s"))
        .apply(pair, schema=PAIR, name="pairs"),
        "chosen": a.join(b)
        .where("k")
        .equal_to("k")
        .window(TumblingEventTimeWindows("3 s"))
        .select("left.k", "left.n", "right.n as m", name="chosen"),
        "doubled": a.join(b)
        .where("k")
        .equal_to("k")
        .window(EventTimeSessionWindows("400 ms"))
        .select("left.k", "left.n", "right.n + 0 as m", name="doubled"),
        "groups": a.co_group(b)
        .where("k")
        .equal_to("k")
        .window(EventTimeSessionWindows("500 ms"))
        .apply(group, schema=PAIR, name="groups"),
        "both": both[0].process(Both(), schema=PAIR, side_outputs={"second": PAIR}, name="both"),
        "told": both[1].process(Told(), schema=PAIR, name="told"),
        "over": both[2].process(Over(), schema=PAIR, name="over"),
        "sorted": a.process(Sorted(), schema=PAIR, side_outputs={"odd": PAIR}, name="sorted"),
        "most": a.key_by("k").max_by("n", name="most"),
        "reduced": a.key_by("k").reduce(add, name="reduced"),
        "opened": a.key_by("k").deduplicate(name="opened"),
        "earliest": a.key_by("k").deduplicate(order="event_time", name="earliest"),
        "latest": a.key_by("k").deduplicate("last", order="event_time", name="latest"),
        "highest": a.key_by("k").top_n(3, ["n desc", "at"], rank="place", name="highest"),
    }
    found: dict[str, tuple[DataStream, KeyedOperatorHarness]] = {
        name: (stream, ProcessHarness(stream, bounded=True)) for name, stream in named.items()
    }
    listed = "k string, ns array<bigint>, firings array<bigint>"
    trigger, evictor = PurgingTrigger(CountTrigger(5)), DeltaEvictor(60, apart)
    tumbling, dynamic = TumblingEventTimeWindows("10 s"), DynamicEventTimeSessionWindows(gap)
    fired = a.key_by("k").window(tumbling).trigger(trigger).evictor(evictor)
    sessions = a.key_by("k").window(dynamic)
    counted = a.key_by("k").count_window(4, 2)
    whole = a.union(b, name="all").key_by("k").window(GlobalWindows(at_end=True))
    found["fired"] = (
        fired.process(Listed(), schema=listed, name="fired"),
        WindowHarness(tumbling, Listed(), key="k", trigger=trigger, evictor=evictor),
    )
    found["counted"] = (
        counted.process(Listed(), schema=listed, name="counted"),
        WindowHarness(counted.assigner, Listed(), key="k"),
    )
    found["dynamic"] = (
        sessions.aggregate(Total(), process=Named(), schema=PAIR, name="dynamic"),
        WindowHarness(dynamic, AggregateWindow(Total(), Named()), key="k"),
    )
    found["whole"] = whole.reduce(add, name="whole"), WindowHarness(whole.assigner, add, key="k")
    return found


def shown(value: Any) -> str:
    """Return a row, or a pair of an interval join, without what is only there in Spark."""
    if isinstance(value, tuple):
        value = pair(*value)
    return json.dumps({name: value[name] for name in value if name not in ("at", "event_time")}, sort_keys=True)


def visible(folder: Path) -> Counter[str]:
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return Counter(shown(json.loads(line)) for path in files for line in path.read_text().splitlines())


def test_every_kind_of_step_gives_what_its_harness_gives(tmp_path: Path) -> None:
    made, given = random.Random(11), []
    for number in range(2):
        sides = []
        for name in "ab":
            rows = [
                {"k": made.choice("xyz"), "n": made.randrange(100), "at": BASE + made.randrange(12_000)}
                for _ in range(24)
            ]
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            sides.append(rows)
        given.append(sides)
    job = Job("kinds", checkpoint_interval="0 s", on_error="fail", parallelism=1, max_parallelism=4)
    # Nothing is late and only the end fires: the border of two checkpoints is not to be seen in what comes out.
    strategy = WatermarkStrategy.bounded_out_of_orderness("1 h", timestamp="at")
    a, b = (
        job.from_source(
            FileSource(
                str(tmp_path / name), format="json", schema="k string, n bigint, at bigint", max_files_per_checkpoint=1
            ),
            strategy,
            name=name,
        )
        for name in "ab"
    )
    found = steps(a, b)
    for name, (stream, _) in found.items():
        stream.sink_to(FileSink(str(tmp_path / "out" / name), format="json"), name=f"{name}-out")
    sides_of = {"both": "second", "sorted": "odd"}
    for name, tag in sides_of.items():
        found[name][0].side_output(tag).sink_to(FileSink(str(tmp_path / "out" / tag), format="json"), name=f"{tag}-out")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"

    two = {"near", "pairs", "chosen", "doubled", "groups", "both", "told", "over", "whole"}
    for name, (_, h) in found.items():
        for files in given:
            order = [1, 0] if name == "over" else [0, 1]  # rules hold for the rows that come with them
            for side in order if name in two else [0]:
                at = 0 if name == "whole" else side
                h.process_elements([Element(dict(row), row["at"], at) for row in files[side]])
        h.end_of_input()
        wanted = Counter(shown(row.value) for row in h.output)
        assert wanted, name
        assert visible(tmp_path / "out" / name) == wanted, name
    for name, tag in sides_of.items():
        wanted = Counter(shown(row.value) for row in found[name][1].side_output(tag))
        assert wanted, tag
        assert visible(tmp_path / "out" / tag) == wanted, tag
    for _, h in found.values():
        h.close()


class Greatest(ArrowAggregateFunction):
    accumulator = "most bigint"
    columns = ("n",)

    def accumulate(self, rows: pa.RecordBatch, groups: Any, count: int) -> Any:
        most = np.full(count, -1)
        np.maximum.at(most, groups, rows.column(0).to_numpy())
        return {"most": most}

    def merge(self, accumulators: pa.RecordBatch, groups: Any, count: int) -> Any:
        return self.accumulate(accumulators, groups, count)

    def result(self, accumulators: pa.RecordBatch) -> Any:
        return accumulators


def test_changes_come_out_of_a_streaming_job_as_they_happen(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, rows in enumerate([[("x", 1), ("y", 5), ("x", 3)], [("x", 2), ("y", 4)]]):
        (tmp_path / "in" / f"{number}.csv").write_text("".join(f"{key},{n}\n" for key, n in rows))
    job = Job(
        "changes",
        checkpoint_interval="0 s",
        on_error="fail",
        parallelism=1,
        max_parallelism=2,
        runtime_mode="streaming",
    )
    source = FileSource(str(tmp_path / "in"), format="csv", schema="k string, n bigint", max_files_per_checkpoint=1)
    rows = job.from_source(source, name="in").key_by("k")
    made = {
        "last": rows.deduplicate("last", update_before=True, name="last"),
        "first": rows.deduplicate(name="first"),
        "top": rows.top_n(1, "n desc", name="top"),
        "pairs": rows.count_window(2).aggregate("count(*) as n", "max(n) as most", name="pairs"),
        "sliding": rows.count_window(2, 1).aggregate("count(*) as n", "max(n) as most", name="sliding"),
        "own": rows.count_window(2).aggregate(Greatest(), schema="most bigint", name="own"),
    }
    for name, stream in made.items():
        stream.sink_to(FileSink(str(tmp_path / name), format="json"), name=f"{name}-out")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"

    def came(name: str, *columns: str) -> list[list[Any]]:
        return sorted(
            [json.loads(row).get(column) for column in columns] for row in visible(tmp_path / name).elements()
        )

    assert came("first", "k", "n") == [["x", 1], ["y", 5]]
    assert came("last", "k", "n", "row_kind") == [
        ["x", 1, "+I"],
        ["x", 1, "-U"],
        ["x", 2, "+U"],
        ["x", 3, "+U"],
        ["x", 3, "-U"],
        ["y", 4, "+U"],
        ["y", 5, "+I"],
        ["y", 5, "-U"],
    ]
    assert came("top", "k", "n", "row_kind") == [["x", 1, "+I"], ["x", 1, "-D"], ["x", 3, "+I"], ["y", 5, "+I"]]
    assert came("pairs", "k", "n", "most", "window_start") == [["x", 2, 3, None], ["y", 2, 5, None]]
    assert came("sliding", "k", "n", "most") == [["x", 1, 1], ["x", 2, 3], ["x", 2, 3], ["y", 1, 5], ["y", 2, 5]]
    assert came("own", "k", "most") == [["x", 3], ["y", 5]]


@pytest.mark.parametrize(
    ("mode", "wanted"), [("automatic", [7, 30]), ("batch", [7, 30]), ("streaming", [1, 3, 7, 10, 30])]
)
def test_a_rolling_sum_over_what_ends_is_given_at_the_end_or_for_each_record(
    tmp_path: Path, mode: Any, wanted: list[int]
) -> None:
    (tmp_path / "in").mkdir()
    rows = [("x", 1), ("y", 10), ("x", 2), ("y", 20), ("x", 4)]
    (tmp_path / "in" / "rows.csv").write_text("".join(f"{key},{number}\n" for key, number in rows))
    job = Job(
        "rolling", checkpoint_interval="0 s", on_error="fail", parallelism=1, max_parallelism=2, runtime_mode=mode
    )
    source = FileSource(str(tmp_path / "in"), format="csv", schema="k string, n bigint")
    sums = job.from_source(source, name="in").key_by("k").sum("n", name="sums")
    sums.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    assert sorted(json.loads(row)["n"] for row in visible(tmp_path / "out").elements()) == wanted


def test_rows_in_gaps_and_rows_of_windows_that_a_trigger_emptied(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, times in enumerate([[0, 1_000, 3_000, 12_000], [500, 3_500, 13_000]]):
        lines = [json.dumps({"k": "a", "at": BASE + time}) + "\n" for time in times]
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(lines))
    job = Job("behind", checkpoint_interval="0 s", on_error="fail", parallelism=2, max_parallelism=4)
    source = FileSource(str(tmp_path / "in"), format="json", schema="k string, at bigint", max_files_per_checkpoint=1)
    rows = job.from_source(source, WatermarkStrategy.bounded_out_of_orderness("1 ms", timestamp="at"), name="in")
    keyed = rows.key_by("k")
    gaps = keyed.window(SlidingEventTimeWindows("2 s", "5 s")).side_output_late_data("late")
    purged = keyed.window(TumblingEventTimeWindows("10 s")).trigger(PurgingTrigger(EventTimeTrigger()))
    gapped = gaps.aggregate("count(*) as n", name="gapped")
    streams = {
        "gapped": gapped,
        "late": gapped.side_output("late"),
        "purged": purged.allowed_lateness("1 min").aggregate("count(*) as n", "max(k) as k2", name="purged"),
    }
    for name, stream in streams.items():
        stream.sink_to(FileSink(str(tmp_path / name), format="json"), name=f"{name}-out")
    assert job.explain().count("by columns") == 2
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"

    def came(name: str, column: str) -> list[int]:
        lines = (
            line for path in (tmp_path / name).rglob("*") if path.is_file() for line in path.read_text().splitlines()
        )
        return sorted(json.loads(line)[column] for line in lines)

    assert came("gapped", "n") == [2]
    assert came("late", "at") == [BASE + 500, BASE + 3_500]
    assert came("purged", "n") == [1, 1, 2, 3]
