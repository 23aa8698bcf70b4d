"""Functions of batches in the form that they ask for: the same rows of the same function, whatever the form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DatagenSource, DefinitionError, Job
from poundlock.errors import TerminalError
from poundlock.formats import convert, ddl
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Chain, Edge, Emit, Pass, Step
from poundlock.operators.factory import operator_of

DDL = "n bigint, flag boolean, price double, text string, at timestamp, exact decimal(9, 2), many array<int>"
SCHEMA = ddl.parse(DDL)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
            "flag": st.none() | st.booleans(),
            "price": st.none() | st.floats(allow_nan=False),
            "text": st.none() | st.text(max_size=5),
            "at": st.none() | st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
            "exact": st.none() | st.decimals(-1000, 1000, places=2, allow_nan=False),
            "many": st.none() | st.lists(st.integers(0, 9), max_size=3),
        }
    ),
    min_size=1,
    max_size=10,
)


def of_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    assert type(batch) is pa.RecordBatch
    return batch


def of_table(batch: pa.Table) -> pa.Table:
    assert type(batch) is pa.Table
    return batch


def of_pandas(batch: pd.DataFrame) -> Iterator[pd.DataFrame]:
    assert type(batch) is pd.DataFrame
    yield batch


class Collect:
    """A terminal step that keeps rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        self.rows += convert.to_records(chunk).rows


def ran(
    function: Callable[[Any], Any], rows: list[dict[str, Any]], bad: list[Reject] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Return the rows that come of a function."""
    stream = Job("batches").from_source(DatagenSource(), name="rows")
    on_error: Any = "fail" if bad is None else "bad_record"
    node = stream.map_batches(function, schema=DDL, on_error=on_error, **options).node
    sink = Collect()
    steps = [
        Step("in", Pass(), []),
        Step("op", operator_of(node, SCHEMA), [Edge("in")]),
        Step("out", sink, [Edge("op")]),
    ]
    given = Batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    Chain(steps, None if bad is None else bad.append).push(given)
    return sink.rows


@pytest.mark.parametrize("function", [of_batch, of_table, of_pandas])
@given(rows=ROWS)
def test_rows_come_back_as_they_were_whatever_the_form(function: Any, rows: list[dict[str, Any]]) -> None:
    assert ran(function, rows) == rows


@given(rows=ROWS)
def test_rows_come_back_from_polars_as_they_were(rows: list[dict[str, Any]]) -> None:
    polars = pytest.importorskip("polars")

    def of_polars(batch: Any) -> Any:
        assert type(batch) is polars.DataFrame
        return batch

    assert ran(of_polars, rows, batch_format="polars") == rows
    of_polars.__annotations__["batch"] = polars.DataFrame
    assert ran(of_polars, rows) == rows


@pytest.mark.parametrize(("name", "kind"), [("record_batch", pa.RecordBatch), ("table", pa.Table), ("pandas", pd.DataFrame)])  # fmt: skip
def test_the_form_may_be_named(name: str, kind: type) -> None:
    row = {"n": 1, "flag": True, "price": 0.5, "text": "a", "at": None, "exact": Decimal("1.50"), "many": [1]}
    kinds = []
    assert ran(lambda batch: kinds.append(type(batch)) or batch, [row], batch_format=name) == [row]
    assert kinds == [kind]


def test_nan_of_pandas_is_null() -> None:
    row = {"n": 1, "flag": True, "price": math.nan, "text": "a", "at": None, "exact": None, "many": None}
    assert ran(of_pandas, [row])[0]["price"] is None


def mixed(batch: pd.DataFrame) -> pd.DataFrame:
    return batch.assign(n=["text" if n == 2 else n for n in batch.n])


def test_a_row_whose_value_does_not_fit_is_rejected_by_itself() -> None:
    rows = [{**dict.fromkeys(SCHEMA.names), "n": n} for n in range(5)]
    bad: list[Reject] = []
    assert [row["n"] for row in ran(mixed, rows, bad)] == [0, 1, 3, 4]
    assert len(bad) == 1
    with pytest.raises(TerminalError, match="returned a DataFrame that is no columns"):
        ran(mixed, rows)


def number(batch: int) -> Any: ...


def of_polars_text(batch: pl.DataFrame) -> Any: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "options", "what"),
    [
        (number, {}, r"map_batches: number asks for int, which it cannot be given\nNext: annotate it with"),
        (of_table, {"batch_format": "pandas"}, "batch_format='pandas', and of_table is annotated to take 'table'\nNext: leave"),
        (of_batch, {"batch_format": "numpy"}, "batch_format='numpy' is not known\nNext: use one of 'record_batch', 'table'"),
        (lambda batch: batch, {"batch_format": "polars"}, r"needs the package polars\nNext: .*pip install 'poundlock\[polars\]'"),
        (of_polars_text, {}, r"of_polars_text, a function of DataFrames of polars, needs the package polars\nNext: "),
    ],
)  # fmt: skip
def test_what_cannot_be_given_is_refused_in_two_lines(
    function: Any, options: dict[str, Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poundlock.stream.functions.records._is_installed", lambda package: False)
    with pytest.raises(DefinitionError, match=what) as caught:
        ran(function, [], **options)
    assert len(str(caught.value).splitlines()) == 2
