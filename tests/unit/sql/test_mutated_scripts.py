"""Scripts with mistakes: each is in order, or refused with the place of what is wrong. Nothing else is raised, and nothing hangs."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.errors import PoundlockError
from poundlock.sql.errors import SqlError
from poundlock.sql.running.runner import ScriptRunner
from support.in_process import PATCHES
from support.mutated_scripts import Mutated, bounded, mutated_scripts
from support.sql_lives import run_in_process
from support.sql_scripts import CASES, written

ORDINARY = 20261127
PARTS = 10
ELSEWHERE = ("kafka", "jdbc", "cdc", "monitor-interval", "datagen")
"""Scripts with these words need servers, or may have no end."""
NO_RESTART = ("restart-strategy.type=none",)
EACH_S = 20.0  # of the processor, for a script of some thousand characters


def wrong_with(script: Mutated) -> str | None:
    """Return what is wrong with the answer to a script, None where nothing is."""
    try:
        with bounded(EACH_S):
            ScriptRunner("check", lambda *_: None, lambda _: None).check(script.text)
    except SqlError as error:
        return wrong_with_refusal(error, script.text)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    return None


def wrong_with_refusal(error: SqlError, text: str) -> str | None:
    """Return what is wrong with the refusal of a script."""
    lines = text.split("\n")
    place = error.place
    if not 1 <= place.line <= len(lines):
        return f"line {place.line} of {len(lines)}: {error}"
    if not 1 <= place.column <= len(lines[place.line - 1]) + 1:
        return f"column {place.column} of {len(lines[place.line - 1])}: {error}"
    shown = error.shown.split("\n")
    if len(shown) != 2 or shown[1] != " " * (len(shown[1]) - 1) + "^":
        return f"no caret: {error.shown!r}"
    if not error.next or len(str(error).splitlines()) != 2:
        return f"not two lines: {error}"
    if not str(error).startswith(f"line {place.line}, column {place.column}: "):
        return f"no place: {error}"
    return None


def assert_answered(scripts: list[Mutated]) -> None:
    wrong = [(script, found) for script in scripts if (found := wrong_with(script)) is not None]
    assert not wrong, "\n\n".join(f"{each.id}\n{found}\n{each.text!r}" for each, found in wrong[:20])


@pytest.mark.parametrize("part", range(PARTS))
def test_a_script_with_mistakes_is_refused_with_their_place(part: int) -> None:
    assert_answered(mutated_scripts(ORDINARY, 500)[part::PARTS])


def test_what_is_in_order_runs_or_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A script that the check lets through meets its rows: it ends, or says in words why not."""
    assert_runs(monkeypatch, tmp_path, mutated_scripts(ORDINARY, 60))


@pytest.mark.torture
def test_two_thousand_that_are_in_order_run_or_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}: POUNDLOCK_TORTURE_SEED={seed} gives the same scripts")
    assert_runs(monkeypatch, tmp_path, mutated_scripts(seed, 2_000))


def is_in_order(script: Mutated) -> bool:
    """Return whether the check lets a script through."""
    try:
        ScriptRunner("check", lambda *_: None, lambda _: None).check(script.text)
    except SqlError:
        return False
    return True


def stays_below(text: str) -> bool:
    """Return whether a script reads and writes nothing but the folder of its case, and ends: a mistake may make "/*" of a path."""
    if any(word in text.lower() for word in ELSEWHERE):
        return False
    return not any("/" in literal and not literal.startswith("'/nowhere/") for literal in re.findall(r"'[^']*'", text))


def assert_runs(monkeypatch: pytest.MonkeyPatch, folder: Path, scripts: list[Mutated]) -> None:
    """Run the scripts that are in order over the rows of their cases; those of servers and without an end are left out."""
    for module, name, other in PATCHES:
        monkeypatch.setattr(module, name, other)
    ran, refused = 0, []
    for number, script in enumerate(scripts):
        if not stays_below(script.text) or not is_in_order(script):
            continue
        root = folder / str(number)
        root.mkdir()
        monkeypatch.chdir(root)
        written(CASES[script.case], root, file_per_row=False)
        try:
            with bounded(EACH_S):
                run_in_process(root, script.text.replace("/nowhere/", f"{root}/"), settings=NO_RESTART)
        except PoundlockError as error:
            refused.append(f"{script.id}: {error}")
        ran += 1
    assert [each for each in refused if len(each.splitlines()) != 2] == []
    assert ran > len(scripts) / 20


@pytest.mark.torture
def test_twenty_thousand_scripts_with_mistakes() -> None:
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}: POUNDLOCK_TORTURE_SEED={seed} gives the same scripts")
    assert_answered(mutated_scripts(seed, 20_000))


def test_some_are_refused_and_some_are_in_order() -> None:
    """The mistakes are mistakes, and not all of them break a script at its first word."""
    refused: set[str] = set()
    in_order = 0
    for script in mutated_scripts(ORDINARY, 60):
        try:
            ScriptRunner("check", lambda *_: None, lambda _: None).check(script.text)
        except SqlError as error:
            refused.add(error.kind)
        else:
            in_order += 1
    assert {"syntax", "unknown_column"} <= refused
    assert 0 < in_order < 40


def test_the_command_line_says_what_is_wrong_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(
        "SELECT 1;\nSELECT (1 + `nobody`) FROM (VALUES (1)) AS t (a)", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "poundlock.cli.main", "sql", "script.sql", "--check"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("SELECT (1 + `nobody`)")
    assert lines[1].strip() == "^"
    assert lines[2].startswith("error: line 2, column 13: ")
    assert lines[3].startswith("Next: ")
