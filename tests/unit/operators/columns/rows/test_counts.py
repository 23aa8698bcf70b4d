"""Windows of a number of rows by columns against the same record by record: results in the order of the rows that filled them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.aggregation import Aggregation, FunctionAggregation
from poundlock.operators.columns.operator import ResultColumns
from poundlock.operators.columns.rows import sliding_counts
from poundlock.operators.columns.rows.counts import ColumnCounts
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.sliding_counts import ColumnSlidingCounts
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.factory import by_record, window_operator
from poundlock.operators.keyed.group import MIN
from poundlock.operators.records import RecordMaker
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.plan.sql_text import result_type
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.windows.builtin_assigners import CountSlidingWindows, CountTumblingWindows
from poundlock.tasks.keyed_rows import KeyedInput, WindowRows
from support.column_scripts import Form, StepScript
from support.examples import examples
from support.own_aggregate import LISTED, OWN_RESULT, OWN_SQL, Own

AGGREGATES = [
    SqlAggregate(kind="count"),
    SqlAggregate(kind="sum", column=0),
    SqlAggregate(kind="min", column=0),
    SqlAggregate(kind="max", column=1),
    SqlAggregate(kind="avg", column=0),
    SqlAggregate(kind="count_distinct", column=1),
    SqlAggregate(kind="first", column=1),
    SqlAggregate(kind="last", column=1, ignore_nulls=True),
    SqlAggregate(kind="collect_list", column=0),
    SqlAggregate(kind="max_by", column=1, by=0),
    SqlAggregate(kind="min", column=2),
    SqlAggregate(kind="max", column=2),
    SqlAggregate(kind="count_distinct", column=2),
    SqlAggregate(kind="min_by", column=0, by=2),
    SqlAggregate(kind="max_by", column=2, by=2),
]
ARGUMENTS = {
    "v": pa.int64(),
    "w": pa.string(),
    "s": pa.struct([("l", pa.list_(pa.int64())), ("t", pa.string())]),
}
KEYS: dict[str, list[pa.Field]] = {
    "text": [pa.field("k", pa.string())],
    "both": [pa.field("k", pa.string()), pa.field("k2", pa.int64())],
    "none": [],
}


def step(
    windows: int | CountSlidingWindows,
    aggregates: list[SqlAggregate],
    keys: list[pa.Field],
    form: Form,
    policy: MergePolicy | None = None,
    own: Own | None = None,
) -> StepScript:
    kinds = list(ARGUMENTS.values())
    sql = ColumnAggregates(tuple(aggregates), tuple(kinds))
    of: Aggregation = sql if own is None else FunctionAggregation("own", own, tuple(ARGUMENTS), OWN_RESULT)
    assigner = CountTumblingWindows(windows) if isinstance(windows, int) else windows
    spec = WindowSpec(assigner=assigner, function=SqlAggregates(aggregates))
    assert by_record(spec) is None
    assert by_record(WindowSpec(assigner=assigner, function=ArrowAggregateWindow(Own()))) is None
    types = [
        result_type(
            each,
            None if each.column is None else kinds[int(each.column)],
            "windows",
            None if each.by is None else kinds[int(each.by)],
        )
        for each in aggregates
    ]
    results = [pa.field(f"r{number}", kind) for number, kind in enumerate(types)]
    names = [key.name for key in keys]
    rows = RowKeys(tuple(names), key_hashes), tuple(ARGUMENTS), of, ResultColumns(keys, results)
    columns: ColumnCounts | ColumnSlidingCounts
    if isinstance(windows, CountSlidingWindows):
        columns = ColumnSlidingCounts(windows.n, windows.slide, windows.full_only, *rows)
    else:
        columns = ColumnCounts(windows, *rows) if own is None else ColumnSlidingCounts(windows, windows, False, *rows)
    return StepScript(
        lambda: window_operator(spec),
        columns.operator,
        KeyedInput(keys=names, time=None, elements=RecordMaker(tuple(ARGUMENTS), tuple)),
        WindowRows(keys, results),
        form,
        policy or MergePolicy(),
    )


def batch(dice: random.Random, count: int, keys: list[pa.Field]) -> pa.RecordBatch:
    rows = [
        {
            "k": dice.choice(["a", "b", "c" * 40, None]),
            "k2": dice.choice([None, 1]),
            "v": dice.choice([None, dice.randrange(-50, 50)]),
            "w": dice.choice([None, "x", "y", "zz"]),
            "s": dice.choice([None, {"l": dice.choice([None, [], [None], [1, 2]]), "t": dice.choice([None, "x"])}]),
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([*keys, *ARGUMENTS.items()]))


SIZES = [1, 2, 3, 4, 6, 7, 12, 100]
WINDOWS = st.sampled_from([1, 2, 7, 100]) | st.builds(
    CountSlidingWindows, st.sampled_from(SIZES), st.sampled_from(SIZES), st.booleans()
)


@examples(60)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_is_what_records_do(data: st.DataObject, seed: int) -> None:
    compare(data, seed, data.draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4)), None)


@examples(60)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_a_function_of_columns_does_is_what_sql_does(data: st.DataObject, seed: int) -> None:
    compare(data, seed, [*OWN_SQL, LISTED], Own())


def compare(data: st.DataObject, seed: int, aggregates: list[SqlAggregate], own: Own | None) -> None:
    dice, windows = random.Random(seed), data.draw(WINDOWS)
    keys = KEYS[data.draw(st.sampled_from(list(KEYS)))]
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    one, other = (step(windows, aggregates, keys, form, policy, own) for form in ("record", "columns"))
    with pytest.MonkeyPatch.context() as patch:  # few panes at a time, or all
        patch.setattr(sliding_counts, "_AT_ONCE", data.draw(st.sampled_from([5, 1 << 20])))
        for number in range(dice.randrange(1, 7)):
            rows, tasks = batch(dice, dice.randrange(90), keys), dice.choice([1, 2, 3])
            moment = MIN + number, MIN + number + 1, number, tasks
            assert other.checkpoint(rows, *moment) == one.checkpoint(rows, *moment)


@pytest.mark.parametrize(
    ("windows", "came", "panes"),
    [
        (CountSlidingWindows(12, 4), 50, [4, 4, 2]),
        (CountSlidingWindows(12, 4), 52, [4, 4]),
        (CountSlidingWindows(12, 4, full_only=True), 5, [4, 1]),
        (CountSlidingWindows(5, 3), 50, [1, 1, 1, 1]),
        (CountSlidingWindows(4, 12), 55, None),  # of the gap there is the number of rows
        (CountSlidingWindows(4, 12), 59, [3]),
        (CountSlidingWindows(4, 12), 60, []),
    ],
)
def test_state_has_the_panes_of_windows_to_come_and_no_others(
    windows: CountSlidingWindows, came: int, panes: list[int] | None
) -> None:
    sliding = step(windows, AGGREGATES[:1], KEYS["text"], "columns")
    rows = pa.RecordBatch.from_pylist([{"k": "a"}] * came, schema=pa.schema([*KEYS["text"], *ARGUMENTS.items()]))
    sliding.checkpoint(rows, MIN, MIN, 0, 1)
    table = sliding.state.described()["state"].get("contents", {"entries": []})
    held = [entry["value"] for entry in table["entries"]]
    if panes == []:
        assert held == [], "a key that is at the end of a slide is forgotten"
        return
    ((rows_so_far, _, kept),) = held
    assert rows_so_far == (came if windows.slide < windows.n else came % windows.slide)
    assert kept == [[count] for count in panes or []]


def test_panes_that_no_firing_window_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sliding = step(CountSlidingWindows(1000, 100), AGGREGATES[:1], KEYS["text"], "columns")
    schema = pa.schema([*KEYS["text"], *ARGUMENTS.items()])
    of_a, of_b = (
        pa.RecordBatch.from_pylist([{"k": key}] * count, schema=schema) for key, count in (("a", 950), ("b", 999))
    )
    for rows in (of_a, of_b):
        sliding.checkpoint(rows, MIN, MIN, 0, 1)
    decoded: list[int] = []
    real = ColumnAggregates.decode

    def counted(self: ColumnAggregates, values: pa.Array) -> Any:
        decoded.append(len(values))
        return real(self, values)

    monkeypatch.setattr(ColumnAggregates, "decode", counted)
    ((results, _),) = sliding.checkpoint(pa.concat_batches([of_a.slice(0, 1), of_b.slice(0, 1)]), MIN, MIN, 0, 1)
    assert [(row["k"], row["r0"]) for row in results] == [("b", 1000)]
    assert sum(decoded) == 10 + 1, "all of the window that is full, and the open pane of the other key"


def test_windows_that_became_smaller_are_full_with_the_next_row() -> None:
    rows = pa.RecordBatch.from_pylist([{"k": "a", "v": 1}] * 5, schema=pa.schema([*KEYS["text"], *ARGUMENTS.items()]))
    came = []
    for form in ("record", "columns"):
        before, after = (step(n, AGGREGATES[:2], KEYS["text"], form) for n in (9, 3))
        before.checkpoint(rows, MIN, MIN, 0, 1)
        after.state = before.state
        came.append([after.checkpoint(rows, MIN, MIN, 0, 1), after.checkpoint(rows, MIN, MIN, 0, 1)])
    assert came[0] == came[1]
    assert [row["r0"] for row in came[1][0][0][0]] == [6, 3]


def test_state_of_the_other_way_and_of_other_aggregates_is_refused() -> None:
    rows = batch(random.Random(1), 5, KEYS["text"])

    def goes_on(first: Any, then: Any) -> None:
        first.checkpoint(rows, MIN, MIN, 0, 1)
        then.state = first.state
        then.checkpoint(rows, MIN, MIN, 0, 1)

    text = KEYS["text"]
    with pytest.raises(TerminalError, match="'contents' is kept as counted state and asked for as counts state"):
        goes_on(step(9, AGGREGATES[:1], text, "record"), step(9, AGGREGATES[:1], text, "columns"))
    with pytest.raises(TerminalError, match="'contents' is kept as counts state and asked for as counted state"):
        goes_on(step(9, AGGREGATES[:1], text, "columns"), step(9, AGGREGATES[:1], text, "record"))
    with pytest.raises(TerminalError, match="state 'contents' holds count, and sum bigint are asked for"):
        goes_on(step(9, AGGREGATES[:1], text, "columns"), step(9, AGGREGATES[1:2], text, "columns"))
    sliding = CountSlidingWindows(9, 6)
    with pytest.raises(TerminalError, match="kept as evictable windows state and asked for as sliding counts state"):
        goes_on(step(sliding, AGGREGATES[:1], text, "record"), step(sliding, AGGREGATES[:1], text, "columns"))
    panes = "panes of 3 rows, windows of 9 every 6"
    for n, slide, full_only, other in (
        (9, 3, False, "panes of 3 rows, windows of 9 every 3"),
        (9, 6, True, "panes of 3 rows, windows of 9 every 6, full ones only"),
    ):
        changed = CountSlidingWindows(n, slide, full_only=full_only)
        with pytest.raises(TerminalError, match=f"holds count, {panes}, and count, {other} are asked for"):
            goes_on(step(sliding, AGGREGATES[:1], text, "columns"), step(changed, AGGREGATES[:1], text, "columns"))
