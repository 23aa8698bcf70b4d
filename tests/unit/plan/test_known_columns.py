"""What a function's record or a join asks for by name is held against the columns before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from poundlock import (
    AggregateFunction,
    CountEvictor,
    CountTrigger,
    DatagenSource,
    DataStream,
    DefinitionError,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    PrintSink,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
)
from poundlock.plan.explain import explain
from poundlock.plan.plan import make_plan


class Sale(NamedTuple):
    user: str
    price: float


@dataclass
class Misspelt:
    user: str
    prise: float


class OfAnother(msgspec.Struct):
    user: int


class Total(NamedTuple):
    user: str
    n: int


class Ranked(NamedTuple):
    user: str
    plase: int


class Misspelling(KeyedProcessFunction):
    def process_element(self, value: Misspelt, ctx: Any) -> Any:
        yield {}


def sale(record: Sale) -> Any: ...


def misspelt(record: Misspelt) -> Any: ...


def of_another(record: OfAnother) -> Any: ...


def total(record: Total) -> Any: ...


def ranked(record: Ranked) -> Any: ...


def pair(record: tuple[str, float]) -> Any: ...


def made(**columns: Any) -> DataStream:
    strategy = WatermarkStrategy.no_watermarks(timestamp="at", column="at")
    source = DatagenSource("user string, price double, at bigint", rate=1)
    return Job("known", on_error="fail").from_source(source, strategy, name="in")


def planned(stream: DataStream) -> None:
    stream.sink_to(PrintSink(), name="out")
    make_plan(stream.job)


def mapped(function: Callable[[Any], Any]) -> Callable[[DataStream], DataStream]:
    return lambda stream: stream.map(function, schema="n int", name="fee")


def joined(*select: str) -> Callable[[DataStream], DataStream]:
    def join(stream: DataStream) -> DataStream:
        other = stream.select("user", "price AS cost", "at", name="other")
        pairs = stream.key_by("user").interval_join(other.key_by("user")).between("0 s", "1 s")
        return pairs.select(*select, name="pairs")

    return join


def joined_in_windows(*select: str) -> Callable[[DataStream], DataStream]:
    def join(stream: DataStream) -> DataStream:
        other = stream.select("user", "price AS cost", "at", name="other")
        pairs = stream.join(other).where("user").equal_to("user").window(MINUTE)
        return pairs.select(*select, name="pairs")

    return join


MINUTE = TumblingEventTimeWindows("1 min")
WRONG: dict[str, tuple[Callable[[DataStream], DataStream], str, str]] = {
    "a field": (mapped(misspelt), "fee: Misspelt asks for 'prise', which is no column", "did you mean 'price'?"),
    "a type": (mapped(of_another), "'user' of OfAnother is annotated as int", "annotate it as str"),
    "a process function": (
        lambda s: s.key_by("user").process(Misspelling(), schema="n int", name="rules"),
        "rules: Misspelt asks for 'prise'",
        "did you mean 'price'?",
    ),
    "behind SQL": (
        lambda s: mapped(sale)(s.where("price > 1").with_column("n", "1").drop("PRICE")),
        "Sale asks for 'price', which is no column; there are user, at, n",
        "",
    ),
    "behind select": (lambda s: mapped(sale)(s.select("user", "price * 2 AS twice")), "there are user, twice", ""),
    "behind map": (lambda s: mapped(sale)(s.map(dict, schema="user string, n int")), "there are user, n", ""),
    "behind windows": (
        lambda s: mapped(sale)(s.key_by("user").window(MINUTE).aggregate("count(*) AS n")),
        "there are user, window_start, window_end, n",
        "",
    ),
    "behind top_n": (
        lambda s: mapped(ranked)(s.key_by("user").top_n(3, "price desc", rank="place")),
        "Ranked asks for 'plase'",
        "did you mean 'place'?",
    ),
    "a key": (
        lambda s: s.key_by("usr").max("price"),
        "there is no column 'usr'; there are user, price, at",
        "did you mean 'user'?",
    ),
    "a part of a key": (
        lambda s: s.key_by("user", "prise").max("price", name="m"),
        "m: there is no column 'prise'",
        "'price'?",
    ),
    "a rolling aggregate": (lambda s: s.key_by("user").sum("prise"), "no column 'prise'", "did you mean 'price'?"),
    "an order": (lambda s: s.key_by("user").top_n(2, "prise desc"), "no column 'prise'", "did you mean 'price'?"),
    "an aggregate": (
        lambda s: s.key_by("user").window(MINUTE).aggregate("count(*) AS n", "max(prise) AS top"),
        "no column 'prise'",
        "did you mean 'price'?",
    ),
    "a key of a join": (
        lambda s: s.join(s).where("user").equal_to("id").window(MINUTE).apply(lambda a, b: a, schema="n int"),
        "no column 'id'",
        "name one of these",
    ),
    "a key of placement": (lambda s: s.partition_custom(lambda key, tasks: 0, "usr"), "no column 'usr'", "'user'?"),
    "a tuple": (mapped(pair), "a tuple of 2 values, and there are 3 columns", "NamedTuple"),
    "a column of both sides": (
        joined("user"),
        "pairs: select('user') does not say of which side 'user' is",
        'write "left.user" or "right.user AS right_user"',
    ),
    "a column of one side": (joined("left.user", "cost AS c"), "select('cost AS c')", 'write "right.cost"'),
    "a column of one side of a window": (
        joined_in_windows("left.user", "cost AS c"),
        "select('cost AS c')",
        "right.cost",
    ),
    "one that its side has not in a window": (joined_in_windows("left.cost"), "no column 'left.cost'", "'right.cost'?"),
    "within an expression": (joined("round(price + 1) AS p"), "of which side 'price' is", 'write "left.price"'),
    "a column of none": (joined("left_price"), "no column 'left_price'", "did you mean 'left.price'?"),
    "one that its side has not": (joined("left.cost"), "no column 'left.cost'", "did you mean 'right.cost'?"),
    "the same within an expression": (joined("left.prise * 2 AS p"), "no column 'left.prise'", "'left.price'?"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_column_is_refused_before_anything_starts(name: str) -> None:
    build, what, next = WRONG[name]
    with pytest.raises(DefinitionError) as caught:
        planned(build(made()))
    assert what in caught.value.what
    assert next in caught.value.next
    assert str(caught.value).count("\n") == 1


@pytest.mark.parametrize(
    "build",
    [
        mapped(sale),
        lambda s: mapped(sale)(s.filter(sale).rebalance().union(s)),
        lambda s: mapped(sale)(s.select("*")),
        lambda s: mapped(sale)(s.apply(lambda df: df)),
        lambda s: mapped(sale)(s.key_by("user").max("price")),
        lambda s: s.key_by("USER", "price * 2", "lower(user) AS name").window(MINUTE).aggregate("sum(price + 1) AS n"),
        lambda s: s.key_by("current_date", "at").top_n(2, "PRICE desc"),
        lambda s: mapped(total)(s.key_by("user").window(MINUTE).aggregate("count(*) AS n")),
        joined("left.user", "LEFT.Price", "right.cost * 2 AS price", "concat(left.user, 'price') AS cost"),
        joined_in_windows("left.user", "LEFT.Price", "right.cost * 2 AS price", "concat(left.user, 'price') AS cost"),
        joined("left.*", "transform(array(1), price -> price + 1) AS ns", "CAST(right.cost AS string) cost"),
    ],
)
def test_what_is_there_and_what_nobody_knows_is_taken(build: Callable[[DataStream], DataStream]) -> None:
    planned(build(made()))


def test_columns_that_only_files_know_are_not_asked_for() -> None:
    job = Job("known", on_error="fail")
    planned(mapped(misspelt)(job.from_source(FileSource("/nowhere/at/all", format="parquet"), name="in")))


class Most(AggregateFunction):
    """max(n)."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return max(accumulator, value["n"])

    def get_result(self, accumulator: int) -> dict[str, int]:
        return {"m": accumulator}


EACH = "record by record, since its trigger, evictor or windows look at each element"
CLOCK = TumblingProcessingTimeWindows("1 min")


@pytest.mark.parametrize(
    ("write", "way"),
    [
        (lambda k: k.max_by("l"), "by columns"),
        (lambda k: k.max_by("n"), "by columns"),
        (lambda k: k.top_n(2, "l"), "by columns"),
        (
            lambda k: k.count_window(3).aggregate("max(l) as m", "count(distinct l) as d", "max_by(n, l) as f"),
            "by columns",
        ),
        (lambda k: k.count_window(3).aggregate("max(n) as m", "count(l) as c", "min_by(l, t) as f"), "by columns"),
        (lambda k: k.count_window(3, 2).aggregate("max(n) as m", "first(l) as f"), "by columns"),
        (
            lambda k: k.count_window(3, 2).aggregate("max(l) as m"),
            "by columns",
        ),
        (lambda k: k.count_window(3, 2).evictor(CountEvictor(2)).aggregate("max(n) as m"), EACH),
        (lambda k: k.window(SlidingProcessingTimeWindows("9 s", "2 s")).aggregate("last(n) as m"), "by columns"),
        (lambda k: k.count_window(3).aggregate("max(concat(l, l)) as m"), "by columns"),
        (lambda k: k.window(CLOCK).aggregate("max(n) as m"), "by columns"),
        (lambda k: k.window(CLOCK).trigger(CountTrigger(2)).aggregate("max(n) as m"), EACH),
        (lambda k: k.window(CLOCK).evictor(CountEvictor(2)).aggregate("max(n) as m"), EACH),
        (
            lambda k: k.window(CLOCK).aggregate(Most(), schema="m int"),
            "record by record, since a Python function is given its elements",
        ),
        (lambda k: k.window(ProcessingTimeSessionWindows("1 min")).aggregate("max(n) as m"), "by columns"),
        (
            lambda k: (
                k.window(EventTimeSessionWindows("1 min"))
                .trigger(PurgingTrigger(EventTimeTrigger()))
                .allowed_lateness("1 h")
                .aggregate("max(n) as m")
            ),
            "by columns",
        ),
        (
            lambda k: k.window(ProcessingTimeSessionWindows("1 min")).trigger(CountTrigger(2)).aggregate("max(n) as m"),
            EACH,
        ),
    ],
)
def test_explain_says_how_a_step_works(write: Any, way: str) -> None:
    job = Job("types", checkpoint_dir="checkpoint", on_error="fail")
    source = FileSource("in", format="json", schema="k string, n int, l array<int>, t timestamp")
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="t")
    rows = job.from_source(source).assign_timestamps_and_watermarks(times)
    write(rows.key_by("k")).sink_to(FileSink("out", format="json"))
    lines = [line for line in explain(job).splitlines() if "by k, " in line]
    assert len(lines) == 1
    assert f", {way} <-" in lines[0]
