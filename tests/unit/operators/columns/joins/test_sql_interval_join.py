"""Interval joins of SQL, of each kind, against a plain model: pairs, rows that come out without a match and when, late rows, null keys."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.joins import buckets, sql_interval_join
from poundlock.operators.columns.joins.kinds import JoinedColumns
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.joins.sql_interval_join import ColumnSqlIntervalJoin
from poundlock.operators.columns.records import layout_of
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.changelog_nodes import JoinKind
from support.changelog_scripts import Change, ChangelogScript
from support.examples import examples

LEFT = pa.schema([("a", pa.string()), ("at", pa.timestamp("us")), ("x", pa.int64())])
RIGHT = pa.schema([("b", pa.string()), ("other", pa.timestamp("us")), ("y", pa.int64())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
KINDS: list[JoinKind] = ["inner", "left", "right", "full"]
Row = tuple[str | None, int, int]
"""Key, time in ms, value."""


def less(pairs: pa.RecordBatch) -> pa.Array:
    """The condition x < y of some tests; null for a y of 3."""
    y = pairs.column("y")
    return pc.less(pairs.column("x"), pc.if_else(pc.equal(y, 3), pa.scalar(None, pa.int64()), y))


def script(
    kind: JoinKind, lower: int, upper: int, *, condition: bool = False, policy: MergePolicy | None = None
) -> ChangelogScript:
    sides = JoinSide(("a",), "at", str(layout_of(LEFT))), JoinSide(("b",), "other", str(layout_of(RIGHT)))
    output = JoinedColumns(kind, (LEFT, RIGHT), less if condition else None)
    of = ColumnSqlIntervalJoin(lower, upper, sides, output, key_hashes)
    return ChangelogScript(of.operator, [["a"], ["b"]], policy)


def batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*[(k, EPOCH + timedelta(milliseconds=t), v) for k, t, v in rows], strict=True)) or [[], [], []]
    return pa.RecordBatch.from_arrays(
        [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def rows_of(changes: list[Change]) -> Counter[Any]:
    """Return what came out, with times as ms."""
    assert all(kind == "+I" for kind, _ in changes)
    ms = timedelta(milliseconds=1)
    return Counter(tuple((v - EPOCH) // ms if isinstance(v, datetime) else v for v in row) for _, row in changes)


@dataclass(eq=False)
class Kept:
    row: Row
    new: bool = True
    matched: bool = False


class Model:
    """Keeps rows in lists."""

    def __init__(self, kind: JoinKind, lower: int, upper: int, condition: bool) -> None:
        self.bounds, self.stays, self.condition = (lower, upper), (upper, -lower), condition
        self.padded = kind in ("left", "full"), kind in ("right", "full")
        self.kept: tuple[list[Kept], list[Kept]] = [], []
        self.late = 0

    def pairs_with(self, one: Row, other: Row) -> bool:
        if one[0] is None or one[0] != other[0] or not self.bounds[0] <= other[1] - one[1] <= self.bounds[1]:
            return False
        return not self.condition or (other[2] != 3 and one[2] < other[2])

    def alone(self, side: int, row: Row) -> tuple[Any, ...]:
        return (*row, None, None, None) if side == 0 else (None, None, None, *row)

    def take(self, sides: list[list[Row]], before: int, after: int) -> Counter[Any]:
        out: Counter[Any] = Counter()
        for side, rows in enumerate(sides):
            for row in rows:
                if row[0] is not None:
                    self.kept[side].append(Kept(row))
                elif self.padded[side]:
                    out[self.alone(side, row)] += 1
        for one in self.kept[0]:
            for other in self.kept[1]:
                if (one.new or other.new) and self.pairs_with(one.row, other.row):
                    one.matched = other.matched = True
                    out[one.row + other.row] += 1
        for side, kept in enumerate(self.kept):
            for each in list(kept):
                behind = each.row[1] + self.stays[side]
                late = each.new and behind <= before
                if late or behind < after:
                    kept.remove(each)
                    if not each.matched:
                        out[self.alone(side, each.row)] += self.padded[side]
                        self.late += late and not self.padded[side]
                each.new = False
        return +out


@examples(150)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_comes_out_and_when(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    kind: JoinKind = data.draw(st.sampled_from(KINDS))
    lower = data.draw(st.integers(-40, 30))
    upper = lower + data.draw(st.integers(0, 50))
    condition, lateness = data.draw(st.booleans()), data.draw(st.sampled_from([-1, 0, 30, 200]))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    one, model = script(kind, lower, upper, condition=condition, policy=policy), Model(kind, lower, upper, condition)
    at_once, width = dice.choice([1, 7, 1 << 20]), dice.choice([1, 10, 1000])
    keys: list[str | None] = [*"abc", None][: dice.choice([1, 3, 4])]
    every: tuple[list[Row], list[Row]] = [], []
    whole: Counter[Any] = Counter()
    before, now = MIN, 100
    count = dice.randrange(1, 8)
    for number in range(count):
        sides = [
            [
                (dice.choice(keys), max(now - lateness, before + 1) + dice.randrange(60), dice.randrange(5))
                if lateness < 0
                else (dice.choice(keys), now - dice.randrange(lateness + 1) + dice.randrange(60), dice.randrange(5))
                for _ in range(dice.choice([0, 2, 12]))
            ]
            for _ in range(2)
        ]
        after = MAX if number == count - 1 else dice.choice([before, max(before, now + dice.randrange(60))])
        with patch.object(sql_interval_join, "_AT_ONCE", at_once), patch.object(buckets, "_LEAST_MS", width):
            out = one.checkpoint(
                batch(sides[0], LEFT),
                batch(sides[1], RIGHT),
                tasks=dice.choice([1, 2, 3]),
                before=before,
                watermark=after,
            )
        came = rows_of(out)
        assert came == model.take(sides, before, after)
        whole += came
        for all_rows, rows in zip(every, sides, strict=True):
            all_rows += rows
        before, now = after, max(now, min(after, 1 << 40)) + dice.randrange(30)
    assert one.late_dropped == model.late
    if lateness < 0:
        assert whole == Model(kind, lower, upper, condition).take(list(every), MIN, MAX), "nothing was late"


def test_a_row_without_a_match_comes_out_once_none_can_come() -> None:
    one, none, empty = script("left", -5, 10), batch([], LEFT), batch([], RIGHT)
    assert one.checkpoint(batch([("a", 100, 1), ("a", 103, 2)], LEFT), empty, watermark=109) == []
    assert one.checkpoint(none, empty, before=109, watermark=110) == [], "a right row of 110 may match"
    assert rows_of(one.checkpoint(none, empty, before=110, watermark=111)) == Counter([("a", 100, 1, None, None, None)])
    assert rows_of(one.checkpoint(none, batch([("a", 113, 7)], RIGHT), before=111, watermark=112)) == Counter(
        [("a", 103, 2, "a", 113, 7)]
    )
    assert one.checkpoint(none, empty, before=112, watermark=MAX) == []
    assert all(not one.state.open().namespaces(name) for name in ("left", "right", "left-matched")), "nothing is left"


@pytest.mark.parametrize(("kind", "wanted"), [("inner", []), ("left", [("b", 50, 1, None, None, None)])])
def test_a_late_row_is_matched_with_what_there_is_and_not_kept(kind: JoinKind, wanted: list[Any]) -> None:
    one, empty = script(kind, 0, 10), batch([], LEFT)
    one.checkpoint(empty, batch([("b", 55, 3)], RIGHT), watermark=54)
    out = one.checkpoint(batch([("b", 50, 1)], LEFT), batch([], RIGHT), before=60, watermark=60)
    assert rows_of(out) == Counter(wanted), "the right row is past its last match"
    one.checkpoint(empty, batch([("b", 65, 3)], RIGHT), before=60, watermark=62)
    out = one.checkpoint(batch([("b", 62, 1)], LEFT), batch([], RIGHT), before=62, watermark=62)
    assert rows_of(out) == Counter([("b", 62, 1, "b", 65, 3)])
