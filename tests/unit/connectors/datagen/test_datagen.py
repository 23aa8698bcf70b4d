"""Generated rows depend on seed and number alone, and come at the rate asked for."""

from __future__ import annotations

import json
import pickle
import random
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.base import ReaderContext, SplitSource
from poundlock.connectors.datagen.source import DatagenSource
from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.chunk import Lines
from poundlock.formats.convert import to_records
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock
from support.examples import examples

NOWHERE = LocalStorage("/nonexistent")


def row_of(i: int, rng: random.Random) -> dict[str, Any]:
    return {"i": i, "x": rng.random()}


MAKERS = {
    "events": lambda **o: DatagenSource(**o),
    "columns": lambda **o: DatagenSource("a bigint, b string, c double, t timestamp", **o),
    "function": lambda **o: DatagenSource(row_of, schema="i bigint, x double", **o),
}


def read(source: DatagenSource, start: int, stop: int, want: Any = "batch") -> list[dict[str, Any]]:
    made = source.enumerator(NOWHERE)
    splits = made.splits({"row": start, "from_ms": 0}, {"row": stop, "from_ms": 0})
    reader = source.reader(ReaderContext(reject=None, want=want))
    chunks = [chunk for split in splits for chunk in reader.read(split)]
    records = [to_records(chunk) for chunk in chunks]
    rows = [row for part in records for row in part.rows]
    places = [part.where(i)["row"] for part in records for i in range(len(part))]
    assert places == list(range(start, stop))
    return rows


@pytest.mark.parametrize("kind", MAKERS)
@examples(25)
@given(start=st.integers(0, 3_000), n=st.integers(0, 300), split=st.integers(1, 100), seed=st.integers(-5, 1 << 70))
def test_a_row_is_the_same_however_it_is_reached(kind: str, start: int, n: int, split: int, seed: int) -> None:
    make = MAKERS[kind]
    rows = read(make(seed=seed, rows_per_split=split), start, start + n)
    assert len(rows) == n
    assert rows == read(make(seed=seed), start, start + n, "records")
    if n > 2:
        assert rows[1:-1] == read(make(seed=seed), start + 1, start + n - 1)
        assert rows != read(make(seed=seed + 1), start, start + n)


def test_reference_events() -> None:
    source = DatagenSource(seed=7, start_ms=1_545_184_226_432, out_of_orderness="2 s")
    (chunk,) = source.reader(ReaderContext(reject=None)).read(
        source.enumerator(NOWHERE).splits({"row": 0}, {"row": 5_000})[0]
    )
    assert isinstance(chunk, Lines)
    events = [json.loads(row["value"]) for row in to_records(chunk).rows]
    assert chunk.row(0).startswith(b'{"timestamp":15451842')
    kinds = Counter(e["event"] for e in events)
    assert set(kinds) == {"page_view", "adv_click", "thumbs_up"}
    assert kinds["page_view"] > kinds["adv_click"] > kinds["thumbs_up"] > 0
    assert len({e["uuid"] for e in events}) == 5_000
    assert all(uuid.UUID(e["uuid"]).version == 4 and str(uuid.UUID(e["uuid"])) == e["uuid"] for e in events)
    lateness = [1_545_184_226_432 + i - round(e["timestamp"] * 1000) for i, e in enumerate(events)]
    assert min(lateness) >= 0
    assert 1_900 < max(lateness) <= 2_000
    in_order = [json.loads(r["value"])["timestamp"] for r in read(DatagenSource(rate=10), 0, 100)]
    assert in_order == [round(1_545_184_226.432 + i / 10, 3) for i in range(100)]


def test_columns_by_type_and_by_rule() -> None:
    columns = (
        "b boolean, t tinyint, i int, l bigint, f float, d decimal(5,2), s string, y binary, a date, n timestamp_ntz, "
        "z timestamp, r struct<p:int,q:string>, q bigint, w string, m int, v double"
    )
    rules: dict[str, Any] = {"q": "sequence", "w": ["x", "y", None], "m": (-3, 3), "v": (10, 20)}
    rows = read(DatagenSource(columns, fields=rules, start_ms=1_545_184_226_432), 0, 2_000)
    assert {r["b"] for r in rows} == {True, False}
    assert {r["t"] for r in rows} == set(range(128))
    assert len({r["l"] for r in rows}) == len({r["s"] for r in rows}) == len({r["r"]["q"] for r in rows}) == 2_000
    assert all(len(r["s"]) == 16 and 0 <= r["f"] <= 1 and 0 <= r["d"] < 1_000 for r in rows)
    assert rows[5]["z"] == datetime(2018, 12, 19, 1, 50, 26, 437000, tzinfo=UTC)
    assert [r["q"] for r in rows] == list(range(2_000))
    assert {r["w"] for r in rows} == {"x", "y", None}
    assert {r["m"] for r in rows} == set(range(-3, 4))
    assert all(10 <= r["v"] < 20 for r in rows)


def test_rate_and_limits_and_end() -> None:
    clock = ManualClock(50_000)
    source = DatagenSource(rate=200, count=1_000, rows_per_checkpoint=300, clock=clock)
    made = source.enumerator(NOWHERE)
    start = made.initial()
    assert start == {"row": 0, "from_ms": 50_000}
    assert made.latest(start) == start
    clock.set(50_999)
    one = made.latest(start)
    assert one == {"row": 199, "from_ms": 50_000}
    assert made.latest(one) == one
    clock.set(60_000)
    two = made.latest(one)
    assert two["row"] == 499
    for _ in range(2):
        assert not made.finished(two)
        two = made.latest(two)
    assert (two["row"], made.finished(two), source.bounded) == (1_000, True, True)
    assert source.describe(two) == "generated rows: 1000 of 1000"
    endless = DatagenSource(rows_per_checkpoint=10)
    assert endless.enumerator(NOWHERE).latest({"row": 5, "from_ms": 0})["row"] == 15
    assert not endless.bounded
    assert not endless.enumerator(NOWHERE).finished({"row": 1 << 40, "from_ms": 0})


def test_function_rows_are_held_to_the_schema() -> None:
    rejected: list[Any] = []
    source = DatagenSource(lambda i, rng: {"n": i if i % 10 else "ten", "extra": 1}, schema="n int, m string")
    made = source.enumerator(NOWHERE)
    (split,) = made.splits({"row": 1}, {"row": 31})
    assert split.name == "rows 1 to 30"
    (chunk,) = source.reader(ReaderContext(reject=rejected.append)).read(split)
    rows = to_records(chunk).rows
    assert rows[:2] == [{"n": 1, "m": None}, {"n": 2, "m": None}]
    assert [r.where["row"] for r in rejected] == [10, 20, 30]
    with pytest.raises(TerminalError, match="column 'n'"):
        source.preflight()


def test_what_cannot_work_is_refused() -> None:
    for words, make in {
        "rate": lambda: DatagenSource(rate=0),
        "count": lambda: DatagenSource(count=-1),
        "needs a schema": lambda: DatagenSource(row_of),
        "schema is for": lambda: DatagenSource(schema="a int"),
        "fields are for": lambda: DatagenSource(fields={"a": 1}),
        "unknown column 'b'": lambda: DatagenSource("a int", fields={"b": (1, 2)}),
        "column 'a'": lambda: DatagenSource("a int", fields={"a": (2, 1)}),
        "made up for list": lambda: DatagenSource("a array<int>"),
        "below one": lambda: DatagenSource(rows_per_split=0),
        "returned int": DatagenSource(lambda i, rng: 5, schema="a int").preflight,  # type: ignore[arg-type,return-value]
        "2001": DatagenSource(start_ms=5).preflight,
    }.items():
        with pytest.raises(DefinitionError, match=words):
            make()
    assert isinstance(DatagenSource(), SplitSource)


def test_it_pickles(tmp_path: Path) -> None:
    source = DatagenSource(row_of, schema="i bigint, x double", seed=3)
    assert read(pickle.loads(pickle.dumps(source)), 0, 5) == read(source, 0, 5)


def test_wide_rows_of_a_function_come_few_at_a_time() -> None:
    text = "x" * (1 << 20)
    source = DatagenSource(lambda i, rng: {"i": i, "text": text}, schema="i bigint, text string")
    (split,) = source.enumerator(NOWHERE).splits({"row": 0, "from_ms": 0}, {"row": 200, "from_ms": 0})
    counts = [len(chunk) for chunk in source.reader(ReaderContext(reject=None, want="records")).read(split)]
    assert (sum(counts), max(counts), max(counts[1:])) == (200, 64, 15)
