"""Nexmark's events: shares, order, and who is named in them; scripts, and the table of ratios."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.measure import Usage
from benchmarks.nexmark.answers import answer_of, final_rows
from benchmarks.nexmark.events import Events, events, lines, lines_of
from benchmarks.nexmark.ratios import geometric_mean, ratios, show_ratios
from benchmarks.nexmark.scripts import QUERIES, script
from benchmarks.result import Result

KINDS = ("person", "auction", "bid")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(0, 5_000, per_second=1_000).to_pylist()]


def those(rows: list[dict[str, object]], kind: str) -> list[dict[str, object]]:
    return [row[kind] for row in rows if kind in row]  # type: ignore[misc]


def test_the_shares_are_one_to_three_to_forty_six(rows: list[dict[str, object]]) -> None:
    assert [len(those(rows, kind)) for kind in KINDS] == [100, 300, 4_600]
    assert Counter(row["event_type"] for row in rows) == {0: 100, 1: 300, 2: 4_600}


def test_events_stand_in_the_order_of_their_time(rows: list[dict[str, object]]) -> None:
    times = [row[KINDS[row["event_type"]]]["dateTime"] for row in rows]  # type: ignore[index]
    assert times == sorted(times)
    assert (times[0], times[-1]) == ("2026-01-01 00:00:00.000", "2026-01-01 00:00:04.999")


def test_ids_ascend_and_others_name_those_that_there_are_mostly(rows: list[dict[str, object]]) -> None:
    people, auctions, bids = (those(rows, kind) for kind in KINDS)
    assert [each["id"] for each in people] == list(range(1000, 1100))
    assert [each["id"] for each in auctions] == list(range(1000, 1300))
    known = {each["id"] for each in auctions}
    assert sum(each["auction"] in known for each in bids) > 4_500
    assert all(1000 <= each["auction"] < 1310 and 1000 <= each["bidder"] < 1110 for each in bids)  # type: ignore[operator]
    assert all(each["reserve"] > each["initialBid"] and each["expires"] > each["dateTime"] for each in auctions)  # type: ignore[operator]
    hot = Counter(each["channel"] for each in bids)
    assert sum(hot[name] for name in ("Google", "Facebook", "Baidu", "Apple")) == pytest.approx(2_300, rel=0.1)


def test_the_same_seed_gives_the_same_events_and_another_others() -> None:
    assert lines(0, 100).equals(lines(0, 100))
    assert not lines(0, 100).equals(lines(0, 100, seed=7))


def test_files_have_every_other_round_and_are_made_once(tmp_path: Path) -> None:
    made = events(tmp_path, 50_100)
    assert made == events(tmp_path, 50_100)
    assert made == Events(tmp_path / "nexmark-50100-2", 50_100, 46_092)
    parts = [path.read_bytes().splitlines() for path in sorted(made.folder.iterdir())]
    assert sorted(line for part in parts for line in part) == sorted(line for block in lines_of(made) for line in block)
    assert all(part[0].startswith(b'{"event_type":0') for part in parts)


def test_only_options_of_connectors_differ_between_scripts() -> None:
    here, there = ({"connector": name, "path": name} for name in ("filesystem", "kafka"))
    for query in QUERIES:
        one, other = (script([query], each, {"connector": "blackhole"}, each, each) for each in (here, there))
        assert "${" not in one
        assert one.replace("filesystem", "kafka") == other


def test_several_queries_are_one_job() -> None:
    text = script(["q0", "q1"], {"connector": "x"}, {"connector": "print", "print-identifier": "${query}"}, {}, {})
    assert text.count("BEGIN") == text.count("END") - text.count("CASE event_type") == 1
    assert [f"'print-identifier' = '{query}'" in text for query in ("q0", "q1")] == [True, True]
    assert "INSERT INTO answer_q1" in text


def test_what_is_left_of_changes() -> None:
    printed = ["+I[1, a]", "2> -U[1, a]", "2> +U[1, b]", "noise", "+I[2, c]", "-D[2, c]"]
    assert list(final_rows(printed)) == ["1, b"]
    assert answer_of(["x, 2026-01-05T10:00"]) == answer_of(["x, 2026-01-05 10:00:00.000"])
    with pytest.raises(ValueError, match="not there"):
        list(final_rows(["-D[1, a]"]))


def test_ratios_and_their_geometric_mean() -> None:
    def result(name: str, cpu_s: float) -> Result:
        return Result.of(name, 1_000, Usage(code=0, wall_s=cpu_s, cpu_s=cpu_s, peak_mb=100, load=1.0))

    results = [
        result("nexmark_q0/poundlock", 1), result("nexmark_q0/flink", 4),
        result("nexmark_q1/poundlock", 2), result("nexmark_q1/flink", 2), result("nexmark_q2/flink", 2),
    ]  # fmt: skip
    assert [(query, ratio) for query, *_, ratio in ratios(results, "nexmark")] == [("q0", 4.0), ("q1", 1.0)]
    assert geometric_mean([4.0, 1.0]) == pytest.approx(2.0)
    console = Console(record=True, width=150, quiet=False)
    show_ratios(console, results)
    assert "geometric mean of 2 queries: 2.00 ×, bar 1 ×: reached" in console.export_text()
