"""Rolling aggregates by columns against the same record by record: what comes out for each row and in which order, what comes out at
the end, and state that either of them goes on from.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.rolling import ColumnRolling
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.operators.records import RecordMaker
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.tasks.keyed_rows import KeyedInput, RecordRows
from support.column_scripts import Form, StepScript
from support.examples import examples

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, -7, 3, 1 << 50, -(1 << 63), (1 << 63) - 1],
    pa.int32(): [None, 5, -5, 1 << 20],
    pa.float64(): [None, 0.0, -0.0, 0.1, 1e300, -3.7, nan, inf],
    pa.decimal128(12, 2): [None, Decimal("0.10"), Decimal("-12345.67"), Decimal("9.99")],
    pa.string(): [None, "", "b", "größe", "x" * 40],
    pa.timestamp("us", "UTC"): [None, EPOCH, EPOCH + timedelta(microseconds=7)],
    pa.list_(pa.float64()): [None, [], [None], [1.0, None], [1.0], [nan], [inf]],
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]): [
        None,
        {"a": None, "b": ["x"]},
        {"a": 1, "b": None},
        {"a": 1, "b": ["x", "y"]},
        {"a": 1, "b": ["y"]},
    ],
}
SUMMED = [pa.int32(), pa.float64(), pa.decimal128(12, 2)]


def schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("k", pa.string()),
            ("v", kind),
            ("at", pa.timestamp("us", "UTC")),
            ("name", pa.string()),
            ("flag", pa.bool_()),
            ("list", pa.list_(pa.int64())),
            ("day", pa.date32()),
        ]
    )


def step(kind: str, value: pa.DataType, form: Form | random.Random, **options: Any) -> StepScript:
    first, bounded = options.pop("first", True), options.pop("bounded", False)
    columns = schema(value)
    rolling = ColumnRolling(kind, "v", first, columns, RowKeys(("k",), key_hashes), "at", bounded)
    return StepScript(
        lambda: RollingOperator(rolling_fold(kind, "v", first=first), bounded=bounded),
        rolling.operator,
        KeyedInput(keys=["k"], time="at", elements=RecordMaker(tuple(columns.names))),
        RecordRows("rolling", columns),
        form,
        **options,
    )


def batch(dice: random.Random, kind: pa.DataType, count: int, keys: int) -> pa.RecordBatch:
    rows = [
        {
            "k": dice.choice([None, *(f"key-{n}" for n in range(keys))]),
            "v": dice.choice(VALUES[kind]),
            "at": dice.choice([None, EPOCH + timedelta(milliseconds=dice.randrange(10_000))]),
            "name": dice.choice([None, "a", "long " * 9]),
            "flag": dice.choice([None, True, False]),
            "list": dice.choice([None, [], [1, None]]),
            "day": dice.choice([None, EPOCH.date()]),
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema(kind))


@examples(60)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_is_what_records_do(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    kind = data.draw(st.sampled_from(["sum", "min", "max", "min_by", "max_by"]))
    value = data.draw(st.sampled_from(SUMMED if kind == "sum" else list(VALUES)))
    options = {
        "first": data.draw(st.booleans()) if kind.endswith("_by") else True,
        "bounded": data.draw(st.booleans()),
        "policy": MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8]))),
    }
    steps = [step(kind, value, form, **options) for form in ("record", "columns", random.Random(seed))]
    keys, times = dice.choice([1, 3, 40]), dice.randrange(1, 6)
    for number in range(times):
        rows = batch(dice, value, dice.randrange(150), keys)
        before, after = MIN + number, MAX if number == times - 1 else MIN + number + 1
        tasks = dice.choice([1, 2, 3])
        wanted, *others = (each.checkpoint(rows, before, after, number, tasks) for each in steps)
        for other in others:
            for (one, end), (mine, my_end) in zip(wanted, other, strict=True):
                assert repr(mine) == repr(one), "a row for each, in the order they came"
                assert sorted(map(repr, my_end)) == sorted(map(repr, end))
                assert not options["bounded"] or not mine


def test_a_key_with_many_rows_is_added_up_one_by_one() -> None:
    dice = random.Random(3)
    numbers = [dice.uniform(-1e9, 1e9) for _ in range(5_000)]
    rows = [{"k": "a" if n % 3 else f"b{n % 7}", "v": value} for n, value in enumerate(numbers)]
    given_rows = pa.RecordBatch.from_pylist(rows, schema=schema(pa.float64()))
    one, other = step("sum", pa.float64(), "record"), step("sum", pa.float64(), "columns")
    assert other.checkpoint(given_rows, MIN, 0, 0, 1) == one.checkpoint(given_rows, MIN, 0, 0, 1)


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        (pa.int64(), [(1 << 63) - 1, 1], "a sum is beyond 64 bits"),
        (pa.int32(), [(1 << 31) - 1, 1], "does not fit its type, int32"),
        (pa.decimal128(38, 0), [Decimal(10) ** 37 * 9] * 2, "more than 38 digits"),
    ],
)
def test_a_sum_that_its_column_cannot_hold_is_refused(kind: pa.DataType, values: list[Any], reason: str) -> None:
    rows = pa.RecordBatch.from_pylist([{"k": "a", "v": value} for value in values], schema=schema(kind))
    with pytest.raises(TerminalError, match=reason):
        step("sum", kind, "columns").checkpoint(rows, MIN, 0, 0, 1)


def test_state_of_a_column_that_has_another_type_now_is_refused() -> None:
    before = step("max", pa.string(), "columns")
    rows = pa.RecordBatch.from_pylist([{"k": "a", "v": "text"}], schema=schema(pa.string()))
    before.checkpoint(rows, MIN, 0, 0, 1)
    after = step("max", pa.int64(), "columns")
    after.state = before.state
    rows = pa.RecordBatch.from_pylist([{"k": "a", "v": 1}], schema=schema(pa.int64()))
    with pytest.raises(TerminalError, match="state holds a record that is not of the columns there are: column 'v'"):
        after.checkpoint(rows, 0, 1, 0, 1)
