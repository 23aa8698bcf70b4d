"""Top-N of changelogs against a plain model: the places that the changes make, equal rows, state that is written and read in between."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.changelog import top_n
from poundlock.operators.columns.changelog.top_n import ColumnChangelogTopN
from poundlock.operators.columns.rows import gathered
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.map_table import MapTable
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.nodes import SortColumn
from support.changelog_scripts import Change, ChangelogScript, apply, changelog
from support.examples import examples

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("id", pa.int32())])
ORDERS = [
    [],
    [SortColumn("n")],
    [SortColumn("n", descending=True, nulls_first=False), SortColumn("id")],
    [SortColumn("x", descending=True), SortColumn("n", nulls_first=False)],
]
Row = tuple[Any, ...]


def top(**options: Any) -> ColumnChangelogTopN:
    keys = RowKeys(tuple(options.pop("keys", ["k"])), key_hashes)
    return ColumnChangelogTopN(SCHEMA, keys, **{"order_by": ORDERS[1], "first": 1, "last": 3, **options})


def script(of: ColumnChangelogTopN, policy: MergePolicy | None = None) -> ChangelogScript:
    return ChangelogScript(of.operator, [of.keys.columns], policy)


class Model:
    """All rows of each key, each with a number that says when it came."""

    def __init__(self, of: ColumnChangelogTopN) -> None:
        self.of, self.rows, self.came = of, list[tuple[Row, int]](), 0

    def take(self, changes: list[Change]) -> None:
        for kind, row in changes:
            if kind[0] == "+":
                self.rows.append((row, self.came))
                self.came += 1
            else:
                self.rows.remove(min(each for each in self.rows if each[0] == row))

    def places(self, only: set[int] | None = None) -> Counter[Row]:
        """Return the rows that are wanted, with their place."""
        by_key: dict[Any, list[tuple[Row, int]]] = {}
        for row, came in self.rows:
            by_key.setdefault(row[0] if self.of.keys.columns else None, []).append((row, came))
        made: Counter[Row] = Counter()
        for rows in by_key.values():
            rows.sort(key=lambda each: -each[1] if self.of.newest_first else each[1])
            for order in reversed(self.of.order_by):
                rows.sort(key=lambda each, order=order: self.part(each[0], order))  # type: ignore[misc]
            for place, (row, _) in enumerate(rows[: self.of.last], 1):
                if place >= self.of.first:
                    made[row if self.of.rank is None else (*row, place)] += 1
        return made

    def part(self, row: Row, order: SortColumn) -> tuple[int, float]:
        value = row[SCHEMA.names.index(order.column)]
        if value is None:
            return (0 if order.nulls_first else 2), 0
        return 1, -value if order.descending else value


def steps(dice: random.Random, live: list[Row], count: int, keys: int, *, retracts: bool) -> list[Change]:
    made: list[Change] = []
    for _ in range(count):
        if retracts and live and dice.random() < 0.5:
            made.append((dice.choice(["-D", "-U"]), live.pop(dice.randrange(len(live)))))
        else:
            key = dice.choice(["a", "b", None, "c", "d"][:keys])
            row = key, dice.choice([None, 1, 2, 3]), dice.choice([None, -0.5, 2.0]), dice.randrange(3)
            live.append(row)
            made.append((dice.choice(["+I", "+U"]), row))
    return made


@examples(120)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_the_changes_make_the_places_of_the_rows_that_there_are(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    first = data.draw(st.integers(1, 4))
    of = top(
        keys=data.draw(st.sampled_from([[], ["k"]])),
        order_by=data.draw(st.sampled_from(ORDERS)),
        first=first,
        last=first + data.draw(st.integers(0, 4)),
        rank=data.draw(st.sampled_from([None, "place"])),
        newest_first=data.draw(st.booleans()),
    )
    retracts = data.draw(st.booleans())
    one, model = script(of, MergePolicy(fan_in=dice.choice([2, 3, 8]))), Model(of)
    live: list[Row] = []
    table: Counter[Row] = Counter()
    spare, at_once = dice.choice([0, 1, 8]), dice.choice([1, 5, 1 << 20])
    for _ in range(dice.randrange(1, 9)):
        changes = steps(dice, live, dice.choice([0, 3, 20, 40]), dice.choice([1, 2, 5]), retracts=retracts)
        tasks = dice.choice([1, 2, 3])
        with (
            patch.object(gathered, "_AT_ONCE", at_once),
            patch.object(top_n, "_LEAST_SPARE", spare),
            patch.object(top_n, "_MOST_SPARE", spare),
        ):
            out = one.checkpoint(changelog(changes, SCHEMA, kinds=retracts), tasks=tasks)
        model.take(changes)
        if at_once > 1000 and of.rank is None:
            gone, new = ({row for kind, row in out if kind == each} for each in ("-D", "+I"))
            assert not gone & new, "an equal row is no change"
        apply(table, out)
        assert table == model.places()


@examples(40)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_of_bounded_inputs_only_the_last_places_come_out(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    of = top(
        keys=data.draw(st.sampled_from([[], ["k"]])),
        order_by=data.draw(st.sampled_from(ORDERS)),
        first=data.draw(st.sampled_from([1, 2])),
        rank=data.draw(st.sampled_from([None, "place"])),
        bounded=True,
    )
    one, model = script(of), Model(of)
    live: list[Row] = []
    out: list[Change] = []
    count = dice.randrange(1, 5)
    for number in range(count):
        changes = steps(dice, live, dice.randrange(30), 5, retracts=True)
        last = number == count - 1
        rows = changelog(changes, SCHEMA, kinds=True)
        out += one.checkpoint(rows, tasks=dice.choice([1, 2, 3]), watermark=MAX if last else MIN)
        model.take(changes)
        assert last or not out
    assert {kind for kind, _ in out} <= {"+I"}
    assert Counter(row for _, row in out) == model.places()


def row(n: int, number: int = 0) -> Row:
    return "a", n, None, number


def test_places_that_have_another_row_come_out_with_what_was_there() -> None:
    one = script(top(rank="place", last=2))
    rows = [("+I", row(5)), ("+I", row(7))]
    assert one.checkpoint(changelog(rows, SCHEMA, kinds=True)) == [("+I", (*row(5), 1)), ("+I", (*row(7), 2))]
    assert one.checkpoint(changelog([("+I", row(6))], SCHEMA, kinds=True)) == [
        ("-U", (*row(7), 2)),
        ("+U", (*row(6), 2)),
    ]
    assert one.checkpoint(changelog([("-D", row(5)), ("-D", row(6))], SCHEMA, kinds=True)) == [
        ("-U", (*row(5), 1)),
        ("+U", (*row(7), 1)),
        ("-D", (*row(6), 2)),
    ]
    assert one.checkpoint(changelog([("-D", row(9))], SCHEMA, kinds=True)) == [], "there is no such row"
    other = script(top(rank="place", last=2, update_before=False))
    other.checkpoint(changelog(rows, SCHEMA, kinds=True))
    assert other.checkpoint(changelog([("+I", row(6))], SCHEMA, kinds=True)) == [("+U", (*row(6), 2))]


def test_few_rows_of_a_key_with_many_are_read_and_written() -> None:
    of = top(last=2)
    one = script(of)
    one.checkpoint(changelog([("+I", row(n)) for n in range(1000)], SCHEMA, kinds=True))
    with patch.object(MapTable, "entries_within", autospec=True, side_effect=MapTable.entries_within) as read:
        out = one.checkpoint(changelog([("-D", row(1)), ("-D", row(500))], SCHEMA, kinds=True))
        assert out == [("-D", row(1)), ("+I", row(2))]
        assert read.call_count == 1, "the others are not looked through"
        gone = [("-D", row(n)) for n in range(of.kept + 1) if n != 1]
        out = one.checkpoint(changelog(gone, SCHEMA, kinds=True))
        assert read.call_count == 3, "the first ones are gone"
    assert out == [("-D", row(0)), ("-D", row(2)), ("+I", row(of.kept + 1)), ("+I", row(of.kept + 2))]


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_row_that_is_among_the_first_no_more_stands_beside_an_equal_one_behind_them(newest_first: bool) -> None:
    one = script(top(last=1, newest_first=newest_first))
    count = top(last=1).kept + 1
    equal = [("+I", row(5))] * count
    assert one.checkpoint(changelog(equal, SCHEMA, kinds=True)) == [("+I", row(5))]
    # One of the equal rows has to make room, and one stands behind already.
    assert one.checkpoint(changelog([("+I", row(1))], SCHEMA, kinds=True)) == [("-D", row(5)), ("+I", row(1))]
    assert one.checkpoint(changelog([("-D", row(5))] * (count - 1), SCHEMA, kinds=True)) == []
    assert one.checkpoint(changelog([("-D", row(1))], SCHEMA, kinds=True)) == [("-D", row(1)), ("+I", row(5))]


def test_the_rows_of_a_key_are_over_together() -> None:
    one = script(top(last=2, ttl_ms=100))
    many = [("+I", row(n)) for n in range(20)]
    assert one.checkpoint(changelog(many, SCHEMA, kinds=True), clock=1000) == [("+I", row(0)), ("+I", row(1))]
    assert one.checkpoint(changelog([("+I", row(99))], SCHEMA, kinds=True), clock=1090) == []
    assert one.checkpoint(changelog([("-D", row(0))], SCHEMA, kinds=True), clock=1180) == [
        ("-D", row(0)),
        ("+I", row(2)),
    ], "the key was changed at 1090"
    assert one.checkpoint(changelog([("+I", row(3))], SCHEMA, kinds=True), clock=1280) == [("+I", row(3))]


def test_state_of_another_order_is_refused() -> None:
    one = script(top())
    one.checkpoint(changelog([("+I", row(1))], SCHEMA, kinds=True))
    other = script(top(last=4))
    other.state = one.state
    with pytest.raises(TerminalError, match=r"the first 3 by n, and .*the first 4 by n are asked for"):
        other.checkpoint(changelog([("+I", row(1))], SCHEMA, kinds=True))
