"""Two measures of one sink: every figure that both know is compared, and what one does not know is not."""

from __future__ import annotations

from dataclasses import replace

from poundlock.audit.write_totals import Measure, ReplayDifference, Written, compare
from poundlock.checkpoint.participant import Counts

WROTE = Written(pieces=2, rows=3, bytes=30, digest="aa")
THEN = Measure(counts=Counts(read=4, written=3, filtered=1), wrote=WROTE, places={"a": 1, "b": 2})


def test_equal_measures_do_not_differ() -> None:
    assert compare("s", THEN, replace(THEN)) == []


def test_each_figure_is_compared() -> None:
    now = Measure(
        counts=Counts(read=4, written=2, filtered=2),
        wrote=Written(pieces=3, rows=2, bytes=20, digest="bb"),
        places={"a": 1, "c": 1},
    )
    assert compare("s", THEN, now) == [
        ReplayDifference("s", "written", 3, 2),
        ReplayDifference("s", "filtered", 1, 2),
        ReplayDifference("s", "bytes", 30, 20),
        ReplayDifference("s", "digest of 2 pieces and of 3", "aa", "bb"),
        ReplayDifference("s", "rows in b", 2, 0),
        ReplayDifference("s", "rows in c", 0, 1),
    ]


def test_nothing_written_is_a_figure_too_and_not_known_is_none() -> None:
    nothing = replace(THEN, wrote=None)
    assert {found.figure for found in compare("s", THEN, nothing)} == {"bytes", "digest of 2 pieces and of 0"}
    assert compare("s", THEN, replace(nothing, full=False)) == []
    assert compare("s", replace(THEN, wrote=replace(WROTE, digest=None)), THEN) == [], "Avro files have no digest"
