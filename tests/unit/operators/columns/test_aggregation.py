"""An aggregate of the user's own: what it is given, and what is said of what it returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock import (
    AggregateFunction,
    ArrowAggregateFunction,
    CountEvictor,
    CountSlidingWindows,
    CountTrigger,
    CountTumblingWindows,
    DefinitionError,
    FileSink,
    FileSource,
    Job,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.operators.columns.aggregation import FunctionAggregation
from poundlock.operators.columns.groups import Groups
from poundlock.plan.explain import explain

OVERLAPPING = Groups(np.array([0, 1, 1, 2]), np.array([0, 2]))  # the second of three rows is in both groups
GROUPS = Groups(np.array([2, 0, 1]), np.array([0, 1]))  # of three rows; the last one is the first group


class Total(ArrowAggregateFunction):
    """A sum. `returned` is given back instead, where there is one."""

    accumulator = "total bigint"
    columns = ("n",)
    returned: Any = None

    def accumulate(self, rows: pa.RecordBatch, groups: Any, count: int) -> Any:
        if self.returned is not None:
            return self.returned
        return {"total": np.bincount(groups, rows.column("n").to_numpy(), count).astype(np.int64)}

    def merge(self, accumulators: pa.RecordBatch, groups: Any, count: int) -> Any:
        return {"total": np.bincount(groups, accumulators.column("total").to_numpy(), count).astype(np.int64)}

    def result(self, accumulators: pa.RecordBatch) -> Any:
        return {
            "total": accumulators.column("total"),
            "half": pa.array([n / 2 for n in accumulators["total"].to_pylist()]),
        }


def own(returned: Any = None) -> FunctionAggregation:
    function = Total()
    function.returned = returned
    return FunctionAggregation("sums", function, ("n",), "total bigint, half double")


def test_rows_come_group_after_group() -> None:
    aggregation = own()
    assert [column.to_pylist() for column in aggregation.partial([pa.array([1, 2, 4])], GROUPS)] == [[4, 3]]
    held = [pa.array([10, 20, 40])]
    assert [column.to_pylist() for column in aggregation.merge(held, GROUPS)] == [[40, 30]]
    assert [column.to_pylist() for column in aggregation.merge(held, OVERLAPPING)] == [[30, 60]]
    assert aggregation.decode(aggregation.encode(held)) == held
    results = aggregation.results(held, [pa.int64(), pa.float64()])
    assert [column.to_pylist() for column in results] == [[10, 20, 40], [5, 10, 20]]


def test_nothing_is_not_given_to_a_function() -> None:
    aggregation, none = own(returned="never asked for"), Groups(np.empty(0, np.int64), np.empty(0, np.int64))
    assert aggregation.partial([pa.array([], pa.int64())], none) == [pa.array([], pa.int64())]
    assert [column.type for column in aggregation.results([pa.array([], pa.int64())], [])] == [pa.int64(), pa.float64()]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2], "sums: Total.accumulate returned list, not columns\nNext: return a pyarrow.RecordBatch, a Table"),
        (
            {"sum": pa.array([1, 2])},
            "Total.accumulate returned no column total\nNext: return the columns that are decl",
        ),
        (
            pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["total", "total"]),
            "Total.accumulate returned the column total more than once\nNext: return each of the columns once",
        ),
        (
            {"total": pa.array([1, 2]), "more": pa.array([1, 2])},
            "returned the column more, which is not declared\nNext: leave it out, or declare it beside: total bigint",
        ),
        (
            {"total": np.array([1])},
            "returned 1 values of 'total' for 2 groups\nNext: return one for each of the groups",
        ),
        (
            {"total": pa.array(["x", "y"])},
            "returned 'total' of type string, and bigint is declared: .*\nNext: declare the type that it returns",
        ),
        ({"total": pa.array([1.5, 2])}, "returned 'total' of type double, and bigint is declared: "),
        ({"total": object()}, "returned for 'total' what is no column: "),
    ],
)
def test_what_it_returns_is_checked(returned: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        own(returned).partial([pa.array([1, 2, 4])], GROUPS)


@pytest.mark.parametrize(
    "returned",
    [
        {"total": pa.chunked_array([[1], [2]])},
        {"total": np.array([1, 2], np.int8)},
        {"total": [1, 2]},
        pa.table({"total": pa.chunked_array([[1], [2]])}),
        pa.RecordBatch.from_arrays([pa.array([1.0, 2.0])], ["total"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_columns_in_any_form_are_taken(returned: Any) -> None:
    assert own(returned).partial([pa.array([1, 2, 4])], GROUPS) == [pa.array([1, 2])]


def test_what_it_raises_is_the_users_own_error() -> None:
    class Wrong(Total):
        def accumulate(self, rows: pa.RecordBatch, groups: Any, count: int) -> Any:
            raise KeyError("n")

    aggregation = FunctionAggregation("sums", Wrong(), ("n",), "total bigint")
    with pytest.raises(KeyError, match="n"):
        aggregation.partial([pa.array([1, 2, 4])], GROUPS)


# --- where it is written ------------------------------------------------------------------------------------------------


def windows(assigner: Any = None) -> Any:
    strategy = WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="at")
    source = FileSource("/in", format="json", schema="k string, n bigint, at timestamp")
    stream = Job("a").from_source(source, strategy, name="in")
    return stream.key_by("k").window(assigner or TumblingEventTimeWindows("10 s"))


def test_a_function_that_is_not_whole_is_refused_where_it_is_written() -> None:
    class NoMerge(ArrowAggregateFunction):
        accumulator = "n bigint"

        def accumulate(self, rows: Any, groups: Any, count: int) -> Any: ...

    class NoAccumulator(Total):
        accumulator = ""

    class OneText(Total):
        columns = "n"

    class NoDdl(Total):
        accumulator = "total bigger"

    for function, message in (
        (NoMerge(), "NoMerge has no merge\nNext: write accumulate, merge and result"),
        (NoAccumulator(), "NoAccumulator.accumulator does not say which columns|NoAccumulator has no accumulator"),
        (OneText(), "OneText.columns is 'n'\nNext: list the names of columns"),
        (NoDdl(), "bigger"),
    ):
        with pytest.raises(DefinitionError, match=message):
            windows().aggregate(function, schema="n bigint")
    with pytest.raises(DefinitionError, match="aggregate does not say which columns come out"):
        windows().aggregate(Total())
    with pytest.raises(DefinitionError, match="Total takes no process function or side outputs"):
        windows().aggregate(Total(), process=ProcessWindowFunction(), schema="n bigint")
    with pytest.raises(DefinitionError, match="windows without an aggregate"):
        windows().aggregate(Total(), "count(*) as n", schema="n bigint")
    assert not isinstance(Total(), AggregateFunction)


def test_explain_says_that_it_is_computed_by_columns_or_why_it_cannot_be() -> None:
    def text(stream: Any) -> str:
        stream.sink_to(FileSink("/out", format="json"), name="out")
        return explain(stream.job)

    schema = "total bigint, half double"
    for taken, way in (
        (windows(), "tumbling windows of 10 s: Total, by columns"),
        (windows(SlidingEventTimeWindows("5 s", "9 s")), "sliding windows of 5 s every 9 s: Total, by columns"),
        (windows(SlidingProcessingTimeWindows("9 s", "5 s")), "every 5 s by the clock: Total, by columns"),
        (windows(CountTumblingWindows(9)), "windows of 9 elements: Total, by columns"),
        (windows(CountSlidingWindows(9, 5)), "windows of 9 elements every 5: Total, by columns"),
    ):
        assert way in text(taken.aggregate(Total(), schema=schema))
    for refused, reason in (
        (windows().trigger(CountTrigger(3)), "its trigger, evictor or windows look at each element"),
        (windows(CountSlidingWindows(9, 5)).evictor(CountEvictor(3)), "its trigger, evictor or windows look at each"),
    ):
        with pytest.raises(
            DefinitionError, match=f"Total adds up columns, and these windows go record by record, since {reason}"
        ):
            text(refused.aggregate(Total(), schema=schema))
