"""Rows that join sessions all at once against the same rows one after the other: which are late, what fires, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.joining import KnownSessions, running
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.windows.aggregates import SqlAggregate
from support.examples import examples

GAP, WATERMARK, GONE = 10, 200, 120
LISTED = ColumnAggregates((SqlAggregate(kind="collect_list", column=0),), (pa.int64(),))
Fired = tuple[int, int, int, list[int]]
Row = tuple[int, int]


@dataclass
class Session:
    start: int
    end: int
    held: list[int]


def one_by_one(known: list[list[Session]], rows: list[Row]) -> tuple[list[int], list[Fired]]:
    """Return the late rows, and what fires: the row, and the session's bounds and what it holds."""
    late: list[int] = []
    fired: list[Fired] = []
    for row, (key, time) in enumerate(rows):
        touched = [each for each in known[key] if each.start <= time + GAP and each.end >= time]
        if not touched and time + GAP - 1 <= GONE:
            late.append(row)
            continue
        rest = [each for each in known[key] if each not in touched]
        start, end = min([time, *(each.start for each in touched)]), max([time + GAP, *(each.end for each in touched)])
        session = Session(start, end, [*(item for each in touched for item in each.held), row])
        known[key] = sorted([*rest, session], key=lambda each: each.start)
        if end - 1 <= WATERMARK:
            fired.append((row, start, end, session.held))
    return late, fired


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[Session]], list[Row]]:
    known: list[list[Session]] = []
    numbers = iter(range(-1, -1_000, -1))
    for _ in range(draw(st.integers(1, 3))):
        times = draw(st.lists(st.integers(110, 230), max_size=12, unique=True).map(sorted))
        spans = [(a, b) for a, b in zip(times[::2], times[1::2], strict=False) if b - 1 > GONE]
        known.append([Session(a, b, [next(numbers)]) for a, b in spans])
    key = st.integers(0, len(known) - 1)
    rows = draw(st.lists(st.tuples(key, st.integers(100, WATERMARK - GAP + 1)), min_size=1, max_size=60))
    return known, rows


@examples(300)
@given(cases())
def test_rows_at_once_are_rows_one_after_the_other(case: tuple[list[list[Session]], list[Row]]) -> None:
    known, rows = case
    dice = np.random.default_rng(len(rows))
    every = [(key, each) for key, sessions in enumerate(known) for each in sessions]
    every = [every[place] for place in dice.permutation(len(every)).tolist()]  # in no order
    bounds = [np.array([number(each) for each in every], np.int64) for number in (of_key, starts, ends)]
    sessions = KnownSessions(len(known), *bounds)
    keys, times = np.array(rows, np.int64).T
    late, firings = sessions.join(keys, times, gap=GAP, fires_to=WATERMARK, late_to=GONE)
    held = pa.array([each.held for _, each in every], pa.list_(pa.int64()))
    alone = pa.array([[row] for row in firings.rows.tolist()], pa.list_(pa.int64()))
    (listed,) = running(firings, [held], [alone], LISTED)
    columns = firings.rows.tolist(), firings.starts.tolist(), firings.ends.tolist(), listed.to_pylist()
    assert (np.flatnonzero(late).tolist(), list(zip(*columns, strict=True))) == one_by_one(known, rows)


def of_key(each: tuple[int, Session]) -> int:
    return each[0]


def starts(each: tuple[int, Session]) -> int:
    return each[1].start


def ends(each: tuple[int, Session]) -> int:
    return each[1].end


def test_many_rows_of_one_session_are_added_up_in_few_merges() -> None:
    merges: list[int] = []

    class Counted(ColumnAggregates):
        def merge(self, held: object, groups: object) -> list[pa.Array]:
            merges.append(1)
            return super().merge(held, groups)  # type: ignore[arg-type]

    none = np.empty(0, np.int64)
    times = np.full(5_000, 150, np.int64)
    late, firings = KnownSessions(1, none, none, none).join(
        np.zeros(5_000, np.int64), times, gap=GAP, fires_to=WATERMARK, late_to=GONE
    )
    assert not late.any()
    counts = Counted((SqlAggregate(kind="count"),), ())
    (counted,) = running(firings, [pa.array([], pa.int64())], [pa.array(np.ones(5_000, np.int64))], counts)
    assert counted.to_pylist() == list(range(1, 5_001))
    assert len(merges) == 1 + 13, "one for the rows alone, then one for each bit of their number"
