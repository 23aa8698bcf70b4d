"""Event time of a job by streams: each has a watermark of its own, the same in the driver and in every task."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DefinitionError, TerminalError, WatermarkStrategy
from poundlock.operators.stream_times import Advanced, StreamTimes, merged, require_agreement
from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import (
    MAX,
    MIN,
    SUMMARY,
    UNKNOWN,
    DecidedTime,
    GeneratorReport,
    SourceInput,
    SplitTimes,
    StreamHolder,
    TimeDirective,
    TimeState,
    renamed_state,
)
from support.examples import examples
from support.job_watermarks import JobWatermarks, SourceSeen
from support.partition_watermarks import Seen

STRATEGY = WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=5), timestamp="ts")
IDLE = STRATEGY.with_idleness("20 ms")


class Played:
    """A job's event time from checkpoint to checkpoint; each state goes through JSON, as the ledger has it."""

    def __init__(self, *nodes: TimeNode, partitions: Mapping[str, Iterable[str]] | None = None) -> None:
        self.times = StreamTimes(pickle.loads(pickle.dumps(TimeGraph(nodes))))
        self.partitions = {name: tuple(each) for name, each in (partitions or {}).items()}
        self.state = self.times.initial()
        self.now = 0
        self.last: Advanced | None = None

    def checkpoint(self, rows: Mapping[tuple[str, str], int], ended: Iterable[str] = (), **how: Any) -> Advanced:
        """Take a checkpoint: the greatest event time by source and partition, at the first assigner above the source."""
        reports = [
            SplitTimes(node.id, source, partition, 0, greatest, 1)
            for (source, partition), greatest in rows.items()
            for node in self.times.graph.assigners
            if source in node.sources
        ]
        return self.advance(reports, ended, **how)

    def advance(self, reports: Iterable[SplitTimes] = (), ended: Iterable[str] = (), **how: Any) -> Advanced:
        done = set(ended)
        inputs = {
            node.id: SourceInput(self.partitions.get(node.id), node.id in done)
            for node in self.times.graph.nodes
            if node.is_source
        }
        directive = self.times.directive(self.state, self.now, inputs, **how)
        again = msgspec.json.decode(msgspec.json.encode(directive), type=type(directive))
        self.last = self.times.advance(again, reports)
        self.state = msgspec.json.decode(msgspec.json.encode(self.last.state), type=TimeState)
        assert self.state == self.last.state
        return self.last

    def resume(self) -> None:
        self.state = self.times.resume(self.state)

    def of(self, stream: str) -> int:
        assert self.last is not None
        return self.last.watermarks[stream].after


def source(name: str) -> TimeNode:
    return TimeNode(name, ())


def assigner(name: str, *sources: str, strategy: WatermarkStrategy = STRATEGY) -> TimeNode:
    return TimeNode(name, sources, strategy, sources, kept=True)


def keyed(name: str, *inputs: str) -> TimeNode:
    return TimeNode(name, inputs, kept=True)


def two_streams(**how: Any) -> Played:
    return Played(
        source("fast"),
        source("slow"),
        assigner("fast-time", "fast", **how),
        assigner("slow-time", "slow", **how),
        keyed("fast-counts", "fast-time"),
        keyed("slow-counts", "slow-time"),
        keyed("join", "fast-time", "slow-time"),
        partitions={"fast": ["f0", "f1"], "slow": ["s0"]},
    )


def test_an_unrelated_slow_source_holds_nothing_back() -> None:
    job = two_streams()
    first = job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900, ("slow", "s0"): 100})
    assert (job.of("fast-counts"), job.of("slow-counts"), job.of("join")) == (894, 94, 94)
    assert first.watermarks["fast-counts"].held_by == StreamHolder("fast", "f1")
    assert str(first.watermarks["join"].held_by) == "s0 of slow"
    slowest = first.slowest(["fast-counts", "join", "slow-counts"])
    assert slowest is not None
    assert slowest.after == 94


def test_rows_are_judged_by_the_watermark_before_and_windows_close_by_the_one_behind_them() -> None:
    job = two_streams()
    first = job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900})
    assert (first.watermarks["fast-counts"].before, first.watermarks["fast-counts"].after) == (MIN, 894)
    second = job.checkpoint({("fast", "f1"): 2000})
    assert (second.watermarks["fast-counts"].before, second.watermarks["fast-counts"].after) == (894, 994)
    assert job.state.streams["fast-counts"].before == 894


def test_a_step_that_holds_back_stays_so_far_behind_until_the_end() -> None:
    behind = TimeNode("behind", ("join",), kept=True, behind_ms=100)
    job = Played(source("a"), assigner("w", "a"), keyed("join", "w"), behind, keyed("windows", "behind"))
    advanced = job.checkpoint({("a", "p"): 1_000})
    wanted = advanced.watermarks["join"].after - 100
    assert advanced.watermarks["windows"].before == MIN
    assert advanced.watermarks["windows"].after == wanted
    job.resume()
    advanced = job.checkpoint({("a", "p"): 1_010})
    assert (advanced.watermarks["windows"].before, advanced.watermarks["windows"].after) == (wanted, wanted + 10)
    advanced = job.checkpoint({("a", "p"): 1_020}, ended=["a"])
    assert advanced.watermarks["windows"].after == MAX
    job.resume()
    assert job.checkpoint({("a", "p"): 1_020}).watermarks["windows"].before == wanted + 20


def test_a_union_waits_for_the_least_of_its_active_inputs() -> None:
    job = Played(
        source("a"),
        source("b"),
        assigner("ta", "a", strategy=IDLE),
        assigner("tb", "b", strategy=IDLE),
        TimeNode("union", ("ta", "tb"), kept=True),
        TimeNode("mapped", ("union",)),
        keyed("counts", "mapped"),
        partitions={"a": ["p"], "b": ["p"]},
    )
    job.checkpoint({("a", "p"): 1000, ("b", "p"): 100})
    assert job.of("counts") == job.of("mapped") == 94
    job.checkpoint({("a", "p"): 1100})
    job.now = 21
    job.checkpoint({("a", "p"): 1200})
    assert job.of("counts") == 1194
    assert job.last is not None
    assert job.last.watermarks["tb"].idle
    job.checkpoint({("b", "p"): 500})
    assert job.of("counts") == 1194, "b is behind, and counts again once it has caught up"
    job.checkpoint({("b", "p"): 1300})
    assert job.of("counts") == 1194
    job.checkpoint({("a", "p"): 1400})
    assert job.of("counts") == 1294


def test_rows_without_event_time_hold_nothing_back_and_still_keep_the_end_away() -> None:
    job = Played(
        source("events"),
        source("rules"),
        assigner("time", "events"),
        keyed("process", "time", "rules"),
        keyed("untimed", "rules"),
        partitions={"rules": ["r"]},
    )
    job.checkpoint({("events", "file"): 100}, ended=["events"])
    assert (job.of("time"), job.of("process"), job.of("untimed")) == (MAX, 94, MIN)
    job.checkpoint({}, ended=["events"])
    assert job.of("process") == 94
    job.checkpoint({}, ended=["events", "rules"])
    assert (job.of("process"), job.of("untimed")) == (MAX, MAX)


def test_a_stream_ends_when_its_own_sources_have() -> None:
    job = two_streams()
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900, ("slow", "s0"): 100}, ended=["fast"])
    assert (job.of("fast-counts"), job.of("slow-counts"), job.of("join")) == (MAX, 94, 94)
    job.checkpoint({("slow", "s0"): 3000}, ended=["fast"])
    assert job.of("join") == 2994, "what has ended holds nobody back"
    job.checkpoint({}, drain=True)
    assert (job.of("fast-counts"), job.of("slow-counts"), job.of("join")) == (MAX, MAX, MAX)
    assert job.last is not None
    assert (job.last.slowest(["join"]), job.last.slowest([])) == (job.last.watermarks["join"], None)
    assert job.last.watermarks["join"].held_by is None


def test_behind_the_end_a_start_goes_on_with_the_watermark_before_it() -> None:
    job = two_streams()
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900, ("slow", "s0"): 100}, drain=True)
    assert job.of("join") == MAX
    job.checkpoint({}, drain=True)
    assert job.state.streams["fast-counts"].before_end == 894
    job.resume()
    assert {name: each.watermark for name, each in job.state.streams.items()} == {
        "fast-time": 894,
        "slow-time": 94,
        "fast-counts": 894,
        "slow-counts": 94,
        "join": 94,
    }
    job.checkpoint({("fast", "f0"): 5000, ("fast", "f1"): 5000})
    assert (job.of("fast-counts"), job.of("join")) == (4994, 94)


def test_a_second_assigner_goes_by_its_own_rows_and_ends_with_its_input() -> None:
    behind = TimeNode("again", ("counts",), STRATEGY, (UNKNOWN,), kept=True)
    job = Played(source("in"), assigner("time", "in"), keyed("counts", "time"), behind, keyed("second", "again"))
    first = SplitTimes("time", "in", "file", 0, 1000, 10)
    later = [SplitTimes("again", UNKNOWN, UNKNOWN, task, 500 + task, 2) for task in range(3)]
    job.advance([first, *later])
    assert (job.of("counts"), job.of("second")) == (994, 496)
    job.checkpoint({}, ended=["in"])
    assert (job.of("counts"), job.of("second")) == (MAX, MAX)


def test_the_clock_gives_a_watermark_and_never_goes_back() -> None:
    ingestion, processing = WatermarkStrategy.ingestion_time(), WatermarkStrategy.processing_time()
    job = Played(
        source("in"), assigner("i", "in", strategy=ingestion), assigner("p", "in", strategy=processing), keyed("k", "p")
    )
    job.now = 1000
    job.advance()
    assert (job.of("i"), job.of("k")) == (999, 999)
    job.now = 400
    job.advance()
    assert job.state.clock == 1000
    job.now = 1500
    job.advance(drain=True)
    assert (job.of("i"), job.of("k")) == (MAX, 1499), "open windows of processing time are not fired at the end"
    assert job.last is not None
    assert job.last.watermarks["k"].ended


def test_a_source_that_fell_silent_is_left_out_and_a_start_counts_again() -> None:
    job = two_streams(strategy=IDLE)
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900, ("slow", "s0"): 100})
    job.now = 5
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900})
    job.now = 25
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900})
    assert job.of("join") == 94, "not for longer than the timeout yet"
    job.resume()
    job.now = 26
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900})
    assert job.of("join") == 94, "a start counts again"
    job.now = 47
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900})
    assert job.of("join") == 894


def test_a_step_that_was_put_in_later_goes_on_from_what_its_streams_have() -> None:
    job = two_streams()
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900, ("slow", "s0"): 100})
    more = StreamTimes(TimeGraph((*job.times.graph.nodes, keyed("new", "fast-time"))))
    after = more.advance(more.directive(more.resume(job.state), 0, {}), ())
    assert after.watermarks["fast-counts"].before == 894
    assert (after.watermarks["new"].before, after.watermarks["new"].after) == (MIN, 894)


def test_steps_and_sources_with_new_names_go_on_from_what_they_had() -> None:
    job = two_streams(strategy=IDLE)
    job.checkpoint({("fast", "f0"): 1000, ("fast", "f1"): 900, ("slow", "s0"): 100})
    names = {"fast": "clicks", "fast-time": "clicks-time", "join": "joined"}
    new = Played(
        source("clicks"),
        source("slow"),
        assigner("clicks-time", "clicks", strategy=IDLE),
        assigner("slow-time", "slow", strategy=IDLE),
        keyed("joined", "clicks-time", "slow-time"),
        partitions={"clicks": ["f0", "f1"], "slow": ["s0"]},
    )
    new.state = renamed_state(job.state, names)
    new.checkpoint({("slow", "s0"): 5000})
    assert new.last is not None
    assert (new.last.watermarks["joined"].before, new.of("joined"), new.of("clicks-time")) == (94, 894, 894)


# --- any order, any process -----------------------------------------------------------------------------------------------

REPORTS = st.lists(
    st.tuples(st.sampled_from(["f0", "f1", "s0"]), st.integers(0, 3), st.integers(-100, 1000), st.integers(1, 5)),
    unique_by=lambda each: each[:2],
    max_size=8,
)


def reports_of(drawn: Iterable[tuple[str, int, int, int]]) -> list[SplitTimes]:
    names = {"f0": "fast", "f1": "fast", "s0": "slow"}
    return [SplitTimes(f"{names[p]}-time", names[p], p, n, at, rows) for p, n, at, rows in drawn]


@examples(60)
@given(st.lists(REPORTS, min_size=1, max_size=6), st.randoms(use_true_random=False), st.booleans())
def test_a_task_comes_to_what_the_driver_comes_to(checkpoints: list[Any], random: Any, by_summary: bool) -> None:
    driver = two_streams(strategy=IDLE)
    for number, drawn in enumerate(checkpoints):
        driver.now = number * 7
        inputs = {"fast": SourceInput(("f0", "f1")), "slow": SourceInput(("s0",))}
        directive = driver.times.directive(driver.state, driver.now, inputs)
        arrived = reports_of(drawn)
        here = merged(arrived) * 2 + arrived[:2] if by_summary else arrived + arrived[:3]
        random.shuffle(here)
        in_task = driver.times.advance(directive, here)
        decided = driver.advance(arrived)
        assert in_task == decided
        require_agreement(decided, [in_task.used(["fast-counts", "join"])])


@st.composite
def graphs(draw: st.DrawFn) -> TimeGraph:
    """A job of a few sources, some without event time, whose streams are united, joined and windowed at random."""
    nodes = [source("a"), source("b"), source("c")]
    for name in draw(st.sets(st.sampled_from("abc"), min_size=1)):
        nodes.append(assigner(f"time-{name}", name, strategy=draw(st.sampled_from([STRATEGY, IDLE]))))
    for number in range(draw(st.integers(1, 5))):
        known = st.sampled_from([node.id for node in nodes])
        inputs = tuple(draw(st.lists(known, min_size=1, max_size=3, unique=True)))
        nodes.append(TimeNode(f"s{number}", inputs, kept=len(inputs) > 1 or draw(st.booleans())))
    return TimeGraph(tuple(nodes))


def upstream(graph: TimeGraph, name: str) -> set[str]:
    (node,) = (each for each in graph.nodes if each.id == name)
    return {name}.union(*(upstream(graph, each) for each in node.inputs))


CHECKPOINTS = st.lists(
    st.tuples(
        st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("pq")), st.integers(0, 1000), max_size=4),
        st.integers(0, 30),
    ),
    max_size=8,
)


@examples(120)
@given(graphs(), CHECKPOINTS, st.sampled_from("abc"), st.sets(st.sampled_from("abc")), st.integers(0, 8))
def test_a_stream_depends_on_its_own_sources_and_never_goes_back(
    graph: TimeGraph, checkpoints: list[Any], left_out: str, ending: set[str], end_at: int
) -> None:
    both = [Played(*graph.nodes, partitions={name: ["p", "q"] for name in "ab"}) for _ in range(2)]
    for number, (rows, later) in enumerate(checkpoints):
        ended = ending if number >= end_at else set()
        for job, leaves_out in zip(both, (False, True), strict=True):
            job.now += later
            there = {k: v for k, v in rows.items() if not (leaves_out and k[0] == left_out)}
            job.checkpoint({k: v for k, v in there.items() if k[0] not in ended}, ended)
        whole, partly = (job.last for job in both)
        assert whole is not None
        assert partly is not None
        for node in graph.nodes:
            each = whole.watermarks[node.id]
            assert each.after >= each.before
            above = upstream(graph, node.id)
            if left_out not in above:
                assert each == partly.watermarks[node.id]
            if not node.is_source:
                assert each.ended == all(name in ended for name in "abc" if name in above)
                assert (each.after == MAX) == each.ended


def test_another_result_is_refused() -> None:
    job = two_streams()
    one = job.checkpoint({("slow", "s0"): 10})
    two = job.checkpoint({("slow", "s0"): 20})
    require_agreement(two, [two.used(["slow-counts"]), one.used(["fast-counts"]), two.used([])])
    with pytest.raises(
        TerminalError, match=r"slow-counts: a task came to the watermark 4, and the driver to 14\nNext: have"
    ):
        require_agreement(two, [two.used(["fast-counts"]), one.used(["slow-counts", "fast-counts"])])


PARTITIONS = ("p0", "p1", "p2")
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(PARTITIONS), st.integers(-100, 1000), max_size=3),
        st.integers(0, 30),
        st.booleans(),
    ),
    max_size=20,
)


@examples(150)
@given(STEPS, st.booleans(), st.booleans())
def test_one_stream_has_the_watermark_that_a_job_of_one_stream_had(
    steps: list[Any], in_splits: bool, idleness: bool
) -> None:
    """The first edition's watermark of a whole job, for what it was right for: a job of one stream."""
    strategy = IDLE if idleness else STRATEGY
    whole = JobWatermarks({"a": strategy, "b": strategy})
    by_stream = Played(
        source("a"),
        source("b"),
        assigner("ta", "a", strategy=strategy),
        assigner("tb", "b", strategy=strategy),
        TimeNode("union", ("ta", "tb"), kept=True),
        partitions={} if in_splits else {"a": PARTITIONS, "b": PARTITIONS},
    )
    there = None if in_splits else PARTITIONS
    for rows, later, ended in steps:
        by_stream.now += later
        a = {n: at for n, at in rows.items() if at % 2}
        b = {n: at for n, at in rows.items() if not at % 2}
        old = whole.checkpoint(
            {
                "a": SourceSeen({n: Seen(at) for n, at in a.items()}, there, ended and by_stream.now > 100),
                "b": SourceSeen({n: Seen(at) for n, at in b.items()}, there),
            },
            by_stream.now,
        )
        new = by_stream.checkpoint(
            {("a", n): at for n, at in a.items()} | {("b", n): at for n, at in b.items()},
            ended=["a"] if ended and by_stream.now > 100 else [],
        )
        assert new.watermarks["union"].after == old


# --- generators -----------------------------------------------------------------------------------------------------------


class Marks:
    """Emits the time of each record that says so."""

    def __init__(self) -> None:
        self.records = 0

    def on_record(self, record: dict[str, Any], timestamp: int, output: Any) -> None:
        self.records += 1
        if record["mark"]:
            output.emit_watermark(timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def test_what_a_generator_of_each_record_did_in_its_task_is_taken_over() -> None:
    strategy = WatermarkStrategy.for_generator(Marks, timestamp="ts", per_record=True)
    job = Played(source("in"), assigner("time", "in", strategy=strategy), partitions={"in": ["p", "q"]})
    assert job.times.graph.per_record_sources == {"in"}
    p = SplitTimes("time", "in", "p", 4, 900, 10, GeneratorReport(700, False, {"records": 10}))
    q = SplitTimes("time", "in", "q", 0, 950, 10, GeneratorReport(800, False, {"records": 3}))
    job.advance([p, q])
    assert job.of("time") == 700
    assert job.state.sources["time"]["in"].partitions["p"].generator == {"records": 10}
    job.advance([msgspec.structs.replace(p, generator=GeneratorReport(None, True, {"records": 11}))])
    assert job.of("time") == 800, "it marked p idle"
    job.advance()
    assert job.state.sources["time"]["in"].partitions["p"].generator == {"records": 11}
    with pytest.raises(TerminalError, match="two tasks read p of in, whose watermark generator looks at each record"):
        job.advance([p, msgspec.structs.replace(p, sequence=5)])


class Behind:
    """Follows at ten milliseconds; keeps what it has in attributes."""

    def __init__(self) -> None:
        self.greatest: int | None = None

    def on_event(self, timestamp: int, count: int, output: Any) -> None:
        self.greatest = timestamp

    def on_periodic_emit(self, output: Any) -> None:
        if self.greatest is not None:
            output.emit_watermark(self.greatest - 10)


def test_a_generator_without_a_snapshot_keeps_its_attributes() -> None:
    job = Played(source("in"), assigner("t", "in", strategy=WatermarkStrategy.for_generator(Behind, timestamp="ts")))
    job.partitions = {"in": ("p",)}
    job.checkpoint({("in", "p"): 100})
    assert (job.of("t"), job.state.sources["t"]["in"].partitions["p"].generator) == (90, {"greatest": 100})
    job.checkpoint({})
    assert job.of("t") == 90


class Odd(Behind):
    """Keeps a set, which JSON does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.times = {1, 2}


def test_a_generator_that_cannot_be_kept_says_what_it_needs() -> None:
    job = Played(source("in"), assigner("t", "in", strategy=WatermarkStrategy.for_generator(Odd, timestamp="ts")))
    job.partitions = {"in": ("p",)}
    with pytest.raises(DefinitionError, match=r"Odd keeps what is not plain JSON.*\nNext: write snapshot\(self\)"):
        job.checkpoint({("in", "p"): 100})


def test_a_generator_of_each_record_is_explained() -> None:
    text = WatermarkStrategy.for_generator(Marks, timestamp="ts", per_record=True).describe()
    assert text == "event time ts as event_time, watermarks of Marks, which sees each record"
    assert WatermarkStrategy.for_generator(Behind, timestamp="ts").describe().endswith("watermarks of Behind")


def test_a_generator_without_the_method_it_needs_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Behind has no method on_record\nNext: write on_record, or change per_"):
        WatermarkStrategy.for_generator(Behind, per_record=True)
    with pytest.raises(
        DefinitionError, match=r"Marks has no method on_event\nNext: write on_record\(self.* per_record"
    ):
        WatermarkStrategy.for_generator(Marks)


# --- the state ------------------------------------------------------------------------------------------------------------


def test_the_state_is_json_that_a_person_can_read() -> None:
    job = two_streams(strategy=IDLE)
    job.now = 7
    job.checkpoint({("fast", "f0"): 1000, ("slow", "s0"): 100})
    assert json.loads(msgspec.json.encode(job.state)) == {
        "clock": 7,
        "streams": {
            "fast-time": {},
            "slow-time": {"watermark": 94},
            "fast-counts": {},
            "slow-counts": {"watermark": 94},
            "join": {"channels": {"fast-time": {}, "slow-time": {"watermark": 94}}},
        },
        "sources": {
            "fast-time": {
                "fast": {
                    "held_by": "f1",
                    "partitions": {"f0": {"watermark": 994, "generator": 1000}, "f1": {"silent_since": 7}},
                }
            },
            "slow-time": {
                "slow": {"watermark": 94, "held_by": "s0", "partitions": {"s0": {"watermark": 94, "generator": 100}}}
            },
        },
    }


def test_event_time_of_another_version_or_damaged_is_refused() -> None:
    decided = DecidedTime(v=2, watermark=94, state=TimeState(), directive=TimeDirective(TimeState(), 1, {}))
    assert DecidedTime.from_json(json.loads(json.dumps(decided.to_json()))) == decided
    with pytest.raises(TerminalError, match="has format 3, and this version knows 2"):
        DecidedTime.from_json({**decided.to_json(), "v": 3})
    with pytest.raises(TerminalError, match="has format 2, and this version knows 1"):
        DecidedTime.from_json({**decided.to_json(), "state": {"v": 2}})
    with pytest.raises(ValueError, match=r"^state\.clock is not what it should be"):
        DecidedTime.from_json({**decided.to_json(), "state": {"clock": "x"}})


def test_a_summary_stands_for_all_reports_of_its_source() -> None:
    reports = reports_of([("f0", 0, 10, 2), ("f0", 1, 30, 3), ("f1", 0, 20, 1)])
    summary = merged(reports)
    assert [(r.partition, r.sequence, r.greatest, r.count) for r in summary] == [
        ("f0", SUMMARY, 30, 5),
        ("f1", SUMMARY, 20, 1),
    ]
    assert merged([*reports, *summary]) == summary
