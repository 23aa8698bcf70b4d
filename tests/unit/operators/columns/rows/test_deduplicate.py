"""Deduplication by columns against the same record by record: what comes out and in which order, late records, keys whose time is over,
and state that either of them goes on from.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.operators.columns.rows.deduplicate import ColumnDeduplication, FirstRecords, LastRecords
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.operators.process.deduplicate import ROW_KIND, FirstRecordOperator, LastRecordOperator, Order
from poundlock.operators.records import RecordMaker
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.tasks.keyed_rows import KeyedInput, RecordRows
from support.column_scripts import Form, StepScript
from support.examples import examples

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
START = round(EPOCH.timestamp() * 1000)
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
CHANGES = SCHEMA.append(pa.field(ROW_KIND, pa.string()))


def step(keep: str, order: Order, form: Form | random.Random, ttl_ms: int | None = None, **options: Any) -> StepScript:
    rows = ColumnDeduplication(order, SCHEMA, RowKeys(("k",), key_hashes), "at", ttl_ms)
    policy = options.pop("policy", MergePolicy())
    columns = FirstRecords(rows) if keep == "first" else LastRecords(rows, **options)
    operator: Any = FirstRecordOperator if keep == "first" else LastRecordOperator
    return StepScript(
        lambda: operator(order, ttl_ms=ttl_ms, **options),
        columns.operator,
        KeyedInput(keys=["k"], time="at", elements=RecordMaker(tuple(SCHEMA.names))),
        RecordRows("deduplicate", SCHEMA if keep == "first" else CHANGES),
        form,
        policy,
    )


def batch(rows: list[tuple[int | None, int, int | None]]) -> pa.RecordBatch:
    """Return rows of key, number and event time in ms since EPOCH."""
    return pa.RecordBatch.from_pylist(
        [
            {"k": k, "n": n, "at": None if at is None else EPOCH + timedelta(milliseconds=at), "text": "x" * (n % 40)}
            for k, n, at in rows
        ],
        schema=SCHEMA,
    )


@examples(60)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_is_what_records_do(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    keep, orders = data.draw(st.sampled_from(["first", "last"])), get_args(Order)
    order: Order = data.draw(st.sampled_from(orders))
    options: dict[str, Any] = {"ttl_ms": data.draw(st.sampled_from([None, None, 3, 50]))}
    if keep == "last":
        options |= {"update_before": data.draw(st.booleans()), "bounded": data.draw(st.booleans())}
    options["policy"] = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    steps = [step(keep, order, form, **options) for form in ("record", "columns", random.Random(seed))]
    keys, count, spread = dice.choice([1, 4, 50]), dice.randrange(1, 7), dice.choice([20, 200_000])
    before, clock = MIN, dice.choice([5, START])
    for number in range(count):
        clock += dice.randrange(20)
        rows = batch(
            [
                (
                    dice.choice([None, *range(keys)]),
                    dice.randrange(100),
                    None if order == "arrival" and dice.random() < 0.2 else dice.randrange(spread),
                )
                for _ in range(dice.randrange(80))
            ]
        )
        after = MAX if number == count - 1 else max(before, START + dice.randrange(spread) - spread // 4)
        tasks = dice.choice([1, 2, 3])
        wanted, *others = (each.checkpoint(rows, before, after, clock, tasks) for each in steps)
        for other in others:
            for (one, end), (mine, my_end) in zip(wanted, other, strict=True):
                assert mine == one
                if keep == "last":
                    assert sorted(my_end, key=repr) == sorted(end, key=repr), "at the end in any order"
                else:
                    assert my_end == end
        before = after
    assert [each.late_dropped for each in steps[1:]] == [steps[0].late_dropped] * 2


@pytest.mark.parametrize("form", ["record", "columns"])
def test_the_first_by_event_time_comes_when_the_watermark_reaches_it(form: Form) -> None:
    one = step("first", "event_time", form)
    assert one.checkpoint(batch([(1, 1, 500), (1, 2, 300), (2, 3, 900), (1, 4, 300)]), MIN, START + 100, 0, 1) == [
        ([], [])
    ]
    ((came, fired),) = one.checkpoint(batch([(1, 5, 250), (3, 6, 90)]), START + 100, START + 260, 0, 1)
    assert (came, [row["n"] for row in fired], one.late_dropped) == ([], [5], 1)
    ((_, fired),) = one.checkpoint(batch([(1, 7, 270), (2, 8, 901)]), START + 260, MAX, 0, 1)
    assert [row["n"] for row in fired] == [3]


@pytest.mark.parametrize("form", ["record", "columns"])
def test_the_last_tells_what_it_replaces(form: Form) -> None:
    one = step("last", "event_time", form, update_before=True)
    ((came, _),) = one.checkpoint(batch([(1, 1, 5), (1, 2, 3), (1, 3, 5)]), MIN, MIN, 0, 1)
    assert [(row["n"], row[ROW_KIND]) for row in came] == [(1, "+I"), (1, "-U"), (3, "+U")]
    ((came, _),) = one.checkpoint(batch([(1, 4, 4), (2, 5, 0)]), MIN, MIN, 0, 1)
    assert [(row["n"], row[ROW_KIND]) for row in came] == [(5, "+I")]
    arrived = step("last", "arrival", form)
    ((came, _),) = arrived.checkpoint(batch([(1, 1, 5), (1, 2, 3)]), MIN, MIN, 0, 1)
    assert [(row["n"], row[ROW_KIND]) for row in came] == [(1, "+I"), (2, "+U")]


@pytest.mark.parametrize("form", ["record", "columns"])
def test_a_key_whose_time_is_over_begins_again(form: Form) -> None:
    one = step("first", "arrival", form, ttl_ms=100)
    for clock, emitted in ((START, [1]), (START + 99, []), (START + 100, [1])):
        ((came, _),) = one.checkpoint(batch([(1, 1, 5), (1, 2, 6)]), MIN, MIN, clock, 1)
        assert [row["n"] for row in came] == emitted


@pytest.mark.parametrize("form", ["record", "columns"])
def test_a_record_without_event_time_is_refused_in_words(form: Form) -> None:
    with pytest.raises(DefinitionError, match="a record without event time cannot be deduplicated by event time"):
        step("first", "event_time", form).checkpoint(batch([(1, 1, None)]), MIN, MIN, 0, 1)
