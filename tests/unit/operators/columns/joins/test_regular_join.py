"""Regular joins of changelogs against a plain model: the table that the changes make, what is append-only, rows with null keys, rows whose
time is over.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.joins import regular_join
from poundlock.operators.columns.joins.regular_join import ChangelogSide, ColumnRegularJoin
from poundlock.operators.columns.rows import gathered
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.changelog_nodes import JoinKind
from support.changelog_scripts import Change, ChangelogScript, apply, changelog
from support.examples import examples

LEFT = pa.schema([("a", pa.int64()), ("b", pa.string()), ("x", pa.int32())])
RIGHT = pa.schema([("c", pa.int64()), ("d", pa.string()), ("y", pa.decimal128(10, 2))])
Row = tuple[Any, ...]


def less(pairs: pa.RecordBatch) -> pa.Array:
    """The condition x < y of some tests."""
    return pc.less(pairs.column("x").cast(pa.decimal128(12, 2)), pairs.column("y"))


def script(
    kind: JoinKind,
    retracts: tuple[bool, bool] = (True, True),
    *,
    keys: int = 1,
    condition: bool = False,
    null_equal: tuple[bool, ...] = (),
    ttl_ms: tuple[int | None, int | None] = (None, None),
    policy: MergePolicy | None = None,
    bounded: bool = False,
) -> ChangelogScript:
    names = ("a", "b")[:keys], ("c", "d")[:keys]
    left, right = (
        ChangelogSide(RowKeys(own, key_hashes), schema, changes, ttl)
        for own, schema, changes, ttl in zip(names, (LEFT, RIGHT), retracts, ttl_ms, strict=True)
    )
    join = ColumnRegularJoin(kind, (left, right), less if condition else None, null_equal, bounded)
    return ChangelogScript(join.operator, names, policy)


def wanted(
    kind: JoinKind, lefts: list[Row], rights: list[Row], keys: int, condition: bool, null_equal: Sequence[bool]
) -> Counter[Row]:
    def match(one: Row, other: Row) -> bool:
        for n in range(keys):
            if one[n] != other[n] or (one[n] is None and not (null_equal and null_equal[n])):
                return False
        return not condition or (one[2] is not None and other[2] is not None and one[2] < other[2])

    some = [(one, [other for other in rights if match(one, other)]) for one in lefts]
    if kind in ("semi", "anti"):
        return Counter(one for one, others in some if bool(others) == (kind == "semi"))
    table = Counter(one + other for one, others in some for other in others)
    if kind in ("left", "full"):
        table.update(one + (None,) * 3 for one, others in some if not others)
    if kind in ("right", "full"):
        table.update((None,) * 3 + other for other in rights if not any(match(one, other) for one in lefts))
    return table


def drawn(dice: random.Random, number: int) -> Row:
    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.15 else value

    return maybe(dice.randrange(number)), maybe(dice.choice("ab")), maybe(dice.randrange(4))


def steps(dice: random.Random, live: list[Row], count: int, number: int, *, retracts: bool) -> list[Change]:
    made: list[Change] = []
    for _ in range(count):
        if retracts and live and dice.random() < 0.5:
            made.append((dice.choice(["-D", "-U"]), live.pop(dice.randrange(len(live)))))
        else:
            live.append(drawn(dice, number))
            made.append((dice.choice(["+I", "+U"]) if retracts else "+I", live[-1]))
    return made


@examples(100)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_the_changes_make_the_join_of_the_rows_that_there_are(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    kind: JoinKind = data.draw(st.sampled_from(get_args(JoinKind)))
    retracts = data.draw(st.tuples(st.booleans(), st.booleans()))
    keys, condition = data.draw(st.sampled_from([0, 1, 2])), data.draw(st.booleans())
    null_equal = data.draw(st.sampled_from([(), (True,) * keys, (True, False)[:keys]]))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    one = script(kind, retracts, keys=keys, condition=condition, null_equal=null_equal, policy=policy)
    sides: tuple[list[Row], list[Row]] = [], []
    table: Counter[Row] = Counter()
    number, at_once = dice.choice([1, 3, 30]), dice.choice([1, 20, 1 << 20])
    for _ in range(dice.randrange(1, 7)):
        batches = [
            changelog(steps(dice, live, dice.randrange(15), number, retracts=changes), schema, kinds=changes)
            for live, changes, schema in zip(sides, retracts, (LEFT, RIGHT), strict=True)
        ]
        with patch.object(regular_join, "_AT_ONCE", at_once), patch.object(gathered, "_AT_ONCE", at_once):
            out = one.checkpoint(*batches, tasks=dice.choice([1, 2, 3]))
        if kind in ("inner", "semi") and not any(retracts):
            assert {each for each, _ in out} <= {"+I"}, "nothing is taken away again"
        if at_once > 1000:
            # A row of nulls that has a match looks as one without a match does.
            plain = {(each, row) for each, row in out if any(row[:3]) and any(row[3:])}
            assert not any(("-D", row) in plain for each, row in plain if each == "+I"), "an equal result is no change"
        apply(table, out)
        assert table == wanted(kind, *sides, keys, condition, null_equal)


@examples(40)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_of_bounded_inputs_only_what_is_left_comes_out(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    kind: JoinKind = data.draw(st.sampled_from(get_args(JoinKind)))
    retracts = data.draw(st.tuples(st.booleans(), st.booleans()))
    one = script(kind, retracts, keys=data.draw(st.sampled_from([0, 1])), bounded=True)
    keys = 1 if one.keys[0] else 0
    sides: tuple[list[Row], list[Row]] = [], []
    out: list[Change] = []
    count = dice.randrange(1, 5)
    for number in range(count):
        batches = [
            changelog(steps(dice, live, dice.randrange(15), 4, retracts=changes), schema, kinds=changes)
            for live, changes, schema in zip(sides, retracts, (LEFT, RIGHT), strict=True)
        ]
        last = number == count - 1
        out += one.checkpoint(*batches, tasks=dice.choice([1, 2, 3]), watermark=MAX if last else MIN)
    assert {each for each, _ in out} <= {"+I"}
    assert Counter(row for _, row in out) == wanted(kind, *sides, keys, False, ())


@pytest.mark.parametrize("bounded", [False, True])
def test_a_key_need_be_no_column_of_the_rows(bounded: bool) -> None:
    sides = [
        ChangelogSide(RowKeys(("h",), key_hashes), pa.schema([(f"x{name}", pa.int32()), (name, pa.int32())]), True)
        for name in ("p", "q")
    ]
    join = ColumnRegularJoin("full", (sides[0], sides[1]), bounded=bounded)
    schemas = [pa.schema([pa.field("h", pa.int64()), *side.schema]) for side in sides]
    one = ChangelogScript(join.operator, [["h"], ["h"]])
    rows = [[("+I", (1, 2, 3)), ("+I", (None, 4, 5))], [("+I", (1, 6, 7)), ("+I", (None, 8, 9))]]
    batches = [changelog(own, schema, kinds=True) for own, schema in zip(rows, schemas, strict=True)]
    out = one.checkpoint(*batches, watermark=MAX)
    assert Counter(out) == Counter([("+I", (2, 3, 6, 7)), ("+I", (4, 5, None, None)), ("+I", (None, None, 8, 9))])


def test_what_is_taken_away_of_a_key_comes_before_what_takes_its_place() -> None:
    one = script("left")
    assert one.checkpoint(changelog([("+I", (1, "p", 1))], LEFT, kinds=True), changelog([], RIGHT, kinds=True)) == [
        ("+I", (1, "p", 1, None, None, None))
    ]
    match = (1, "q", 2)
    assert one.checkpoint(changelog([], LEFT, kinds=True), changelog([("+I", match)], RIGHT, kinds=True)) == [
        ("-D", (1, "p", 1, None, None, None)),
        ("+I", (1, "p", 1, *match)),
    ]
    again = changelog([("-U", match), ("+U", match)], RIGHT, kinds=True)
    assert one.checkpoint(changelog([], LEFT, kinds=True), again) == [], "nothing has changed"
    assert one.checkpoint(changelog([], LEFT, kinds=True), changelog([("-D", match)], RIGHT, kinds=True)) == [
        ("-D", (1, "p", 1, *match)),
        ("+I", (1, "p", 1, None, None, None)),
    ]


def test_of_append_only_inputs_an_inner_and_a_semi_join_have_no_kind_of_change() -> None:
    for kind in get_args(JoinKind):
        for retracts in ((False, False), (False, True)):
            sides = (
                ChangelogSide(RowKeys(("a",), key_hashes), LEFT, retracts[0]),
                ChangelogSide(RowKeys(("c",), key_hashes), RIGHT, retracts[1]),
            )
            names = ColumnRegularJoin(kind, sides).schema.names
            assert ("row_kind" in names) is (kind not in ("inner", "semi") or any(retracts))


def test_rows_whose_time_is_over_match_no_more() -> None:
    one = script("inner", (False, False), ttl_ms=(100, None))
    left, right = (
        changelog([("+I", (1, "p", 1))], LEFT, kinds=False),
        changelog([("+I", (1, "q", 2))], RIGHT, kinds=False),
    )
    no_left, no_right = left.slice(0, 0), right.slice(0, 0)
    assert one.checkpoint(left, no_right, clock=1000) == []
    assert one.checkpoint(no_left, right, clock=1099) == [("+I", (1, "p", 1, 1, "q", 2))]
    assert one.checkpoint(no_left, right, clock=1100) == []
    assert one.checkpoint(left, no_right, clock=1200) == [("+I", (1, "p", 1, 1, "q", 2))] * 2, "right is known for ever"


def test_state_of_other_columns_is_refused() -> None:
    one = script("inner")
    one.checkpoint(changelog([("+I", (1, "p", 1))], LEFT, kinds=True), changelog([], RIGHT, kinds=True))
    other = script("left")
    other.state = one.state
    with pytest.raises(TerminalError, match="state 'left' holds"):
        other.checkpoint(changelog([("+I", (1, "p", 1))], LEFT, kinds=True), changelog([], RIGHT, kinds=True))
