"""The temporal join against a plain model: rows that wait, versions that come, are taken away and go, late rows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError
from poundlock.operators.columns.joins.temporal_join import ColumnTemporalJoin, TemporalSide
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.state.hashing import key_hashes
from poundlock.state.inspect import StateReader
from poundlock.state.runs.merge import MergePolicy
from support.changelog_scripts import ChangelogScript, changelog
from support.examples import examples

TIME = pa.timestamp("us")
LEFT = pa.schema([("k", pa.string()), ("at", TIME), ("id", pa.int32())])
RIGHT = pa.schema([("rk", pa.string()), ("since", TIME), ("rate", pa.int32())])
EPOCH = datetime(2026, 1, 1)
AT = int(EPOCH.replace(tzinfo=UTC).timestamp()) * 1000


def time(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def rate_is_below_3(pairs: pa.RecordBatch) -> pa.Array:
    return pc.less(pairs.column("rate"), pa.scalar(3, pa.int32()))


def script(kind: Any, condition: Any = None, policy: MergePolicy | None = None) -> ChangelogScript:
    left = TemporalSide(RowKeys(("k",), key_hashes), LEFT, "at")
    right = TemporalSide(RowKeys(("rk",), key_hashes), RIGHT, "since")
    join = ColumnTemporalJoin("join", (left, right), kind, condition)
    return ChangelogScript(join.operator, [("k",), ("rk",)], policy)


def versions_in(one: ChangelogScript) -> list[Any]:
    """Return the entries of state that versions have."""
    reader = StateReader(one.state.manifest, one.state.files)
    return [each for each in reader.entries("operator") if each.table == "versions"]


@examples(100)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_each_row_is_joined_with_the_version_of_its_time(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    kind, kinds = data.draw(st.sampled_from(["inner", "left"])), data.draw(st.booleans())
    condition = data.draw(st.sampled_from([None, rate_is_below_3]))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    one = script(kind, condition, policy)
    waiting: list[tuple[Any, ...]] = []
    versions: dict[Any, dict[int, Any]] = {}
    watermark, number, serial = MIN, dice.choice([1, 3, 10]), 0
    for last in [*[False] * dice.randrange(1, 7), True]:
        now = max(watermark, 0)
        after = MAX if last else max(watermark, now + dice.randrange(40))
        left, right = [], []
        for _ in range(dice.randrange(15)):
            serial += 1
            key = None if dice.random() < 0.1 else str(dice.randrange(number))
            left.append((key, time(dice.randrange(max(now - 20, 0), now + 60)), serial))
        for _ in range(dice.randrange(10)):
            key = None if dice.random() < 0.1 else str(dice.randrange(number))
            ms = dice.randrange(max(now - 20, 0), now + 60)
            change = dice.choice(["+I", "+U", "-U", "-D"]) if kinds else "+I"
            version = (key, time(ms), dice.randrange(5))
            right.append((change, version))
            if change != "-U":
                versions.setdefault(key, {})[ms] = None if change == "-D" else version
        out = one.checkpoint(
            changelog([("+I", row) for row in left], LEFT, kinds=False),
            changelog(right, RIGHT, kinds=kinds),
            tasks=dice.choice([1, 2, 3]),
            watermark=after if after == MAX else after + AT,
        )
        waiting += left
        due = [row for row in waiting if row[1] <= time(after if after != MAX else 10**9)] if after > watermark else []
        waiting = [row for row in waiting if row not in due]
        wanted = []
        for row in due:
            known = versions.get(row[0], {}) if row[0] is not None else {}
            at = max((ms for ms in known if time(ms) <= row[1]), default=None)
            match = None if at is None else known[at]
            if match is not None and condition is not None and match[2] >= 3:
                match = None
            if match is not None or kind == "left":
                wanted.append((*row, *(match or (None, None, None))))
        for known in versions.values() if after > watermark else ():
            true = max((ms for ms in known if ms <= after), default=None)
            for ms in [each for each in known if true is not None and each < true]:
                del known[ms]
        assert sorted((row for _, row in out), key=repr) == sorted(wanted, key=repr)
        by_key: dict[Any, list[datetime]] = {}
        for _, row in out:
            by_key.setdefault(row[0], []).append(row[1])
        assert all(times == sorted(times) for times in by_key.values())
        watermark = after


def test_versions_that_no_row_can_have_go_away() -> None:
    one = script("left")
    rights = [("r", time(ms), ms) for ms in (0, 10, 20, 30)]
    nobody = changelog([], LEFT, kinds=False)
    one.checkpoint(nobody, changelog([("+I", row) for row in rights], RIGHT, kinds=False), watermark=AT + 25)
    assert len(versions_in(one)) == 2, "what is true at the watermark, and what is to come"
    late = changelog([("+I", ("r", time(5), 1)), ("+I", ("r", time(22), 2))], LEFT, kinds=False)
    out = one.checkpoint(late, changelog([], RIGHT, kinds=False), watermark=AT + 26)
    assert [row[2:] for _, row in out] == [(1, None, None, None), (2, "r", time(20), 20)]


def test_a_row_needs_a_time() -> None:
    one = script("inner")
    with pytest.raises(DefinitionError, match="a row of the right side has no event time"):
        one.checkpoint(changelog([], LEFT, kinds=False), changelog([("+I", ("a", None, 1))], RIGHT, kinds=False))
