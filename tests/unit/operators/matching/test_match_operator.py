"""The operator of patterns: rows wait for the watermark, are put in order, and go on where state was left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.factory import process_by_record, process_operator
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.stream.matching import AfterMatch, MatchCondition, MatchedRows, MatchNode, MatchResult, PatternVariable
from poundlock.stream.nodes import SortColumn
from poundlock.testing.harness import KeyedOperatorHarness
from support.examples import examples
from support.match_model import MatchModel

PATTERN = (PatternVariable("low"), PatternVariable("more", 0, None), PatternVariable("high"))


@dataclass(frozen=True)
class Program:
    """A low number, then any, then one that is greater by two."""

    columns: Sequence[str] = ("n", "id")

    def conditions(self) -> Sequence[MatchCondition | None]:
        return [lambda rows: rows.row is not None and rows.row[0] <= 1, None, _is_high]

    def result(self) -> MatchResult:
        return lambda rows, time: (*(row[1] for row in rows.rows_of(None)), time)


def _is_high(rows: MatchedRows) -> bool:
    low = rows.row_of(0, 0, from_first=True)
    assert low is not None
    assert rows.row is not None
    return bool(rows.row[0] >= low[0] + 2)


def node(**options: Any) -> MatchNode:
    settings: dict[str, Any] = {"pattern": PATTERN, "after": AfterMatch("past last row"), "program": Program()}
    return MatchNode("m", [], [["k"]], ["ts"], "x int", {}, **{**settings, **options})


def harness(made: MatchNode, **options: Any) -> KeyedOperatorHarness:
    def make() -> KeyedOperator:
        return process_operator(made)

    return KeyedOperatorHarness(make, key=lambda value: value[2], **options)


def by_key(output: Sequence[Any]) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {}
    for each in output:
        assert each.value[-1] == each.timestamp
        made.setdefault(each.key, []).append(each.value)
    return made


def model(rows: list[tuple[int, int, int]], within: int | None) -> list[Any]:
    """Return what comes out for rows of one key: each a time, a number and its own number."""
    rows = sorted(rows, key=lambda row: row[0])
    tests: list[Any] = [
        lambda values, row: row <= 1,
        lambda values, row: True,
        lambda values, row: bool(values[0]) and row >= values[0][0] + 2,
    ]
    known = MatchModel(PATTERN, AfterMatch("past last row"), tests, within, [(time, n) for time, n, _ in rows])
    return [(*(rows[at][2] for some in each.rows for at in some), each.time) for each in known.matches()]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 4)))),
        st.tuples(st.just("watermark"), st.integers(0, 3)),
        st.tuples(st.just("instances"), st.integers(1, 3)),
    ),
    max_size=10,
)


@examples(150)
@given(steps, st.one_of(st.none(), st.integers(2, 9)))
def test_rows_in_any_order_and_batches_give_the_matches_of_those_in_order(given_: Any, within: int | None) -> None:
    h = harness(node(within_ms=within), key_groups=4)
    kept: dict[str, list[Any]] = {}
    watermark, late, number = 0, 0, 0
    h.process_watermark(0)
    for kind, what in given_:
        if kind == "watermark":
            watermark += what
            h.process_watermark(watermark)
        elif kind == "instances":
            h.rescale(what)
        else:
            rows = []
            for key, ahead, n in what:
                time = watermark + ahead - 2
                rows.append(([n, number, key], time))
                if time <= watermark:
                    late += 1
                else:
                    kept.setdefault(key, []).append((time, n, number))
                number += 1
            h.process_elements(rows)
    h.end_of_input()
    wanted = {key: made for key, rows in kept.items() if (made := model(rows, within))}
    assert by_key(h.output) == wanted
    assert h.late_dropped == late
    if within is not None:
        assert (h.state(), h.timers()) == ({}, [])


def test_rows_wait_until_the_watermark_reaches_them_and_state_is_gone_when_the_time_is_over() -> None:
    h = harness(node(within_ms=10))
    h.process_elements([([3, 1, "a"], 5), ([0, 0, "a"], 4), ([9, 2, "a"], 9)])
    assert h.process_watermark(4) == []
    assert [each.value for each in h.process_watermark(5)] == [(0, 1, 5)]
    assert h.process_watermark(9) == []
    assert (h.state(), h.timers()) == ({}, [])
    h.process_element([1, 3, "a"], 12)
    h.process_watermark(12)
    assert set(h.state()) == {"begun matches"}
    assert [timer.time for timer in h.timers()] == [22]
    h.process_watermark(22)
    assert (h.state(), h.timers()) == ({}, [])


def test_rows_of_one_time_are_in_the_order_of_further_columns() -> None:
    pattern = (PatternVariable("low", 4, 4),)

    @dataclass(frozen=True)
    class Any4(Program):
        def conditions(self) -> Sequence[MatchCondition | None]:
            return [None]

    for order, wanted in (
        ([], (0, 1, 2, 3)),
        ([SortColumn("n")], (2, 0, 3, 1)),
        ([SortColumn("n", True, False)], (1, 0, 3, 2)),
        ([SortColumn("n", True, True), SortColumn("id", True)], (2, 1, 3, 0)),
        ([SortColumn("n", False, False)], (0, 3, 1, 2)),
    ):
        h = harness(node(pattern=pattern, program=Any4(), order=order))
        for number, n in enumerate([1, 2, None, 1]):
            h.process_element([n, number, "a"], 7)
        assert [each.value for each in h.process_watermark(7)] == [(*wanted, 7)]


def test_by_the_clock_rows_count_as_they_come() -> None:
    made = MatchNode(
        "m", [], [["k"]], [None], "x int", {}, pattern=PATTERN, after=AfterMatch("past last row"), program=Program(),
        within_ms=10,
    )  # fmt: skip
    h = harness(made)
    h.set_processing_time(100)
    assert h.process_elements([([0, 0, "a"], None), ([1, 1, "b"], None)]) == []
    h.set_processing_time(105)
    assert [(each.value, each.timestamp) for each in h.process_element([5, 2, "a"])] == [((0, 2, 105), None)]
    assert set(h.state()["begun matches"]) == {"b"}
    h.set_processing_time(110)
    assert (h.state(), h.timers()) == ({}, [])
    assert h.process_element([5, 3, "b"]) == []


def test_a_row_without_event_time_is_refused() -> None:
    h = harness(node())
    with pytest.raises(DefinitionError, match="a row without event time"):
        h.process_element([1, 1, "a"], None)


def test_state_of_another_pattern_is_refused() -> None:
    h = harness(node())
    h.process_element([0, 0, "a"], 5)
    h.process_watermark(5)
    saved = h.snapshot()
    other = harness(node(pattern=(*PATTERN[:2], PatternVariable("high", 2, 2))))
    other.restore(saved)
    with pytest.raises(TerminalError, match="begun matches"):
        other.process_element([0, 0, "a"], 6)


def test_a_step_says_what_it_does() -> None:
    made = node(
        within_ms=5_000, pattern=(*PATTERN[:1], PatternVariable("more", 1, None, True), PatternVariable("end", 2, 3))
    )
    assert made.describe() == "matches of low more{1,} end{2,3}? within 5000 ms AFTER MATCH SKIP PAST LAST ROW"
    assert process_by_record(made) == "what a row may be depends on those before it"
