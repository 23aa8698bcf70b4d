"""Numbers of rows in any order against a plain model: the table that the changes make, and that nothing else changes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.over.moving_ranks import ColumnMovingRanks
from poundlock.operators.columns.rows import gathered
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import OverCall
from support.changelog_scripts import Change, ChangelogScript, apply, changelog
from support.examples import examples

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int32()), ("t", pa.string())])
KINDS = SCHEMA.append(pa.field("row_kind", pa.string()))
NAMES: list[Any] = ["row_number", "rank", "dense_rank"]


def script(names: list[Any], order: list[SortColumn], *, kinds: bool = True, **options: Any) -> ChangelogScript:
    calls = [OverCall(function=name, name=name, type=pa.int64()) for name in names]
    policy = options.pop("policy", None)
    of = ColumnMovingRanks(RowKeys(("k",), key_hashes), KINDS if kinds else SCHEMA, order, calls, **options)
    return ChangelogScript(of.operator, [("k",)], policy)


def numbered(names: list[Any], order: list[SortColumn], rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    table: Counter[tuple[Any, ...]] = Counter()
    for key in {each[0] for each in rows}:
        own = [each for each in rows if each[0] == key]
        for each in reversed(order):
            at = SCHEMA.get_field_index(each.column)
            empty: Any = 0 if each.column == "n" else ""
            own.sort(key=lambda row, at=at, empty=empty: (row[at] is not None, row[at] or empty), reverse=each.descending)  # type: ignore[misc]  # fmt: skip
        values = [tuple(row[SCHEMA.get_field_index(each.column)] for each in order) for row in own]
        for at, row in enumerate(own):
            made = {
                "row_number": at + 1,
                "rank": values.index(values[at]) + 1,
                "dense_rank": len(dict.fromkeys(values[: at + 1])),
            }
            table[(*row, *(made[name] for name in names))] += 1
    return table


@examples(80)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_the_changes_make_the_table_of_numbered_rows(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    kinds = data.draw(st.booleans())
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    one, other = SortColumn("n"), SortColumn("t", True, False)
    order = data.draw(st.sampled_from([[one], [other], [one, other]]))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    run = script(names, order, kinds=kinds, policy=policy)
    live: list[tuple[Any, ...]] = []
    table: Counter[tuple[Any, ...]] = Counter()
    number, at_once = dice.choice([1, 3, 20]), dice.choice([1, 1 << 20])
    for _ in range(dice.randrange(1, 6)):
        changes: list[Change] = []
        for _ in range(dice.randrange(20)):
            if kinds and live and dice.random() < 0.4:
                gone = dice.choice(live)
                live.remove(gone)  # the first of equal ones
                changes.append(("-D", gone))
            else:
                row = (
                    dice.choice([str(dice.randrange(number)), None]),
                    dice.choice([dice.randrange(4), None]),
                    dice.choice("ab"),
                )
                live.append(row)
                changes.append(("+I", row))
        with patch.object(gathered, "_AT_ONCE", at_once):
            out = run.checkpoint(changelog(changes, SCHEMA, kinds=kinds), tasks=dice.choice([1, 2, 3]))
        touched = {row[0] for _, row in changes}
        assert {row[0] for _, row in out} <= touched
        apply(table, out)
        assert table == numbered(names, order, live)


def test_rows_whose_numbers_stay_do_not_come_out() -> None:
    run = script(["row_number"], [SortColumn("n")], kinds=False)

    def checkpoint(*numbers: int) -> list[Change]:
        return run.checkpoint(changelog([("+I", ("a", n, "x")) for n in numbers], SCHEMA, kinds=False))

    assert checkpoint(1, 5) == [("+I", ("a", 1, "x", 1)), ("+I", ("a", 5, "x", 2))]
    assert checkpoint(3) == [("-U", ("a", 5, "x", 2)), ("+U", ("a", 5, "x", 3)), ("+I", ("a", 3, "x", 2))]
    assert checkpoint(9) == [("+I", ("a", 9, "x", 4))]


def test_a_row_whose_time_is_over_is_not_numbered_any_more() -> None:
    run = script(["row_number"], [SortColumn("n")], kinds=False, ttl_ms=100)
    rows = [changelog([("+I", ("a", n, "x"))], SCHEMA, kinds=False) for n in (1, 2)]
    assert run.checkpoint(rows[0], clock=1_000) == [("+I", ("a", 1, "x", 1))]
    assert run.checkpoint(rows[1], clock=1_200) == [("+I", ("a", 2, "x", 1))]
