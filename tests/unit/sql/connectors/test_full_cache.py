"""Tables that are kept whole: when they are read again, and the rows of keys."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any

import pyarrow as pa
import pytest

from poundlock.errors import TransientError
from poundlock.sql.connectors.full_cache import FullCacheLookup, FullReload, IndexedRows, full_reload_of
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError

SCHEMA = pa.schema([("k", pa.int32()), ("t", pa.string()), ("v", pa.int64())])


def ms(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000


@dataclass
class Table:
    """A table that notes how often it is read."""

    identity: str
    held: list[dict[str, Any]]
    read: int = 0
    is_away: bool = False

    def whole(self) -> pa.RecordBatch:
        self.read += 1
        if self.is_away:
            raise TransientError("the server is away", next="wait")
        return pa.RecordBatch.from_pylist(self.held, schema=SCHEMA)

    def describe(self) -> str:
        return "rows"


@dataclass
class Clock:
    now: float = 1_000_000.0
    read: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now


def test_rows_of_keys_are_those_of_the_table() -> None:
    chance = random.Random(7)
    rows = [{"k": chance.choice([1, 2, 3, None]), "t": chance.choice(["a", "b", None]), "v": n} for n in range(200)]
    held = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    for names in (["k"], ["t"], ["k", "t"], ["t", "k"]):
        indexed = IndexedRows.of(held, names)
        wanted = [(9, "a"), (1, "b"), (3, "a"), (2, "zz")]
        keys = pa.RecordBatch.from_pylist([{"k": k, "t": t} for k, t in wanted], schema=pa.schema([*SCHEMA][:2]))
        given = indexed.rows_of([keys.column(name) for name in names]).to_pylist()
        asked = [tuple(row[name] for name in names) for row in keys.to_pylist()]
        expected = Counter(row["v"] for key in asked for row in rows if tuple(row[name] for name in names) == key)
        assert Counter(row["v"] for row in given) == expected
        assert expected
    assert IndexedRows.of(held.slice(0, 0), ["k"]).rows_of([pa.array([1], pa.int32())]).num_rows == 0


def test_keys_of_many_columns_are_told_apart_whatever_their_number() -> None:
    count, names = (
        1 << 16,
        list("abcde"),
    )  # 65,536 values in each of five columns: their numbers side by side take 80 bits
    held = pa.RecordBatch.from_arrays([pa.array(range(count))] * len(names), names)
    indexed = IndexedRows.of(held, names)
    asked = [[1, 5, 7, 65_535, 99_999], *([5, 5, 7, 65_535, 5] for _ in names[1:])]
    given = indexed.rows_of([pa.array(each) for each in asked]).to_pylist()
    assert given == [dict.fromkeys(names, 5), dict.fromkeys(names, 7), dict.fromkeys(names, 65_535)]


def test_a_table_is_read_again_when_its_time_has_come() -> None:
    clock, table = Clock(), Table("read-again", [{"k": 1, "t": "a", "v": 1}])
    lookup = FullCacheLookup(table, ("k",), FullReload(interval_ms=1_000), clock)
    keys = pa.RecordBatch.from_pylist([{"k": 1}], schema=pa.schema([("k", pa.int32())]))

    def seen() -> list[int]:
        values: list[int] = lookup.rows(keys)["v"].to_pylist()
        return values

    assert seen() == [1]
    table.held = [{"k": 1, "t": "a", "v": 2}, {"k": 1, "t": "b", "v": 3}]
    clock.now += 999
    assert (seen(), table.read) == ([1], 1)
    clock.now += 1
    table.is_away = True
    with pytest.raises(TransientError):
        seen()
    table.is_away = False
    assert (sorted(seen()), table.read) == ([2, 3], 3)
    assert lookup.cache.max_rows == 0
    assert "all of them, read again every 1 s" in lookup.describe()


@pytest.mark.parametrize(
    ("reload", "begun", "before", "due"),
    [
        (FullReload(interval_ms=60_000), "2026-01-05T10:00:00+00:00", None, "2026-01-05T10:01:05+00:00"),
        (FullReload(60_000, True), "2026-01-05T10:00:00+00:00", None, "2026-01-05T10:01:00+00:00"),
        (FullReload(at=time(10, 15)), "2026-01-05T10:00:00+00:00", None, "2026-01-05T10:15:00+00:00"),
        (FullReload(at=time(10, 15), every_days=3), "2026-01-05T11:00:00+00:00", None, "2026-01-06T10:15:00+00:00"),
        (FullReload(at=time(10, 15), every_days=3), "2026-01-08T12:00:00+00:00", "2026-01-06T10:15:00+00:00", "2026-01-09T10:15:00+00:00"),
        (FullReload(at=time.fromisoformat("10:15+07:00")), "2026-01-05T10:00:00+00:00", None, "2026-01-06T03:15:00+00:00"),
        (FullReload(at=time(10, 15), zone="Europe/Berlin"), "2026-03-28T10:00:00+00:00", "2026-03-28T09:15:00+00:00", "2026-03-29T08:15:00+00:00"),
    ],
)  # fmt: skip
def test_when_it_is_due(reload: FullReload, begun: str, before: str | None, due: str) -> None:
    at = ms(begun)
    assert reload.next_ms(at, at + 5_000, None if before is None else ms(before)) == ms(due)


def reload_of(options: dict[str, str]) -> FullReload | None:
    given = {f"lookup.full-cache.{name}": value for name, value in options.items()}
    return full_reload_of(TableOptions("t", given), is_full=True, zone="Asia/Tokyo")


def test_options_are_those_of_flink() -> None:
    assert reload_of({"periodic-reload.interval": "10 min"}) == FullReload(600_000)
    rate = {
        "reload-strategy": "PERIODIC",
        "periodic-reload.interval": "1 s",
        "periodic-reload.schedule-mode": "FIXED_RATE",
    }
    assert reload_of(rate) == FullReload(1_000, True)
    timed = {"reload-strategy": "TIMED", "timed-reload.iso-time": "10:15", "timed-reload.interval-in-days": "2"}
    assert reload_of(timed) == FullReload(at=time(10, 15), every_days=2, zone="Asia/Tokyo")
    assert full_reload_of(TableOptions("t", {}), is_full=False, zone="UTC") is None


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({}, "missing_option", "periodic-reload.interval"),
        ({"reload-strategy": "TIMED"}, "missing_option", "timed-reload.iso-time"),
        ({"reload-strategy": "NEVER"}, "bad_option_value", "'NEVER' cannot be"),
        ({"periodic-reload.interval": "0 s"}, "bad_option_value", "a millisecond at least"),
        ({"reload-strategy": "TIMED", "timed-reload.iso-time": "noon"}, "bad_option_value", "'noon' cannot be"),
        ({"timed-reload.interval-in-days": "0"}, "bad_option_value", "'0' cannot be"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], kind: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        reload_of(options)
    assert refused.value.kind == kind
