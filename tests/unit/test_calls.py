"""A function that takes other arguments than it is called with is refused where it is given, in two lines."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest

from poundlock import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ArrowAggregateFunction,
    CoGroupFunction,
    CountTrigger,
    DatagenSource,
    DataStream,
    DefinitionError,
    DeltaEvictor,
    DeltaTrigger,
    DynamicEventTimeSessionWindows,
    FileSink,
    FileSource,
    Job,
    JoinFunction,
    KafkaSink,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    RichFunction,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TwoPhaseCommitSink,
    WatermarkStrategy,
    WindowAssigner,
)

MINUTE = TumblingEventTimeWindows("1 min")
NUMBER = "n bigint"


class WithOpen(RichFunction):
    def open(self, context: Any) -> None: ...  # type: ignore[override]

    def __call__(self, record: Any) -> Any:
        return record


class Elements(ProcessFunction):
    def process_element(self, value: Any) -> Any: ...  # type: ignore[override]


class OnlyAdds(AggregateFunction):
    def create_accumulator(self) -> Any: ...

    def add(self, value: Any, accumulator: Any) -> Any: ...


class Timers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any: ...

    def on_timer(self, timestamp: int) -> Any: ...  # type: ignore[override]


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any) -> Any: ...  # type: ignore[override]


class Joined(JoinFunction):
    def join(self, pair: Any) -> Any: ...  # type: ignore[override]


class Groups(CoGroupFunction):
    def co_group(self, key: Any, left: Any, right: Any) -> Any: ...  # type: ignore[override]


class Windows(ProcessWindowFunction):
    def process(self, key: Any, elements: Any) -> Any: ...  # type: ignore[override]


class Sums(AggregateFunction):
    def create_accumulator(self) -> Any: ...

    def add(self, accumulator: Any) -> Any: ...  # type: ignore[override]

    def get_result(self, accumulator: Any) -> Any: ...


class ArrowSums(ArrowAggregateFunction):
    accumulator = "n bigint"

    def accumulate(self, rows: Any, groups: Any) -> Any: ...  # type: ignore[override]

    def merge(self, accumulators: Any, groups: Any, count: int) -> Any: ...

    def result(self, accumulators: Any) -> Any: ...


class Every(Trigger):
    def on_element(self, value: Any, ctx: Any) -> TriggerResult: ...  # type: ignore[override]


class Marks:
    def on_event(self, timestamp: int, output: Any) -> None: ...

    def on_periodic_emit(self, output: Any) -> None: ...


class Bounded:
    def __init__(self, delay: int) -> None: ...

    def on_event(self, timestamp: int, count: int, output: Any) -> None: ...

    def on_periodic_emit(self, output: Any) -> None: ...


class Rows(TwoPhaseCommitSink):
    def begin_transaction(self) -> Any: ...  # type: ignore[override]

    def invoke(self, transaction: Any, record: Any) -> None: ...

    def pre_commit(self, transaction: Any) -> None: ...

    def commit(self, transaction: Any) -> None: ...

    def abort(self, transaction: Any) -> None: ...


def needs_more(record: Any, *, limit: int) -> Any:
    return record


WRONG: dict[str, tuple[Callable[[DataStream], Any], str, str]] = {
    "map": (lambda s: s.map(lambda a, b: a, schema=NUMBER), "map: <lambda>(a, b) cannot be called as", "(record)"),
    "a keyword": (lambda s: s.map(needs_more, schema=NUMBER), "map: needs_more(record, *, limit)", "(record)"),
    "flat_map": (lambda s: s.flat_map(lambda: iter(()), schema=NUMBER), "flat_map: <lambda>()", "(record)"),
    "filter": (lambda s: s.filter(operator.gt), "filter: gt(a, b, /)", "(record)"),
    "map_batches": (lambda s: s.map_batches(lambda a, b: a, schema=NUMBER), "map_batches: <lambda>", "(batch)"),
    "apply": (lambda s: s.apply(lambda a: a, s), "apply: <lambda>(a) cannot be called as <lambda>(df1, df2)", "df2"),
    "open of a rich function": (lambda s: s.map(WithOpen(), schema=NUMBER), "map: WithOpen.open(context)", "def open"),
    "partition_custom": (lambda s: s.partition_custom(hash, "n"), "partition_custom: hash", "(key, tasks)"),
    "reduce": (lambda s: s.key_by("n").reduce(lambda a: a), "reduce: <lambda>(a)", "(a, b)"),
    "reduce in windows": (lambda s: s.key_by("n").window(MINUTE).reduce(lambda a: a), "reduce: <lambda>(a)", "(a, b)"),
    "process_element": (
        lambda s: s.process(Elements(), schema=NUMBER),
        "process: Elements.process_element(value) cannot be called as Elements.process_element(value, ctx)",
        "def process_element(self, value, ctx)",
    ),
    "on_timer": (
        lambda s: s.key_by("n").process(Timers(), schema=NUMBER),
        "Timers.on_timer(timestamp)",
        "def on_timer",
    ),
    "an interval join": (
        lambda s: s.key_by("n").interval_join(s.key_by("n")).between("0 s", "1 s").process(Pairs(), schema=NUMBER),
        "process: Pairs.process_element(left, right)",
        "(self, left, right, ctx)",
    ),
    "a join": (
        lambda s: s.join(s).where("n").equal_to("n").window(MINUTE).apply(Joined(), schema=NUMBER),
        "join: Joined.join(pair)",
        "def join(self, left, right)",
    ),
    "a function of a join": (
        lambda s: s.join(s).where("n").equal_to("n").window(MINUTE).apply(lambda a: a, schema=NUMBER),
        "join: <lambda>(a)",
        "(left, right)",
    ),
    "a co-group": (
        lambda s: s.co_group(s).where("n").equal_to("n").window(MINUTE).apply(Groups(), schema=NUMBER),
        "co_group: Groups.co_group(key, left, right)",
        "def co_group(self, left, right)",
    ),
    "process of windows": (
        lambda s: s.key_by("n").window(MINUTE).process(Windows(), schema=NUMBER),
        "process: Windows.process(key, elements)",
        "def process(self, key, context, elements)",
    ),
    "an aggregate": (
        lambda s: s.key_by("n").window(MINUTE).aggregate(Sums(), schema=NUMBER),
        "aggregate: Sums.add(accumulator)",
        "def add(self, value, accumulator)",
    ),
    "an aggregate of columns": (
        lambda s: s.key_by("n").window(MINUTE).aggregate(ArrowSums(), schema=NUMBER),
        "aggregate: ArrowSums.accumulate(rows, groups)",
        "def accumulate(self, rows, groups, count)",
    ),
    "a trigger": (
        lambda s: s.key_by("n").window(MINUTE).trigger(Every()),
        "trigger: Every.on_element(value, ctx)",
        "def on_element(self, value, timestamp, window, ctx)",
    ),
    "a gap": (lambda s: DynamicEventTimeSessionWindows(lambda: 5), "the gap of sessions: <lambda>()", "(element)"),
    "a delta trigger": (lambda s: DeltaTrigger(5, abs), "DeltaTrigger: abs", "(old, new)"),
    "a delta evictor": (lambda s: DeltaEvictor(5, abs), "DeltaEvictor: abs", "(element, last)"),
    "a timestamp assigner": (
        lambda s: WatermarkStrategy.no_watermarks(timestamp=lambda a, b: a),
        "the timestamp assigner: <lambda>(a, b)",
        "(record)",
    ),
    "a generator": (
        lambda s: WatermarkStrategy.for_generator(Marks, timestamp="t"),
        "for_generator: Marks.on_event(self, timestamp, output)",
        "def on_event(self, timestamp, count, output)",
    ),
    "a generator with arguments": (
        lambda s: WatermarkStrategy.for_generator(Bounded, timestamp="t"),
        "for_generator: Bounded(delay) cannot be called as Bounded()",
        "function of ()",
    ),
    "reducing state": (lambda s: ReducingStateDescriptor("r", abs), "reducing state 'r': abs", "(a, b)"),
    "reducing state of none": (lambda s: ReducingStateDescriptor("r", 3), "needs a function, got 3", "(a, b)"),
    "aggregating state": (lambda s: AggregatingStateDescriptor("a", Sums()), "state 'a': Sums.add", "def add"),
    "aggregating state of none": (lambda s: AggregatingStateDescriptor("a", sum), "is no AggregateFunction", "derive"),
    "generated rows": (
        lambda s: DatagenSource(lambda n: {"n": n}, schema=NUMBER),
        "DatagenSource: <lambda>(n) cannot be called as <lambda>(number, random)",
        "(number, random)",
    ),
    "a bucket": (lambda s: FileSink("out", bucket=lambda a, b: a), "the bucket: <lambda>(a, b)", "(record)"),
    "a topic": (lambda s: KafkaSink("localhost:9", lambda: "t"), "KafkaSink: topic: <lambda>()", "(record)"),
    "windows that nothing fires": (
        lambda s: s.key_by("n").window(NoTrigger()).aggregate("count(*) as n"),
        "window: NoTrigger has no default_trigger",
        "or give .trigger(…)",
    ),
    "elements that nobody takes": (
        lambda s: s.key_by("n").process(KeyedProcessFunction(), schema=NUMBER),
        "process: KeyedProcessFunction has no process_element",
        "write def process_element(self, value, ctx)",
    ),
    "an aggregate without a result": (
        lambda s: s.key_by("n").window(MINUTE).aggregate(OnlyAdds(), schema=NUMBER),
        "aggregate: OnlyAdds has no get_result",
        "write def get_result(self, accumulator)",
    ),
    "a sink of two phases": (lambda s: s.sink_to(Rows()), "sink_to: Rows.begin_transaction()", "(self, id)"),
}


def stream() -> DataStream:
    strategy = WatermarkStrategy.no_watermarks(timestamp="t")
    return Job("calls").from_source(FileSource("in", format="json", schema="n bigint, t bigint"), strategy)


@pytest.mark.parametrize("name", WRONG)
def test_a_function_of_other_arguments_is_refused(name: str) -> None:
    make, what, next = WRONG[name]
    with pytest.raises(DefinitionError) as caught:
        make(stream())
    assert what in caught.value.what
    assert next in caught.value.next
    assert str(caught.value).count("\n") == 1


class NoMerge(AggregateFunction):
    """All that windows need which never merge."""

    def create_accumulator(self) -> Any: ...

    def add(self, value: Any, accumulator: Any) -> Any: ...

    def get_result(self, accumulator: Any) -> Any: ...


class NoTrigger(WindowAssigner):
    def assign_windows(self, value: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        return [TimeWindow(0, 10)]


class Static(ProcessFunction):
    @staticmethod
    def process_element(value: Any, ctx: Any) -> Any: ...  # type: ignore[override]


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments, 1)

    return wrapper


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.map(dict, schema=NUMBER),
        lambda s: s.map(operator.itemgetter("n"), schema=NUMBER),
        lambda s: s.map(functools.partial(needs_more, limit=3), schema=NUMBER),
        lambda s: s.map(lambda record, factor=2: record, schema=NUMBER),
        lambda s: s.map(lambda *values: values[0], schema=NUMBER),
        lambda s: s.map(logged(lambda record, more: record), schema=NUMBER),
        lambda s: s.apply(lambda df, *others: df, s, s),
        lambda s: s.process(Static(), schema=NUMBER),
        lambda s: s.key_by("n").window(MINUTE).aggregate(NoMerge(), schema=NUMBER),
        lambda s: s.key_by("n").window(NoTrigger()).trigger(CountTrigger(3)).aggregate("count(*) as n"),
        lambda s: s.key_by("n").reduce(max),
        lambda s: ReducingStateDescriptor("r", operator.add),
        lambda s: WatermarkStrategy.for_generator(lambda: Bounded(5), timestamp="t"),
    ],
)
def test_what_can_be_called_and_what_nobody_knows_is_taken(make: Callable[[DataStream], Any]) -> None:
    make(stream())
