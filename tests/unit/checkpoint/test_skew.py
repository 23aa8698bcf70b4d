"""How rows lie over key groups and splits: the largest are named, and sums are of all."""

from __future__ import annotations

from dataclasses import asdict

from poundlock.checkpoint.skew import LARGEST, RowPart, Shares, Skew, together
from poundlock.driver.progress import Progress


def test_a_hot_part_shows() -> None:
    shares = Shares.of({"1": 50, "2": 25, "3": 25, "4": 0})
    assert (shares.parts, shares.rows, shares.largest[0]) == (3, 100, RowPart("1", 50))
    assert shares.skew == 1.5
    assert shares.share(shares.largest[0]) == 0.5
    assert Shares.of({}).skew == 1.0


def test_what_tasks_report_is_added_up() -> None:
    one = Shares.of({str(group): group for group in range(1, 40)})
    other = Shares.of({str(group): 1000 + group for group in range(40, 60)})
    (found,) = together([{"op": one}, {"op": other}]).values()
    assert (found.parts, found.rows) == (59, one.rows + other.rows)
    assert [part.name for part in found.largest] == [str(group) for group in range(59, 59 - LARGEST, -1)]
    split = together([{"s": Shares.of({"p": 3})}, {"s": Shares.of({"p": 4, "q": 1})}])["s"]
    assert (split.parts, split.rows, split.largest[0]) == (2, 8, RowPart("p", 7))


def test_progress_keeps_it_as_json_does() -> None:
    skew = Skew({"op": Shares.of({"7": 3, "9": 1})}, {"in": Shares.of({"a.json": 4})})
    progress = Progress("RUNNING", skew=skew)
    assert Progress.of(asdict(progress)) == progress
    assert Progress.of({"state": "RUNNING", "of_a_newer_version": 1}) == Progress("RUNNING")
    assert skew
    assert not Skew({}, {"in": Shares()})
