from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from poundlock.demo import report


def a_report() -> report.DemoReport:
    return report.DemoReport(
        produced=200_000,
        in_files=199_000,
        dead_lettered=1000,
        lost=0,
        duplicated=0,
        misplaced=0,
        hidden=0,
        rows_per_s=123_456,
        recovery_s=9.5,
        recoveries_s=[9.5, 8.25],
        kills=2,
        checkpoints=17,
        files=12,
        seed=1,
        left_behind=[],
        duration_s=60.0,
    )


def test_the_exit_code_is_the_verdict() -> None:
    good = a_report()
    assert good.exit_code == 0
    assert replace(good, lost=1).exit_code == 1
    assert replace(good, duplicated=1).exit_code == 1
    assert replace(good, misplaced=1).exit_code == 1
    assert replace(good, left_behind=["42 java"]).exit_code == 1


def test_the_json_has_the_agreed_names(tmp_path: Path) -> None:
    a_report().save(tmp_path / "report.json")
    saved = json.loads((tmp_path / "report.json").read_text())
    agreed = {"produced", "in_files", "dead_lettered", "lost", "duplicated", "rows_per_s", "recovery_s"}
    assert agreed <= saved.keys()
    assert saved["recovery_s"] == 9.5


def test_the_tree_is_shortened(tmp_path: Path) -> None:
    (tmp_path / "dt=20181219").mkdir()
    for number in range(7):
        (tmp_path / f"dt=20181219/part-0-{number}").write_bytes(b"x" * 1536)
    console = Console(width=100, record=True, file=(tmp_path / "terminal").open("w"))
    console.print(report.directory_tree(tmp_path))
    console.print(a_report().table())
    text = console.export_text()
    assert "dt=20181219/" in text
    assert "part-0-3" in text
    assert "part-0-4" not in text
    assert "… and 3 more, 10.5 KB" not in text
    assert "… and 3 more, 4.5 KB" in text
    assert "199,000" in text
    assert "9.5 and 8.2" in text
