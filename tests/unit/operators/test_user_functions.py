"""Functions of a user that fail for some rows, by choice, and objects that are opened and closed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DatagenSource, DefinitionError, Job, RichFunction, TransientError
from poundlock.errors import TerminalError
from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, Records
from poundlock.formats.reject import Reject
from poundlock.operators.chain import Chain, Edge, Emit, Operator, Pass, Step
from poundlock.operators.factory import operator_of
from poundlock.operators.user_functions import Filter, FlatMap, MapBatches, MapRecords
from poundlock.stream.nodes import PythonNode
from poundlock.stream.stream import Side
from support.chain_account import account

SCHEMA = pa.schema([("n", pa.int64())])


class Collect:
    """A terminal step that keeps numbers and their places."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: list[int] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        records = convert.to_records(chunk)
        index = records.index or range(len(records.rows))
        self.numbers += [row["n"] for row in records.rows]
        self.places += [records.origin.at(i).get("offset", -1) for i in index]


def rows(form: str, values: list[int]) -> Chunk:
    """Return numbers, each in its place: its own value."""
    origin = FileOrigin("f", values)  # type: ignore[arg-type]
    if form == "records":
        return Records([{"n": n} for n in values], origin)
    return Batch(pa.record_batch({"n": pa.array(values, pa.int64())}), origin)


def odd_fails(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] % 2:
        raise ValueError(f"{row['n']} is odd")
    return row


def odd_fails_late(row: dict[str, Any]) -> Iterator[Any]:
    yield {"n": row["n"]}
    yield Side("copy", odd_fails(row))
    yield {"n": row["n"]}


def odd_fails_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield batch
    if any(n % 2 for n in batch.column("n").to_pylist()):
        raise ValueError("one is odd")


OPERATORS: dict[str, Callable[[bool], Operator]] = {
    "map": lambda rejects: MapRecords("op", odd_fails, SCHEMA, rejects=rejects),
    "filter": lambda rejects: Filter(lambda row: odd_fails(row)["n"] % 4 == 0, rejects=rejects),
    "flat_map": lambda rejects: FlatMap("op", odd_fails_late, {"": SCHEMA, "copy": SCHEMA}, rejects=rejects),
    "map_batches": lambda rejects: MapBatches("op", odd_fails_batch, SCHEMA, rejects=rejects),
}


def chain(operator: Operator, sink: Operator, bad: list[Reject] | None = None) -> Chain:
    steps = [Step("in", Pass(), []), Step("op", operator, [Edge("in")]), Step("out", sink, [Edge("op")])]
    return Chain(steps, None if bad is None else bad.append)


@pytest.mark.parametrize("form", ["records", "batch"])
@pytest.mark.parametrize("kind", OPERATORS)
@given(values=st.lists(st.integers(-9, 9), min_size=1, max_size=20))
def test_rows_that_fail_are_rejected_and_every_other_row_goes_on(kind: str, form: str, values: list[int]) -> None:
    bad: list[Reject] = []
    sink = Collect()
    run = chain(OPERATORS[kind](True), sink, bad)
    run.push(rows(form, values))
    good = [n for n in values if n % 2 == 0]
    wanted = {"filter": [n for n in good if n % 4 == 0], "flat_map": [n for n in good for _ in range(2)]}
    assert sink.numbers == sink.places == wanted.get(kind, good)
    assert [record.where for record in bad] == [{"file": "f", "offset": n, "operator": "op"} for n in values if n % 2]
    read, produced, filtered, rejected = account(run, "out")
    assert rejected == len(bad)
    assert read + produced == len(sink.numbers) + filtered + rejected


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_bad_record_names_operator_error_and_bytes(kind: str) -> None:
    bad: list[Reject] = []
    chain(OPERATORS[kind](True), Collect(), bad).push(rows("batch", [2, 3]))
    [record] = bad
    assert record.reason == f"op raised ValueError: {'one' if kind == 'map_batches' else '3'} is odd"
    assert record.value == b'{"n": 3}'


def odd_as_text(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": "odd" if row["n"] % 2 else row["n"]}


MISFITS: dict[str, Operator] = {
    "map": MapRecords("op", odd_as_text, SCHEMA, rejects=True),
    "flat_map": FlatMap(
        "op", lambda row: [row, Side("copy", odd_as_text(row)), row], {"": SCHEMA, "copy": SCHEMA}, rejects=True
    ),
    "map_batches": MapBatches(
        "op",
        lambda batch: pa.record_batch({"n": ["odd" if n % 2 else str(n) for n in batch.column("n").to_pylist()]}),
        SCHEMA,
        rejects=True,
    ),
}


@pytest.mark.parametrize("form", ["records", "batch"])
@pytest.mark.parametrize("kind", MISFITS)
@given(values=st.lists(st.integers(-9, 9), min_size=1, max_size=20))
def test_what_does_not_fit_is_rejected_as_what_is_raised_is(kind: str, form: str, values: list[int]) -> None:
    bad: list[Reject] = []
    sink = Collect()
    run = chain(MISFITS[kind], sink, bad)
    run.push(rows(form, values))
    good = [n for n in values if n % 2 == 0]
    assert sink.numbers == sink.places == ([n for n in good for _ in range(2)] if kind == "flat_map" else good)
    assert [(record.where, record.value) for record in bad] == [
        ({"file": "f", "offset": n, "operator": "op"}, b'{"n": %d}' % n) for n in values if n % 2
    ]
    assert all(record.reason.startswith("op gave a record that does not fit: column 'n': ") for record in bad)
    read, produced, filtered, rejected = account(run, "out")
    assert read + produced == len(sink.numbers) + filtered + rejected


class Held(msgspec.Struct):
    n: Any


class Color(Enum):
    RED = "r"


TYPES: list[tuple[pa.DataType, list[Any], Any]] = [  # a type, values that are of it, one that is not
    (pa.int64(), [1, None, -(2**63)], 2**63),
    (pa.int32(), [0, 2**31 - 1], 2**31),
    (pa.int32(), [1], 1.5),
    (pa.float64(), [0.5, 1, None, float("nan")], "1.5"),
    (pa.string(), ["a", None], 1),
    (pa.bool_(), [True, None], "no"),
    (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None], "2024-01-01"),
    (pa.timestamp("us", "UTC"), [None], 1_700_000_000),
    (pa.date32(), [date(2024, 1, 1)], 19_000),
    (pa.float64(), [1.5], True),
    (pa.float32(), [1.5, 2], "2"),
    (pa.string(), [Color.RED, UUID(int=7), "c"], b"c"),
    (pa.binary(), [b"a", None], "a"),
    (pa.int16(), [-(2**15)], -(2**15) - 1),
    (pa.int64(), [1], True),
]
UNCHECKED: list[tuple[pa.DataType, Any]] = [  # what is written as it is, whatever it is made of
    (pa.struct([("n", pa.int64())]), Held(1)),
    (pa.list_(pa.int64()), frozenset([1])),
    (pa.decimal128(5, 2), 1.5),
    (pa.timestamp("us", "UTC"), date(2024, 1, 1)),
]
FORMS: dict[str, Callable[[str, Any], Any]] = {
    "dict": lambda name, value: {name: value},
    "tuple": lambda name, value: (value,),
    "struct": lambda name, value: Held(value),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["map", "flat_map"])
@pytest.mark.parametrize(("of", "good", "wrong"), TYPES)
def test_a_value_of_another_type_is_never_written(
    of: pa.DataType, good: list[Any], wrong: Any, kind: str, form: str
) -> None:
    schema, make = pa.schema([("n", of)]), FORMS[form]

    def run(values: list[Any]) -> list[Any]:
        def function(row: dict[str, Any]) -> Any:
            return make("n", values[row["n"]])

        operator: Operator = (
            MapRecords("op", function, schema)
            if kind == "map"
            else FlatMap("op", lambda row: [function(row)], {"": schema})
        )
        sink = Collect()
        chain(operator, sink).push(rows("records", list(range(len(values)))))
        return sink.numbers

    assert repr(run(good)) == repr(good)
    where = f"column 'n': .*; it was made of file f, offset {len(good)}\n.*on_error=.bad_record."
    with pytest.raises(TerminalError, match=f"^op gave a record that does not fit: {where}"):
        run([*good, wrong])


@pytest.mark.parametrize(("of", "value"), UNCHECKED)
def test_a_value_that_json_writes_by_its_own_type_goes_on(of: pa.DataType, value: Any) -> None:
    sink = Collect()
    chain(MapRecords("op", lambda row: {"n": value}, pa.schema([("n", of)])), sink).push(rows("records", [1]))
    assert sink.numbers == [value]


def test_flat_map_that_returns_nothing_in_braces_gives_nothing() -> None:
    sink = Collect()
    chain(FlatMap("op", lambda row: {}, {"": SCHEMA}), sink).push(rows("records", [1, 2]))
    assert sink.numbers == []


@pytest.mark.parametrize("one", [{"n": 1}, Held(1), Side("", {"n": 1})])
def test_one_record_instead_of_many_is_refused(one: Any) -> None:
    with pytest.raises(DefinitionError, match=r"op returned one record, .*\nNext: yield it, or return \[record\]"):
        chain(FlatMap("op", lambda row: one, {"": SCHEMA}), Collect()).push(rows("records", [1]))


@pytest.mark.parametrize("kind", OPERATORS)
def test_by_default_the_error_goes_on(kind: str) -> None:
    bad: list[Reject] = []
    with pytest.raises(ValueError, match="is odd"):
        chain(OPERATORS[kind](False), Collect(), bad).push(rows("records", [2, 3]))
    assert bad == []


@pytest.mark.parametrize("error", [TransientError("the server is away", next="wait"), MemoryError()])
def test_an_error_that_is_not_of_a_row_fails_the_task(error: Exception) -> None:
    def fail(row: Any) -> Any:
        raise error

    for operator in (
        MapRecords("op", fail, SCHEMA, rejects=True),
        MapBatches("op", fail, SCHEMA, rejects=True),
    ):
        with pytest.raises(type(error)):
            chain(operator, Collect(), []).push(rows("records", [1]))


class Counting(RichFunction):
    """Adds what it was opened with, and notes what is called."""

    calls: list[str] = []  # noqa: RUF012  (shared by all, as a list of a server's would be)
    opened = False

    def open(self) -> None:
        assert not self.opened
        self.opened = True
        self.calls.append("open")

    def close(self) -> None:
        assert self.opened
        self.opened = False
        self.calls.append("close")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        assert self.opened
        return row


@pytest.fixture
def calls() -> list[str]:
    Counting.calls.clear()
    return Counting.calls


def node(function: Any, kind: Any = "map") -> PythonNode:
    return PythonNode("op", [], kind, function, None if kind == "filter" else "n bigint", {})


def test_an_object_is_opened_with_the_first_row_and_closed_once(calls: list[str]) -> None:
    run = chain(operator_of(pickle.loads(pickle.dumps(node(Counting()))), SCHEMA), Collect())
    run.close()
    assert calls == [], "a task without rows opens nothing"
    run = chain(operator_of(node(Counting(), "filter"), SCHEMA), Collect())
    for value in (1, 2):
        run.push(rows("records", [value]))
    assert calls == ["open"]
    run.close()
    run.close()
    assert calls == ["open", "close"]


def test_one_object_in_two_places_is_two(calls: list[str]) -> None:
    function = Counting()
    first, second = (operator_of(node(function), SCHEMA) for _ in range(2))
    steps = [Step("a", first, []), Step("b", second, [Edge("a")]), Step("out", Collect(), [Edge("b")])]
    run = Chain(steps)
    run.push(rows("records", [1]))
    run.close()
    assert calls == ["open", "open", "close", "close"]


def test_every_function_is_closed_also_where_another_one_fails_to(calls: list[str]) -> None:
    class Broken(Counting):
        def close(self) -> None:
            super().close()
            raise OSError("cannot be closed")

    steps = [
        Step("a", operator_of(node(Counting()), SCHEMA), []),
        Step("b", operator_of(node(Broken()), SCHEMA), [Edge("a")]),
        Step("c", operator_of(node(Counting()), SCHEMA), [Edge("b")]),
    ]
    run = Chain(steps)
    run.push(rows("records", [1]))
    with pytest.raises(OSError, match="cannot be closed"):
        run.close()
    assert calls.count("close") == 3


def test_an_object_that_nobody_would_close_is_refused() -> None:
    class Half:
        def open(self) -> None: ...

        def __call__(self, row: Any) -> Any:
            return row

    stream = Job("a").from_source(DatagenSource("n int"))
    with pytest.raises(DefinitionError, match=r"has open\(\) and no close\(\)"):
        stream.map(Half(), schema="n int")
    with pytest.raises(DefinitionError, match="on_error='skip' is not known"):
        stream.filter(bool, on_error="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["at", "coded", "day", "key", "list", "map", "within", "zoned"])
@pytest.mark.parametrize("kind", ["map", "filter", "flat_map"])
def test_a_row_whose_time_python_has_not_is_a_bad_record_and_the_others_go_on(kind: str, column: str) -> None:
    """It ended the job, whatever the job said of bad records."""
    beyond = pa.array([0, 253_402_300_800_000_000, None, -1], pa.timestamp("us", "UTC"))
    columns = {
        "at": beyond,
        "day": pa.array([0, 3_000_000, None, 2_932_896], pa.date32()),
        "zoned": beyond.cast(pa.int64()).cast(pa.timestamp("us", "Asia/Tokyo")),
        "coded": beyond.dictionary_encode(),
        "list": pa.ListArray.from_arrays(pa.array(range(5), pa.int32()), beyond),
        "map": pa.MapArray.from_arrays(pa.array(range(5), pa.int32()), pa.array(list("abcd")), beyond),
        "key": pa.MapArray.from_arrays(pa.array(range(5), pa.int32()), beyond.fill_null(0), pa.array(list("abcd"))),
        "within": pa.StructArray.from_arrays([pa.array([[1]] * 4), beyond], names=["numbers", "at"]),
    }
    operators = {
        "map": MapRecords("op", lambda row: {"n": row["n"]}, SCHEMA),
        "filter": Filter(lambda row: row["n"] != 4),
        "flat_map": FlatMap("op", lambda row: [{"n": row["n"]}], {"": SCHEMA}),
    }
    batch = Batch(pa.record_batch({"n": [1, 2, 3, 4], column: columns[column]}), FileOrigin("f", range(1, 5)))
    bad: list[Reject] = []
    sink = Collect()
    run = chain(operators[kind], sink, bad)
    run.push(batch)
    kept = [1, 3] if kind == "filter" else [1, 3, 4]
    assert sink.numbers == sink.places == kept
    [record] = bad
    assert record.where == {"file": "f", "offset": 2, "operator": "op"}
    assert record.reason.startswith(f"op cannot be given it: column '{column}': a value of the type ")
    assert (b"3000000" if column == "day" else b"253402300800000000") in record.value
    assert account(run, "out") == (4, 0, len([1, 3, 4]) - len(kept), 1)
    with pytest.raises(TerminalError, match="that Python has not"):
        chain(operators[kind], Collect()).push(batch)
