"""Functions that ask for records of a type: whatever the type, the same rows come of the same function."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial, wraps
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DatagenSource, DefinitionError, Job, KeyedProcessFunction, Side
from poundlock.formats import convert, ddl
from poundlock.formats.chunk import Chunk, Records
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Chain, Edge, Emit, Pass, Step
from poundlock.operators.factory import operator_of
from poundlock.operators.records import as_dict, record_maker
from poundlock.plan.heads.keyed import exchange_inputs, keyed_head
from poundlock.plan.normalize import normalize
from poundlock.stream.functions.records import RecordType, requested_record
from poundlock.stream.nodes import ProcessNode, SinkNode
from poundlock.testing import ProcessHarness

SCHEMA = ddl.parse("n bigint, text string, price double, at timestamp")


class Named(NamedTuple):
    text: str | None
    n: int | None
    price: float | None


@dataclass
class Plain:
    n: int
    text: str
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ByName:
    price: float | None
    text: str | None
    n: int | None
    unknown: int = 7


class Struct(msgspec.Struct, rename={"label": "text"}):
    n: int | None
    price: float | None
    label: str | None


def of_dict(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "text": row["text"], "price": row["price"]}


def of_named(row: Named) -> Named:
    assert type(row) is Named
    return row


def of_plain(row: Plain) -> Plain:
    assert type(row) is Plain
    return row


def of_name(row: ByName) -> dict[str, Any]:
    assert row.unknown == 7
    return {"n": row.n, "text": row.text, "price": row.price}


def of_struct(row: Struct) -> Struct:
    assert type(row) is Struct
    return row


def of_tuple(row: tuple[int, str, float, datetime]) -> tuple[Any, ...]:
    return row[:3]


FUNCTIONS = [of_dict, of_named, of_plain, of_name, of_struct, of_tuple]
RESULT = "n bigint, text string, price double"


class Collect:
    """A terminal step that keeps rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        self.rows += convert.to_records(chunk).rows


def ran(
    kind: str, function: Callable[[Any], Any], chunk: Chunk, *, bad: list[Reject] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Return the rows that come of a function."""
    stream = Job("typed").from_source(DatagenSource(), name="rows")
    schema = {} if kind == "filter" else {"schema": RESULT}
    typed = getattr(stream, kind)(function, on_error="fail" if bad is None else "bad_record", **schema, **options)
    sink = Collect()
    steps = [
        Step("in", Pass(), []),
        Step("op", operator_of(typed.node, SCHEMA), [Edge("in")]),
        Step("out", sink, [Edge("op")]),
    ]
    Chain(steps, None if bad is None else bad.append).push(chunk)
    return sink.rows


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
            "text": st.none() | st.text(max_size=5),
            "price": st.none() | st.floats(allow_nan=False),
            "at": st.none() | st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)),
        }
    ),
    min_size=1,
    max_size=20,
)


def chunks(rows: list[dict[str, Any]]) -> Iterator[Chunk]:
    yield Records(rows)
    yield convert.to_batch(Records(rows), pa.schema([*SCHEMA][:3]).append(pa.field("at", pa.timestamp("us"))))


@pytest.mark.parametrize("function", FUNCTIONS)
@given(rows=ROWS)
def test_a_function_gives_the_same_rows_whatever_type_it_asks_for(function: Any, rows: list[dict[str, Any]]) -> None:
    wanted = [of_dict(row) for row in rows]
    for chunk in chunks(rows):
        assert ran("map", function, chunk) == wanted


@pytest.mark.parametrize("function", FUNCTIONS)
def test_flat_map_and_filter_are_given_the_type_too(function: Any) -> None:
    @wraps(function)
    def twice(row: Any) -> list[Any]:
        return [function(row), Side("copy", function(row))]

    @wraps(function)
    def even(row: Any) -> bool:
        return of_any(function(row))["n"] % 2 == 0

    rows = [{"n": n, "text": "a", "price": 0.5, "at": None} for n in range(5)]
    for chunk in chunks(rows):
        assert ran("flat_map", twice, chunk, side_outputs={"copy": RESULT}) == [of_dict(row) for row in rows]
        assert [row["n"] for row in ran("filter", even, chunk)] == [0, 2, 4]


def of_any(result: Any) -> dict[str, Any]:
    return as_dict(result, ["n", "text", "price"])


def test_rows_that_a_typed_function_fails_for_are_rejected_with_their_bytes() -> None:
    def odd_fails(row: Plain) -> Plain:
        if row.n % 2:
            raise ValueError("odd")
        row.n = "none" if row.n == 4 else row.n  # type: ignore[assignment]
        return row

    rows = [{"n": n, "text": "a", "price": 0.5, "at": None} for n in range(5)]
    for chunk in chunks(rows):
        bad: list[Reject] = []
        assert [row["n"] for row in ran("map", odd_fails, chunk, bad=bad)] == [0, 2]
        assert [json.loads(record.value)["n"] for record in bad] == [1, 3, 4]


def test_a_record_maker_goes_to_tasks() -> None:
    for cls in (Named, Plain, ByName, Struct, tuple):
        maker = record_maker(RecordType(cls), SCHEMA, "map")
        assert pickle.loads(pickle.dumps(maker)) == maker


# --- what cannot be met ------------------------------------------------------------------------------------------------


class Typo(NamedTuple):
    txet: str


class WrongType(msgspec.Struct):
    n: str


@dataclass
class OfTimes:
    at: int
    price: float = 0.0


class Dict(TypedDict):
    n: int


Text = NewType("Text", str)


class Fits(NamedTuple):
    n: Annotated[int, "a number"] | None
    price: Literal[1.0, 2.0]
    text: Text
    at: Any


class OfWhoKnows(NamedTuple):
    n: Unknown  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("asked", "what", "next"),
    [
        (Typo, "map: Typo asks for 'txet', which is no column; there are n, text, price, at", "did you mean 'text'?"),
        (WrongType, "map: 'n' of WrongType is annotated as str, and the values of the column 'n' (bigint) are int", "annotate it as int"),
        (OfTimes, "map: 'at' of OfTimes is annotated as int, and the values of the column 'at' (timestamp) are datetime", "cast"),
        (tuple[int, str], "map: it asks for a tuple of 2 values, and there are 4 columns: n, text, price, at", "as many"),
        (tuple[int, str, str, datetime], "map: value 3 of its tuple is annotated as str, and the values of the column 'price' (double)", "float"),
    ],
)  # fmt: skip
def test_what_is_no_column_or_of_another_type_is_refused(asked: Any, what: str, next: str) -> None:
    def function(row: Any) -> Any: ...

    function.__annotations__["row"] = asked
    with pytest.raises(DefinitionError) as caught:
        record_maker(requested_record(function, "map"), SCHEMA, "map")
    assert what in caught.value.what
    assert next in str(caught.value.next)


def test_what_cannot_be_known_is_not_refused() -> None:
    for cls, columns in ((Fits, ("n", "price", "text", "at")), (OfWhoKnows, ("n",))):
        maker = record_maker(RecordType(cls), SCHEMA, "map")
        assert maker is not None
        assert maker.columns == columns
    with pytest.raises(DefinitionError, match="columns of its input are not known"):
        record_maker(RecordType(Fits), None, "map")


@pytest.mark.parametrize(
    "asked", [dict, dict[str, Any], Mapping[str, Any], Dict, Any, object, "dict[str, Any]", dict[str, int] | None]
)
def test_a_function_without_an_annotation_of_its_own_gets_a_dict(asked: Any) -> None:
    def function(row: Any) -> Any: ...

    function.__annotations__["row"] = asked
    assert requested_record(function, "map") is None
    assert requested_record(lambda row: row, "map") is None
    assert requested_record(print, "map") is None


@pytest.mark.parametrize("asked", [int, list[int], pa.RecordBatch, Decimal, OrderedDict, Named | Plain])
def test_what_no_record_can_be_is_refused(asked: Any) -> None:
    def function(row: Any) -> Any: ...

    function.__annotations__["row"] = asked
    with pytest.raises(
        DefinitionError, match=r"map: function asks for .*, which it cannot be given\nNext: (annotate|give)"
    ):
        requested_record(function, "map")


def test_an_annotation_is_read_with_the_names_around_the_function() -> None:
    class Local(NamedTuple):
        n: int

    class Callable_:
        def __call__(self, row: Local) -> Any: ...

        def method(self, row: Local | None) -> Any: ...

    def function(extra: int, row: Local) -> Any: ...

    def unknown(row: Nowhere) -> Any: ...  # type: ignore[name-defined] # noqa: F821

    for each in (Callable_(), Callable_().method, partial(function, 1)):
        assert requested_record(each, "map") == RecordType(Local)
    with pytest.raises(DefinitionError, match="the annotation 'Nowhere' of unknown cannot be read"):
        requested_record(unknown, "map")


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ((1, 2), "map-0 returned tuple, not a dict"),
        (Typo("x"), "map-0 returned the undeclared column 'txet'"),
        (5, "map-0 returned int, not a dict"),
    ],
)
def test_a_result_that_is_no_record_of_the_schema_is_refused(result: Any, what: str) -> None:
    chunk = next(chunks([{"n": 1, "text": "a", "price": 0.5, "at": None}]))
    with pytest.raises(DefinitionError, match=what):
        ran("map", lambda row: result, chunk)


# --- process functions -------------------------------------------------------------------------------------------------


class Total(KeyedProcessFunction):
    """Adds up prices; yields records of each kind in turn."""

    def process_element(self, value: Plain, ctx: Any) -> Any:
        assert type(value) is Plain
        yield value
        yield Named(value.text, value.n, value.price)
        yield (value.n, value.text, value.price)
        yield Side("copy", Struct(value.n, value.price, value.text))
        value.price = -1.0


def test_a_process_function_takes_and_gives_typed_records() -> None:
    rows = Job("typed").from_source(DatagenSource(), name="rows")
    totals = rows.key_by("text").process(Total(), schema=RESULT, side_outputs={"copy": RESULT}, name="totals")
    harness = ProcessHarness(totals)
    harness.process_element(Plain(1, "a", 0.5))
    harness.process_element({"n": 1, "text": "a", "price": 0.5})
    wanted = {"n": 1, "text": "a", "price": 0.5}
    assert [row.value for row in harness.output] == [wanted, wanted, (1, "a", 0.5)] * 2
    assert [row.value for row in harness.side_output("copy")] == [wanted] * 2


def test_what_a_process_function_yields_becomes_columns() -> None:
    given = [{"n": 1, "price": 0.5}, (2, None, None), {"text": "b"}]
    rows = convert.declared_rows("totals", ddl.parse(RESULT), given)
    assert rows.to_pylist() == [
        {"n": 1, "text": None, "price": 0.5},
        {"n": 2, "text": None, "price": None},
        {"n": None, "text": "b", "price": None},
    ]
    with pytest.raises(DefinitionError, match="totals emitted a tuple of 2 values, not a dict"):
        convert.declared_rows("totals", ddl.parse(RESULT), [(1, 2)])


def test_an_exchange_carries_what_the_type_names_and_nothing_else() -> None:
    rows = Job("typed").from_source(DatagenSource(), name="rows")
    stream = rows.key_by("text").process(Total(), schema=RESULT, side_outputs={"copy": RESULT}, name="totals")
    graph = normalize([SinkNode("out", [stream.node], None)], time_in_tasks=lambda node: True)
    (node,) = graph.roots[0].inputs
    assert isinstance(node, ProcessNode)
    head = keyed_head(node, [SCHEMA], [False], graph, lambda schema, text: text, bounded=False)
    ((_, columns),) = exchange_inputs(node, head, max_parallelism=128)
    assert columns == ["text", "n", "price"]
    given = convert.to_batch(Records([{"n": 1, "text": "a", "price": 0.5}, {"n": 2}]), SCHEMA).batch
    batch = head.inputs[0].batch(given.select(columns), 0)
    assert batch.keys == ["a", None]
    assert list(batch.values) == [batch.values[0], batch.values[1]] == [Plain(1, "a", 0.5), Plain(2, None, None)]  # type: ignore[arg-type]
    assert batch.values[1:] == [batch.values[1]]
