"""Aggregates of a user's own with OVER, and of different values in windows, against the same computed in Python."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.sql_steps import FILES, answered, write_files

Row = tuple[str, int, int, int]
"""A key, a second, a value and a weight."""
FUNCTIONS = {"wavg": "WeightedAverage", "how_many": "Rows", "total": "Total", "listed": "Listed"}
CREATED = "".join(
    f"CREATE TEMPORARY FUNCTION {name} AS 'support.sql_user_functions.{attribute}' LANGUAGE PYTHON;"
    for name, attribute in FUNCTIONS.items()
)
rows = st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 3), st.integers(1, 2))


def run(root: Path, query: str, files: Sequence[Sequence[Row]], *, batch: bool = False) -> Counter[Any]:
    """Run a query over rows that come in files, of which none is late."""
    shutil.rmtree(root)
    given_ = [[{"k": k, "ts": f"2026-01-05 10:00:0{s}", "v": v, "w": w} for k, s, v, w in each] for each in files]
    write_files(root / "t", given_)
    options = FILES.rpartition(",")[0] if batch else FILES
    table = f"""SET 'execution.runtime-mode' = '{"batch" if batch else "streaming"}'; {CREATED}
        CREATE TABLE t (k STRING, ts TIMESTAMP(3), v INT, w INT, p AS PROCTIME(),
        WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ({options}, 'path' = '{root}/t');"""
    changes = answered(root, table + query)
    assert {kind for kind, _ in changes} <= {"+I"}
    return Counter({row: count for (_, row), count in changes.items()})


def wavg(some: Sequence[Row]) -> float | None:
    weight = sum(w for *_, w in some)
    return sum(v * w for _, _, v, w in some) / weight if weight else None


def over(files: Sequence[Sequence[Row]], frame: Callable[[list[Row], int], list[Row]]) -> list[tuple[Row, list[Row]]]:
    """Return each row with those of its frame, of the rows of its key in order."""
    made = []
    for key in "ab":
        ordered = sorted((r for each in files for r in each if r[0] == key), key=lambda r: r[1])
        made += [(row, frame(ordered, at)) for at, row in enumerate(ordered)]
    return made


IN_ORDER = st.lists(st.lists(rows, max_size=4), min_size=1, max_size=4).map(
    # Rows come in the order of time, so that none is late; those of a key have different times, or their order is not certain.
    lambda files: _in_order(files)
)


def _in_order(files: Sequence[Sequence[Row]]) -> list[list[Row]]:
    every = sorted({(r[0], r[1]): r for each in files for r in each}.values(), key=lambda r: r[1])
    cut = max(1, len(every) // max(len(files), 1))
    return [every[n : n + cut] for n in range(0, len(every), cut)]


@settings(examples(8), suppress_health_check=[HealthCheck.too_slow])
@given(files=IN_ORDER.filter(any))
def test_rows_up_to_each_and_the_last_two(root: Path, files: list[list[Row]]) -> None:
    query = """SELECT k, ts, wavg(v, w) OVER w1, how_many(v) OVER w1, wavg(v, w) OVER w2, total(v) OVER w2,
        total(v) FILTER (WHERE w = 1) OVER w1, listed(DISTINCT v) OVER w1 FROM t
        WINDOW w1 AS (PARTITION BY k ORDER BY ts),
        w2 AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"""
    expected: Counter[Any] = Counter()
    pairs = zip(
        over(files, lambda r, at: r[: at + 1]), over(files, lambda r, at: r[max(at - 1, 0) : at + 1]), strict=True
    )
    for ((k, s, _, _), so_far), (_, two) in pairs:
        light = [v for _, _, v, w in so_far if w == 1]
        first = "".join(dict.fromkeys(str(v) for _, _, v, _ in so_far))
        results = (wavg(so_far), len(so_far), wavg(two), sum(v for _, _, v, _ in two), sum(light) if light else None)
        expected[k, f"2026-01-05T10:00:0{s}.000", *results, first] += 1
    assert run(root, query, files) == expected


@settings(examples(8), suppress_health_check=[HealthCheck.too_slow])
@given(files=IN_ORDER.filter(any))
def test_spans_of_time_and_different_values_of_frames(root: Path, files: list[list[Row]]) -> None:
    query = """SELECT k, ts, wavg(v, w) OVER w1, listed(DISTINCT v) OVER w1 FROM t
        WINDOW w1 AS (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW)"""
    expected: Counter[Any] = Counter()
    for (k, s, _, _), some in over(files, lambda r, at: [each for each in r[: at + 1] if each[1] >= r[at][1] - 2]):
        different = "".join(dict.fromkeys(str(v) for _, _, v, _ in some))
        expected[k, f"2026-01-05T10:00:0{s}.000", wavg(some), different] += 1
    assert run(root, query, files) == expected


EQUAL = [[("a", 1, 1, 1), ("a", 1, 2, 1), ("b", 1, 5, 2)], [("a", 3, 1, 1), ("a", 3, 3, 1)], [("a", 8, 7, 1)]]


def test_rows_of_equal_time_see_each_other(root: Path) -> None:
    query = "SELECT v, how_many(v) OVER (PARTITION BY k ORDER BY ts), total(v) OVER (PARTITION BY k ORDER BY ts) FROM t"
    assert run(root, query, EQUAL) == Counter([(1, 2, 3), (2, 2, 3), (5, 1, 5), (1, 4, 7), (3, 4, 7), (7, 5, 14)])


def test_rows_in_the_order_they_come(root: Path) -> None:
    query = "SELECT v, how_many(v) OVER (PARTITION BY k ORDER BY p), total(v) OVER (PARTITION BY k ORDER BY p) FROM t"
    assert run(root, query, EQUAL) == Counter([(1, 1, 1), (2, 2, 3), (5, 1, 5), (1, 3, 4), (3, 4, 7), (7, 5, 14)])


def test_in_batch_mode_of_all_rows_too(root: Path) -> None:
    query = """SELECT v, how_many(v) OVER (PARTITION BY k), total(v) OVER (PARTITION BY k ORDER BY v),
        listed(DISTINCT v) OVER (PARTITION BY k ORDER BY ts, v ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
        total(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t"""
    assert run(root, query, EQUAL, batch=True) == Counter(
        [(1, 5, 2, "1", 2), (1, 5, 2, "12", 4), (2, 5, 4, "12", 6), (3, 5, 7, "123", 12), (7, 5, 14, "1237", 10),
         (5, 1, 5, "5", 5)]
    )  # fmt: skip


@settings(examples(6), suppress_health_check=[HealthCheck.too_slow])
@given(files=IN_ORDER.filter(any), kind=st.sampled_from(["TUMBLE", "SESSION"]))
def test_different_values_in_windows(root: Path, files: list[list[Row]], kind: str) -> None:
    key = "PARTITION BY k" if kind == "SESSION" else ""
    gap = 2 if kind == "SESSION" else 4
    query = f"""SELECT k, total(DISTINCT v), how_many(DISTINCT v), COUNT(*), wavg(DISTINCT v, w) FILTER (WHERE v > 0)
        FROM TABLE({kind}(TABLE t {key}, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND)) GROUP BY k, window_start, window_end"""
    expected: Counter[Any] = Counter()
    for some in _windows(files, kind, gap):
        values = {v for _, _, v, _ in some}
        pairs = [("", 0, v, w) for v, w in {(v, w) for _, _, v, w in some if v > 0}]
        expected[some[0][0], sum(values), len(values), len(some), wavg(pairs)] += 1
    got = run(root, query, files)
    assert Counter((*row[:4], row[4] if row[4] is None else round(row[4], 9)) for row in got.elements()) == Counter(
        (*row[:4], row[4] if row[4] is None else round(row[4], 9)) for row in expected.elements()
    )


def _windows(files: Sequence[Sequence[Row]], kind: str, gap: int) -> list[list[Row]]:
    found: list[list[Row]] = []
    for key in "ab":
        own: list[list[Row]] = []
        for row in sorted((r for each in files for r in each if r[0] == key), key=lambda r: r[1]):
            is_next = own and (
                row[1] <= own[-1][-1][1] + gap if kind == "SESSION" else row[1] // gap == own[-1][-1][1] // gap
            )
            if is_next:
                own[-1].append(row)
            else:
                own.append([row])
        found += own
    return found


@pytest.mark.parametrize("kind", ["HOP", "CUMULATE"])
def test_different_values_in_windows_that_overlap(root: Path, kind: str) -> None:
    query = f"""SELECT window_start, window_end, listed(DISTINCT v), how_many(v)
        FROM TABLE({kind}(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND))
        GROUP BY window_start, window_end"""
    if kind == "HOP":
        with pytest.raises(Exception, match="has no merge"):
            run(root, query, EQUAL)
    query = query.replace(", how_many(v)", "")
    got = {(row[0][-6:-4], row[1][-6:-4]): "".join(sorted(row[2])) for row in run(root, query, EQUAL)}
    hops = {("58", "02"): "125", ("00", "04"): "1235", ("02", "06"): "13", ("06", "10"): "7", ("08", "12"): "7"}
    steps = {("00", "02"): "125", ("00", "04"): "1235", ("08", "10"): "7", ("08", "12"): "7"}
    assert got == (hops if kind == "HOP" else steps)
