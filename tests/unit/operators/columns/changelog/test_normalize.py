"""Changelogs of upserts against a plain model: the newest row of each key, through checkpoints whose state is written and read."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.changelog.normalize import ColumnChangelogNormalization
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from support.changelog_scripts import Change, ChangelogScript, apply, changelog
from support.examples import examples

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("xs", pa.list_(pa.int32()))])
Row = tuple[Any, ...]


def script(ttl_ms: int | None = None, schema: pa.Schema = SCHEMA, policy: MergePolicy | None = None) -> ChangelogScript:
    of = ColumnChangelogNormalization(schema, RowKeys(("k",), key_hashes), ttl_ms)
    return ChangelogScript(of.operator, [["k"]], policy)


def upserts(*changes: Change) -> pa.RecordBatch:
    return changelog(changes, SCHEMA, kinds=True)


class Model:
    """The newest row of each key, and when it came."""

    def __init__(self, ttl_ms: int | None) -> None:
        self.ttl_ms, self.rows = ttl_ms, dict[Any, tuple[Row, int]]()

    def take(self, kind: str, row: Row, clock: int) -> list[Change]:
        held = self.rows.pop(row[0], None)
        before = None if held is None or (self.ttl_ms is not None and held[1] + self.ttl_ms <= clock) else held[0]
        if kind == "-D":
            return [] if before is None else [("-D", before)]
        self.rows[row[0]] = (row, clock)
        if before is None:
            return [("+I", row)]
        return [] if before == row and self.ttl_ms is None else [("-U", before), ("+U", row)]


def steps(dice: random.Random, count: int) -> list[Change]:
    made: list[Change] = []
    for _ in range(count):
        key = dice.choice(["a", "b", "c", None])
        if dice.random() < 0.3:
            made.append(("-D", (key, None, None, None)))
        else:
            row = key, dice.choice([None, 1, 2]), dice.choice([None, -0.5]), dice.choice([None, (), (1, 2)])
            made.append((dice.choice(["+U", "+I"]), row))
    return made


@examples(60)
@given(seed=st.integers(0, 1 << 32), ttl_ms=st.sampled_from([None, 20]))
def test_each_upsert_gives_what_it_changes(seed: int, ttl_ms: int | None) -> None:
    dice = random.Random(seed)
    one, model = script(ttl_ms, policy=MergePolicy(fan_in=dice.choice([2, 3, 8]))), Model(ttl_ms)
    table: Counter[Row] = Counter()
    clock = 0
    for _ in range(dice.randrange(1, 8)):
        clock += dice.choice([0, 5, 30])
        changes = steps(dice, dice.choice([0, 1, 5, 25]))
        out = one.checkpoint(upserts(*changes), tasks=dice.choice([1, 2]), clock=clock)
        wanted = [change for kind, row in changes for change in model.take(kind, row, clock)]
        by_key = sorted(wanted, key=lambda change: str(change[1][0])), sorted(out, key=lambda change: str(change[1][0]))
        assert by_key[0] == by_key[1]
        if ttl_ms is None:
            apply(table, out)
    if ttl_ms is None:
        assert table == Counter(row for row, _ in model.rows.values())


def test_changes_come_in_the_order_of_the_upserts() -> None:
    one = script()
    one.checkpoint(upserts(("+U", ("b", 1, None, None))))
    out = one.checkpoint(
        upserts(
            ("+U", ("a", 1, None, None)),
            ("+U", ("b", 2, None, None)),
            ("-D", ("a", None, None, None)),
            ("+U", ("b", 2, None, None)),
            ("-D", ("z", None, None, None)),
            ("+U", ("a", 3, None, None)),
        )
    )
    assert out == [
        ("+I", ("a", 1, None, None)),
        ("-U", ("b", 1, None, None)),
        ("+U", ("b", 2, None, None)),
        ("-D", ("a", 1, None, None)),
        ("+I", ("a", 3, None, None)),
    ]


def test_state_of_other_columns_is_refused() -> None:
    one = script()
    one.checkpoint(upserts(("+U", ("a", 1, None, None))))
    other = script(schema=pa.schema([("k", pa.string()), ("n", pa.int32())]))
    other.state = one.state
    rows = changelog([("+U", ("a", 1))], pa.schema([("k", pa.string()), ("n", pa.int32())]), kinds=True)
    with pytest.raises(TerminalError, match="newest"):
        other.checkpoint(rows)
