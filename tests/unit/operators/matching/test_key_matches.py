"""The automaton of a pattern against every way to divide rows among its variables, and with its state written and read meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.keyed.codec import decode, encode, pack
from poundlock.operators.matching.key_matches import KeyMatches, Matching
from poundlock.stream.matching import AfterMatch, MatchedRows, PatternVariable
from support.examples import examples
from support.match_model import Condition, Known, MatchModel, NoPlace

NAMES = "abcd"


@st.composite
def variables(draw: st.DrawFn) -> list[PatternVariable]:
    """Return variables of which one has a row at least, and the last one is not greedy."""
    count = draw(st.integers(1, 4))
    made = []
    for name in NAMES[:count]:
        least = draw(st.sampled_from([0, 0, 1, 1, 1, 2]))
        most = draw(st.sampled_from([None, None, *range(max(least, 1), 3)]))
        sure = least == most or (least, most) == (0, 1)
        is_greedy = not sure and name != NAMES[count - 1] and draw(st.booleans())
        made.append(PatternVariable(name, least, most, is_greedy))
    if all(each.least == 0 for each in made):
        made[-1] = PatternVariable(made[-1].name)
    return made


@st.composite
def conditions(draw: st.DrawFn, count: int) -> list[Condition]:
    return [draw(condition(count)) for _ in range(count)]


@st.composite
def condition(draw: st.DrawFn, count: int) -> Condition:
    """Return a condition of a row's value alone, or one that looks at the last or first row of a variable, or at how many there are."""
    among = draw(st.sets(st.integers(0, 2), min_size=2))
    kind = draw(st.sampled_from(["any", "own", "own", "last", "first", "first", "sum"]))
    of = draw(st.integers(0, count - 1))
    if kind == "any":
        return lambda values, row: True
    if kind == "own":
        return lambda values, row: row in among
    if kind == "sum":
        return lambda values, row: sum(values[of]) + row in among
    place = -1 if kind == "last" else 0
    return lambda values, row: (values[of][place] < row) if values[of] else row in among


def asked(each: Condition, width: int) -> Callable[[MatchedRows], bool]:
    """Return a condition as the operator asks it."""

    def holds(rows: MatchedRows) -> bool:
        assert rows.row is not None
        before = MatchedRows(rows.rows, rows.start, rows.counts)
        return each([[row[0] for row in before.rows_of(variable)] for variable in range(width)], rows.row[0])

    return holds


afters = st.one_of(
    st.sampled_from([AfterMatch("past last row"), AfterMatch("to next row")]),
    st.builds(AfterMatch, st.sampled_from(["to first", "to last"]), st.just("")),
)
row_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=9)


def case(
    draw: st.DrawFn,
) -> tuple[list[PatternVariable], AfterMatch, list[Condition], int | None, list[tuple[int, int]]]:
    pattern = draw(variables())
    tests = draw(conditions(len(pattern)))
    if draw(st.integers(0, 3)) == 0:  # a match that waits for an earlier one is rare otherwise
        pattern = [
            PatternVariable("a"),
            PatternVariable("b", 0, draw(st.sampled_from([None, 2]))),
            PatternVariable("c"),
        ]
        tests = [
            lambda values, row: True,
            draw(condition(3)),
            lambda values, row: bool(values[0]) and values[0][0] < row,
        ]
    after = draw(afters)
    if after.variable is not None:  # of a variable that has a row in any match
        after = AfterMatch(after.skip, draw(st.sampled_from([each.name for each in pattern if each.least])))
    within = draw(st.one_of(st.none(), st.integers(3, 12)))
    time, rows = 0, []
    for step, value in draw(row_lists):
        time += step
        rows.append((time, value))
    return pattern, after, tests, within, rows


cases = st.composite(case)()


def known(rows: MatchedRows, width: int, time: int) -> Known:
    return Known(tuple(tuple(row[1] for row in rows.rows_of(variable)) for variable in range(width)), time)


@examples(300)
@given(cases, st.sets(st.integers(0, 9)))
def test_matches_are_those_of_every_way_to_divide_rows(given_: Any, written: set[int]) -> None:
    pattern, after, tests, within, rows = given_
    width = len(pattern)
    wanted, fails = [], False
    try:
        for each in MatchModel(pattern, after, tests, within, rows).matches():
            wanted.append(each)
    except NoPlace:
        fails = True
    matching = Matching(pattern, after, [asked(each, width) for each in tests], within)
    matches, got = KeyMatches(matching), []
    try:
        for number, (time, value) in enumerate(rows):
            if number in written:
                kept = matches.kept()
                matches = KeyMatches(matching, None if kept is None else decode(encode(pack(kept))))
            for each in matches.advance(time):
                got.append(known(each[0], width, each[1]))
            for each in matches.add(time, [value, number]):
                got.append(known(each[0], width, each[1]))
        for each in matches.advance(1_000):
            got.append(known(each[0], width, each[1]))
    except TerminalError:
        assert fails
    else:
        assert not fails
    assert got == wanted
    if within is not None and not fails:
        assert matches.kept() is None


def test_what_begins_no_match_is_not_kept() -> None:
    pattern = [PatternVariable("a"), PatternVariable("b")]
    is_small = lambda rows: rows.row[0] < 5  # noqa: E731
    matches = KeyMatches(Matching(pattern, AfterMatch("past last row"), [is_small, None]))
    for number in range(10):
        assert list(matches.add(number, [9])) == []
    assert matches.kept() is None
    assert list(matches.add(10, [1])) == []
    assert matches.kept() == [[10], [[1]], [[0, 0, 1, 0]], []]
    assert [(rows.rows_of(None), time) for rows, time in matches.add(11, [2])] == [([[1], [2]], 11)]
    assert matches.kept() is None


def test_rows_that_no_run_has_go_away_while_many_come() -> None:
    pattern = [PatternVariable("a", 3, 3), PatternVariable("b")]
    never = lambda rows: False  # noqa: E731
    matches = KeyMatches(Matching(pattern, AfterMatch("past last row"), [None, never]))
    for number in range(5_000):
        assert list(matches.add(number, [number])) == []
    assert len(matches._rows) < 1_100
    kept = matches.kept()
    assert kept is not None
    assert kept[0] == [4_997, 4_998, 4_999]


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (AfterMatch("to first", "a"), "AFTER MATCH SKIP TO FIRST a: the variable is of the first row"),
        (AfterMatch("to last", "b"), "AFTER MATCH SKIP TO LAST b: the variable has no row"),
    ],
)
def test_a_match_that_the_next_one_cannot_begin_behind_ends_the_job(after: AfterMatch, words: str) -> None:
    pattern = [PatternVariable("a"), PatternVariable("b", 0, 1), PatternVariable("c")]
    never = lambda rows: False  # noqa: E731
    matches = KeyMatches(Matching(pattern, after, [None, never, None]))
    assert list(matches.add(1, [1])) == []
    with pytest.raises(TerminalError, match=words) as error:
        list(matches.add(2, [2]))
    assert "PAST LAST ROW" in error.value.next
