"""The first records of each key by columns against the same record by record: every change, in the order of the rows that made it, and
state that either of them goes on from.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.operator import change_schema
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.top_n import ColumnTopN
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.operators.process.top_n import TopN, TopNOperator
from poundlock.operators.records import RecordMaker
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.definitions import sort_columns
from poundlock.tasks.keyed_rows import KeyedInput, RecordRows
from support.column_scripts import Form, StepScript
from support.examples import examples

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("l", pa.list_(pa.float64())), ("t", pa.string())])),
    ]
)


def step(
    top: TopN, form: Form | random.Random, *, bounded: bool = False, policy: MergePolicy | None = None
) -> StepScript:
    return StepScript(
        lambda: TopNOperator(top, bounded=bounded),
        ColumnTopN(top, SCHEMA, RowKeys(("k",), key_hashes), "at", bounded).operator,
        KeyedInput(keys=["k"], time="at", elements=RecordMaker(tuple(SCHEMA.names))),
        RecordRows("top", change_schema(SCHEMA, top.rank)),
        form,
        policy or MergePolicy(),
    )


def batch(dice: random.Random, count: int, keys: int) -> pa.RecordBatch:
    rows = [
        {
            "k": f"key-{dice.randrange(keys)}",
            "n": dice.choice([None, *range(-4, 4)]),
            "x": dice.choice([None, nan, inf, -inf, 0.0, -0.0, dice.uniform(-1, 1)]),
            "text": dice.choice([None, "", "a", "b" * 40]),
            "at": dice.choice([None, EPOCH + timedelta(milliseconds=dice.randrange(9))]),
            "s": dice.choice([None, {"l": dice.choice([None, [], [nan], [None, 1.0], [0.0]]), "t": dice.choice("xy")}]),
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@examples(60)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_is_what_records_do(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    directions = st.sampled_from(["", " desc", " nulls last", " desc nulls first"])
    names = data.draw(st.lists(st.sampled_from(["n", "x", "text", "at", "s"]), max_size=3, unique=True))
    rank = data.draw(st.sampled_from([None, "place"]))
    n = data.draw(st.sampled_from([1, 2, 5, 20]))
    top = TopN(
        n,
        sort_columns([name + data.draw(directions) for name in names]) if names else [],
        rank,
        data.draw(st.sampled_from([None, None, 30])),
        data.draw(st.booleans()) if rank else False,
        data.draw(st.one_of(st.just(1), st.integers(1, n))),
    )
    bounded, policy = data.draw(st.booleans()), MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    steps = [step(top, form, bounded=bounded, policy=policy) for form in ("record", "columns", random.Random(seed))]
    keys, count, clock = dice.choice([1, 3, 40]), dice.randrange(1, 6), 0
    for number in range(count):
        clock += dice.randrange(20)
        rows = batch(dice, dice.randrange(120), keys)
        before, after = MIN + number, MAX if number == count - 1 else MIN + number + 1
        tasks = dice.choice([1, 2, 3])
        wanted, *others = (each.checkpoint(rows, before, after, clock, tasks) for each in steps)
        for other in others:
            for (one, end), (mine, my_end) in zip(wanted, other, strict=True):
                assert repr(mine) == repr(one)
                assert sorted(map(repr, my_end)) == sorted(map(repr, end))


def numbers(values: list[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"k": "a", "n": value, "text": f"r{i}"} for i, value in enumerate(values)], schema=SCHEMA
    )


@pytest.mark.parametrize("form", ["record", "columns"])
def test_changes_without_rank(form: Form) -> None:
    one = step(TopN(2, sort_columns(["n desc"])), form)
    ((came, _),) = one.checkpoint(numbers([3, None, 3, 3, 5]), MIN, MIN, 0, 1)
    assert [(row["text"], row[ROW_KIND]) for row in came] == [
        ("r0", "+I"),
        ("r1", "+I"),
        ("r1", "-D"),
        ("r2", "+I"),
        ("r2", "-D"),
        ("r4", "+I"),
    ]


@pytest.mark.parametrize("form", ["record", "columns"])
def test_places_before_the_first_that_is_wanted_do_not_come_out(form: Form) -> None:
    one = step(TopN(3, sort_columns(["n"]), first=2), form)
    ((came, _),) = one.checkpoint(numbers([5, 7, 6, 1, 9, 1]), MIN, MIN, 0, 1)
    assert [(row["text"], row[ROW_KIND]) for row in came] == [
        ("r1", "+I"),
        ("r2", "+I"),
        ("r1", "-D"),
        ("r0", "+I"),
        ("r2", "-D"),
        ("r5", "+I"),
    ]
    one = step(TopN(3, [], first=2), form)
    ((came, _),) = one.checkpoint(numbers([5, 7, 6, 1]), MIN, MIN, 0, 1)
    assert [(row["text"], row[ROW_KIND]) for row in came] == [("r1", "+I"), ("r2", "+I")]


@pytest.mark.parametrize("form", ["record", "columns"])
def test_changes_with_rank(form: Form) -> None:
    one = step(TopN(2, sort_columns(["n"]), "place", None, True), form)
    ((came, _),) = one.checkpoint(numbers([3, 5, 4, 9]), MIN, MIN, 0, 1)
    assert [(row["text"], row["place"], row[ROW_KIND]) for row in came] == [
        ("r0", 1, "+I"),
        ("r1", 2, "+I"),
        ("r1", 2, "-U"),
        ("r2", 2, "+U"),
    ]
    ((came, _),) = one.checkpoint(numbers([1]), MIN, MIN, 0, 1)
    assert [(row["n"], row["place"], row[ROW_KIND]) for row in came] == [
        (3, 1, "-U"),
        (1, 1, "+U"),
        (4, 2, "-U"),
        (3, 2, "+U"),
    ]


@pytest.mark.parametrize("form", ["record", "columns"])
def test_state_of_another_order_is_refused(form: Form) -> None:
    one, other = (step(TopN(n, sort_columns(["n"])), form) for n in (2, 3))
    one.checkpoint(numbers([3, 5, 4, 9]), MIN, MIN, 0, 1)
    other.state = one.state
    with pytest.raises(TerminalError, match="'top' holds the first 2 by n, and the first 3 by n are asked for"):
        other.checkpoint(numbers([3]), MIN, MIN, 0, 1)
