"""The Python part of a pipeline: what comes out, and that every row is accounted for on the way to every sink."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, KafkaOrigin, Lines, Records
from poundlock.operators.chain import Chain, Edge, Emit, Operator, Pass, Step
from poundlock.operators.user_functions import Filter, FlatMap, MapBatches, MapRecords
from poundlock.stream.stream import Side
from support.chain_account import account

N = pa.schema([("n", pa.int64())])


class Collect:
    """A terminal step that keeps what reaches it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.places: list[Any] = []

    def process(self, chunk: Chunk, emit: Emit) -> None:
        records = convert.to_records(chunk)
        self.rows += records.rows
        self.places += [records.where(i) for i in range(len(records))]


def numbers(*values: int) -> Records:
    origin = KafkaOrigin("t", np.zeros(len(values), np.int32), np.arange(len(values), dtype=np.int64))
    return Records([{"n": v} for v in values], origin)


def chain(*steps: tuple[str, Operator, list[Edge]]) -> Chain:
    return Chain([Step("in", Pass(), []), *(Step(*s) for s in steps)])


def test_map_flat_map_and_filter_keep_the_place_of_each_row() -> None:
    sink = Collect()
    run = chain(
        ("even", Filter(lambda r: r["n"] % 2 == 0), [Edge("in")]),
        ("twice", FlatMap("twice", lambda r: [r, r], {"": N}), [Edge("even")]),
        ("neg", MapRecords("neg", lambda r: {"n": -r["n"]}, N), [Edge("twice")]),
        ("out", sink, [Edge("neg")]),
    )
    run.push(numbers(1, 2, 3, 4))
    assert [r["n"] for r in sink.rows] == [-2, -2, -4, -4]
    assert [p["offset"] for p in sink.places] == [1, 1, 3, 3]
    assert account(run, "out") == (4, 2, 2, 0)  # 4 read + 2 produced = 4 that arrived + 2 filtered


def test_side_output_goes_only_to_its_readers() -> None:
    main, side = Collect(), Collect()
    run = chain(
        (
            "split",
            FlatMap(
                "split",
                lambda r: [r] if r["n"] > 0 else [Side("bad", {"why": "low"})],
                {"": N, "bad": pa.schema([("why", pa.string())])},
            ),
            [Edge("in")],
        ),
        ("bad", Pass(), [Edge("split", "bad")]),
        ("main-out", main, [Edge("split")]),
        ("side-out", side, [Edge("bad")]),
    )
    run.push(numbers(1, -1, 2))
    assert [r["n"] for r in main.rows] == [1, 2]
    assert side.rows == [{"why": "low"}]
    assert account(run, "main-out") == (3, -1, 0, 0)
    assert account(run, "side-out") == (3, -2, 0, 0)


def test_filter_keeps_lines_as_lines() -> None:
    seen: list[Chunk] = []

    class Keep:
        def process(self, chunk: Chunk, emit: Emit) -> None:
            seen.append(chunk)

    run = chain(("f", Filter(lambda r: b"b" in r["value"]), [Edge("in")]), ("out", Keep(), [Edge("f")]))
    run.push(Lines(memoryview(b"a\nb\nbb\n"), np.array([1, 3, 6])))
    assert isinstance(seen[0], Lines)
    assert bytes(seen[0].data) == b"b\nbb\n"


def test_map_batches_accepts_batches_tables_and_generators() -> None:
    for give in (lambda b: b, lambda b: pa.Table.from_batches([b]), lambda b: (b.slice(i, 1) for i in range(len(b)))):
        sink = Collect()
        operator = MapBatches("m", give, N)
        run = chain(("m", operator, [Edge("in")]), ("out", sink, [Edge("m")]))
        run.push(Batch(pa.RecordBatch.from_pydict({"n": pa.array([1, 2], pa.int64())})))
        assert [r["n"] for r in sink.rows] == [1, 2]


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        (MapRecords("m", lambda r: None, N), "m returned NoneType, not a dict"),  # type: ignore[arg-type, return-value]
        (MapRecords("m", lambda r: {"x": 1}, N), "m returned the undeclared column 'x'"),
        (
            FlatMap("m", lambda r: [Side("late", r)], {"": N}),
            "m sent a record to the undeclared side output 'late'",
        ),
        (MapBatches("m", lambda b: 7, N), "m returned int, not Arrow"),
        (
            MapBatches("m", lambda b: b.rename_columns(["q"]), N),
            "m returned the undeclared column 'q'",
        ),
        (
            MapBatches("m", lambda b: pa.RecordBatch.from_arrays([b["n"], b["n"]], names=["n", "n"]), N),
            "m returned two columns 'n'",
        ),
    ],
)
def test_a_function_that_breaks_its_declaration_is_named(operator: Operator, says: str) -> None:
    run = chain(("m", operator, [Edge("in")]), ("out", Collect(), [Edge("m")]))
    with pytest.raises(DefinitionError, match=says):
        run.push(numbers(1))


def test_a_missing_column_is_null() -> None:
    sink = Collect()
    run = chain(
        ("m", MapRecords("m", lambda r: {"n": 1}, pa.schema([*N, ("s", pa.string())])), [Edge("in")]),
        ("out", sink, [Edge("m")]),
    )
    run.push(numbers(1))
    assert sink.rows == [{"n": 1, "s": None}]


@given(st.lists(st.integers(-5, 5), max_size=30), st.integers(0, 3), st.integers(1, 4))
def test_every_row_is_accounted_for(values: list[int], copies: int, modulus: int) -> None:
    left, both = Collect(), Collect()
    run = chain(
        ("copy", FlatMap("copy", lambda r: [r] * copies, {"": N}), [Edge("in")]),
        ("keep", Filter(lambda r: r["n"] % modulus == 0), [Edge("copy")]),
        ("both", Pass(), [Edge("keep"), Edge("copy"), Edge("in")]),  # a union of what diverged
        ("left-out", left, [Edge("keep")]),
        ("both-out", both, [Edge("both")]),
    )
    run.push(numbers(*values))
    for name, sink in (("left-out", left), ("both-out", both)):
        read, produced, filtered, rejected = account(run, name)
        assert read == len(values)
        assert read + produced == len(sink.rows) + filtered + rejected
