"""Results while they change: each row in its place, and no more of them than are kept."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from poundlock.sql.running.shown import FinalTable
from poundlock.sql.shell.result_table import ResultTable, ResultTail


def table(*changes: tuple[str, str], most: int = 100) -> ResultTable:
    made = ResultTable(most)
    made.take([(kind, (row,)) for kind, row in changes])
    return made


def test_a_row_that_replaces_another_stands_in_its_place() -> None:
    made = table(("+I", "a 1"), ("+I", "b 1"), ("-U", "a 1"), ("+U", "a 2"))
    assert made.rows() == [("a 2",), ("b 1",)]


def test_a_row_that_is_taken_away_leaves_no_place() -> None:
    assert table(("+I", "a"), ("+I", "b"), ("-D", "a"), ("+U", "c")).rows() == [("b",), ("c",)]
    assert table(("+I", "a"), ("+I", "b"), ("-U", "a"), ("+I", "c")).rows() == [("b",), ("c",)]
    assert table(("+I", "a"), ("-U", "a")).rows() == []


def test_a_row_may_be_taken_away_before_it_comes() -> None:
    made = table(("-D", "a"), ("+I", "b"), ("+I", "a"))
    assert made.rows() == [("b",)]
    made.take([("+I", ("a",))])
    assert made.rows() == [("b",), ("a",)]


def test_equal_rows_are_counted() -> None:
    assert table(("+I", "a"), ("+I", "a"), ("+I", "a"), ("-D", "a")).rows() == [("a",), ("a",)]


def test_no_more_rows_are_kept_than_may_be() -> None:
    made = table(*(("+I", str(n)) for n in range(10)), most=3)
    assert made.rows() == [("7",), ("8",), ("9",)]
    assert made.dropped == 7
    made.take([("-D", ("2",)), ("+I", ("2",))])  # the first of them is not kept, the second is
    assert made.rows() == [("8",), ("9",), ("2",)]


def test_the_last_rows_are_the_newest() -> None:
    made = table(*(("+I", str(n)) for n in range(10)))
    assert made.rows(2) == [("8",), ("9",)]
    assert len(made.rows(20)) == len(made) == 10


CHANGES = st.lists(st.tuples(st.sampled_from(["+I", "+U", "-U", "-D"]), st.tuples(st.sampled_from("abc"))))


@given(CHANGES)
def test_the_rows_are_those_of_the_final_table(changes: list[tuple[str, tuple[str]]]) -> None:
    made, final = ResultTable(1_000), FinalTable()
    for at in range(0, len(changes), 3):
        made.take(changes[at : at + 3])
        final.take(changes[at : at + 3])
    assert Counter(made.rows()) == Counter(final.rows())


@given(CHANGES, st.integers(1, 3))
def test_whatever_comes_no_more_rows_are_kept(changes: list[tuple[str, tuple[str]]], most: int) -> None:
    made = ResultTable(most)
    made.take(changes)
    assert len(made.rows()) == len(made) <= most


def test_the_tail_has_the_newest_changes() -> None:
    made = ResultTail(3)
    made.take([("+I", (str(n),)) for n in range(10)])
    assert (made.total, made.rows()) == (10, [("+I", ("7",)), ("+I", ("8",)), ("+I", ("9",))])
    assert made.rows(1) == [("+I", ("9",))]
