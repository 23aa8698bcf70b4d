"""Bars and percentiles: what is held against what, and that a missed one is told."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from benchmarks.__main__ import _arguments
from benchmarks.cases import CASES
from benchmarks.jobs import many_branches, state_keys
from benchmarks.latency import percentile
from benchmarks.latency_client import fault
from benchmarks.measure import Usage
from benchmarks.result import BARS, Bar, Result, show

USAGE = Usage(code=0, wall_s=10.0, cpu_s=20.0, peak_mb=100.0, load=1.0)
RESULT = Result.of("a/x", 1000, USAGE, median_ms=300.04, p99_ms=500, max_ms=700, figures={"growth": 1.2})


def test_a_bar_in_rows_a_second_looks_at_wall_time_and_the_others_at_cpu_time() -> None:
    twice = replace(RESULT, name="b/y", rows_per_s=200.0, rows_per_cpu_s=5.0)
    results = {"a/x": RESULT, "b/y": twice}
    assert Bar(name="a/x", factor=0.6, per="wall", against="b/y").judge(results) == (
        "a/x ≥ 0.6 × b/y in rows/s",
        "0.50 ×",
        False,
    )
    judged = Bar(name="a/x", factor=0.6, against="b/y").judge(results)
    assert judged is not None
    assert judged[1:] == ("10.00 ×", True)


@pytest.mark.parametrize(("most", "reached"), [(1.5, True), (1.1, False)])
def test_a_bar_on_a_figure_of_the_case(most: float, reached: bool) -> None:
    assert Bar(name="a/x", figure="growth", most=most).judge({"a/x": RESULT}) == (
        f"a/x growth ≤ {most} ×",
        "1.20 ×",
        reached,
    )


@pytest.mark.parametrize(("other_ms", "reached"), [(601.0, True), (500.0, False)])
def test_a_bar_in_parts_of_the_median_of_another(other_ms: float, reached: bool) -> None:
    results = {"a/x": RESULT, "b/y": replace(RESULT, median_ms=other_ms)}
    judged = Bar(name="a/x", share=0.5, against="b/y").judge(results)
    assert judged is not None
    assert judged[0] == "a/x median ≤ 0.5 × b/y"
    assert judged[2] is reached
    assert Bar(name="a/x", share=0.5, against="b/y").judge({"a/x": RESULT}) is None


@pytest.mark.parametrize(("most", "reached"), [(100.0, True), (99.0, False)])
def test_a_bar_on_memory(most: float, reached: bool) -> None:
    assert Bar(name="a/x", most_mb=most).judge({"a/x": RESULT}) == (
        f"a/x peak memory ≤ {most:.0f} MB",
        "100 MB",
        reached,
    )


def test_what_the_cases_of_small_checkpoints_have_to_find() -> None:
    assert state_keys.expected(1_000_000, 40) == 2 * 60_000
    assert state_keys.expected(10_000, 40) == 10_000 * (2 + 3 + 4 + 5 + 6 + 7)
    assert [many_branches.expected(branch, 160) for branch in (0, 3, 5, 8, 12)] == [160, 320, 240, 0, 312]


def test_every_bar_is_about_cases_there_are() -> None:
    names = {case.name for case in CASES}
    assert {bar.name for bar in BARS} | {bar.against for bar in BARS if bar.against} <= names


def test_times_and_figures_are_shown() -> None:
    out = StringIO()
    assert show(Console(file=out, width=200), [RESULT])
    assert {"300.0", "500.0", "700.0"} <= set(out.getvalue().split())
    assert "a/x: growth 1.2" in out.getvalue()


@pytest.mark.parametrize(("share", "value"), [(0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0), (0.001, 1.0)])
def test_percentiles_of_a_hundred(share: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], share) == value


def test_lost_and_repeated_events_are_told() -> None:
    every = dict.fromkeys(range(10))
    assert fault(every, 0, 10) is None
    assert fault({n: None for n in every if n != 3}, 0, 10) == "9 of 10 events arrived, 0 came again"
    assert fault(every, 1, 10) == "10 of 10 events arrived, 1 came again"
    assert fault({**every, 99: None}, 0, 10) is not None


def test_cases_are_chosen_by_the_beginning_of_their_names() -> None:
    assert _arguments(["latency", "--quick"]).names == ["latency"]
    assert len({case.name for case in CASES}) == len(CASES)
