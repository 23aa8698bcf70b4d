"""Window joins of SQL, of each kind, against a plain model: the windows that are over, late rows, null keys."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.joins import window_join
from poundlock.operators.columns.joins.kinds import JoinedColumns
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.joins.sql_window_join import ColumnSqlWindowJoin
from poundlock.operators.columns.records import layout_of
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.changelog_nodes import JoinKind
from support.changelog_scripts import ChangelogScript
from support.examples import examples

LEFT = pa.schema([("a", pa.string()), ("w", pa.int64()), ("x", pa.int64())])
RIGHT = pa.schema([("b", pa.string()), ("v", pa.int64()), ("y", pa.int64())])
TIME = pa.field("last", pa.timestamp("us", "UTC"))
Row = tuple[str | None, int, int]
"""Key, end of the window in ms, value."""


def less(pairs: pa.RecordBatch) -> pa.Array:
    """The condition x < y of some tests."""
    return pc.less(pairs.column("x"), pairs.column("y"))


def script(kind: JoinKind, *, condition: bool = False, policy: MergePolicy | None = None) -> ChangelogScript:
    sides = JoinSide(("a", "w"), "last", str(layout_of(LEFT))), JoinSide(("b", "v"), "last", str(layout_of(RIGHT)))
    of = ColumnSqlWindowJoin(sides, JoinedColumns(kind, (LEFT, RIGHT), less if condition else None), key_hashes)
    return ChangelogScript(of.operator, [["a", "w"], ["b", "v"]], policy)


def batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    last = [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=end - 1) for _, end, _ in rows]
    columns = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(last, TIME.type)], schema=schema.append(TIME))


def joined(kind: JoinKind, sides: list[list[Row]], condition: bool) -> Counter[Any]:
    lefts, rights = sides

    def match(one: Row, other: Row) -> bool:
        return one[0] is not None and one[:2] == other[:2] and (not condition or one[2] < other[2])

    if kind in ("semi", "anti"):
        return Counter(one for one in lefts if any(match(one, other) for other in rights) == (kind == "semi"))
    table: Counter[Any] = Counter(one + other for one in lefts for other in rights if match(one, other))
    if kind in ("left", "full"):
        table.update(one + (None,) * 3 for one in lefts if not any(match(one, other) for other in rights))
    if kind in ("right", "full"):
        table.update((None,) * 3 + other for other in rights if not any(match(one, other) for one in lefts))
    return table


@examples(120)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_windows_come_out_when_they_are_over(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    kind: JoinKind = data.draw(st.sampled_from(get_args(JoinKind)))
    condition = data.draw(st.booleans())
    one = script(kind, condition=condition, policy=MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8]))))
    keys: list[str | None] = [*"abcdefgh", None][: dice.choice([1, 3, 9])]
    waiting: list[list[Row]] = [[], []]
    at_once = dice.choice([1, 5, 1 << 20])
    before, late, count = MIN, 0, dice.randrange(1, 8)
    for number in range(count):
        sides = [
            [
                (dice.choice(keys), dice.choice([50, 100, 150, 200]), dice.randrange(4))
                for _ in range(dice.choice([0, 3, 20]))
            ]
            for _ in range(2)
        ]
        after = MAX if number == count - 1 else max(before, dice.choice([MIN, 49, 98, 99, 150, 300]))
        with patch.object(window_join, "_AT_ONCE", at_once):
            out = one.checkpoint(
                batch(sides[0], LEFT),
                batch(sides[1], RIGHT),
                tasks=dice.choice([1, 2, 3]),
                before=before,
                watermark=after,
            )
        assert {each for each, _ in out} <= {"+I"}
        due: list[list[Row]] = [[], []]
        for side, rows in enumerate(sides):
            kept = [row for row in rows if row[1] - 1 > before]
            late += len(rows) - len(kept)
            # A row with a null key waits for nobody.
            due[side] = [row for row in kept if row[0] is None]
            waiting[side] += [row for row in kept if row[0] is not None]
            due[side] += [row for row in waiting[side] if row[1] - 1 <= after]
            waiting[side] = [row for row in waiting[side] if row[1] - 1 > after]
        assert Counter(row for _, row in out) == joined(kind, due, condition)
        before = after
    assert one.late_dropped == late


def test_a_window_with_rows_of_one_side_alone() -> None:
    for kind, wanted in (("full", [("a", 100, 1, None, None, None)]), ("anti", [("a", 100, 1)]), ("inner", [])):
        one = script(kind)  # type: ignore[arg-type]
        rows, none = batch([("a", 100, 1)], LEFT), batch([], RIGHT)
        assert one.checkpoint(rows, none, watermark=98) == []
        assert [row for _, row in one.checkpoint(rows.slice(0, 0), none, before=98, watermark=99)] == wanted


@pytest.mark.parametrize("kind", get_args(JoinKind))
@pytest.mark.parametrize("condition", [False, True])
def test_rows_of_many_keys_that_came_in_several_checkpoints(kind: JoinKind, condition: bool) -> None:
    one = script(kind, condition=condition)
    lefts: list[Row] = [(f"key-{n % 40}", 100, n % 3) for n in range(120)]
    rights: list[Row] = [(f"key-{n}", 100, n % 5) for n in range(0, 60, 2)]
    for start in range(0, 120, 40):
        rows = batch(lefts[start : start + 40], LEFT), batch(rights[start // 4 : start // 4 + 10], RIGHT)
        assert one.checkpoint(*rows, watermark=98, before=98 if start else MIN) == []
    out = one.checkpoint(batch([], LEFT), batch([], RIGHT), before=98, watermark=99)
    assert Counter(row for _, row in out) == joined(kind, [lefts, rights], condition)
