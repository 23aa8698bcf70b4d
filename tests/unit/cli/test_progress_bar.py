"""Bars of work that takes long: on a terminal, on standard error, after a while, and nowhere else."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import TaskResults
from poundlock.cli import progress_bar as bars
from poundlock.cli.output import Output
from poundlock.cli.progress_bar import progress_bar
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.pseudo_terminal import PseudoTerminal

WORK = """
import sys, threading
from poundlock.cli import progress_bar as bars
from poundlock.cli.output import Output

bars.PATIENCE_S = {patience}
shown = threading.Event()
show = bars.ProgressBar.show
bars.ProgressBar.show = lambda bar: (show(bar), shown.set())
output = Output(as_json={json})
with bars.progress_bar(output, "copying files") as bar:
    bar.of(3, 7)
    if {waits}:
        shown.wait(60)
        bar.of(5, 7)
        bar.say("a line that stays")
        sys.stdin.readline()
output.show("the result", {{"result": 1}})
"""


def program(*, patience: float = 0.0, json: bool = False, waits: bool = True) -> list[str]:
    return [sys.executable, "-c", WORK.format(patience=patience, json=json, waits=waits)]


def test_a_terminal_shows_how_far_it_is_and_then_the_result_alone(tmp_path: Path) -> None:
    with PseudoTerminal(program(), tmp_path, os.environ) as terminal:
        terminal.await_text("a line that stays", 120)
        terminal.await_text("copying files", 120)
        terminal.await_text("5/7", 120)
        terminal.type("\n")
        terminal.await_text("the result", 120)
        assert terminal.await_end(120) == 0


def test_what_is_quick_is_quiet(tmp_path: Path) -> None:
    with PseudoTerminal(program(patience=60, waits=False), tmp_path, os.environ) as terminal:
        assert terminal.await_end(120) == 0
        assert terminal.rest.strip() == "the result"


@pytest.mark.parametrize("terminal", [{"TERM": "dumb"}, None], ids=["dumb", "json"])
def test_programs_and_dumb_terminals_get_none(terminal: dict[str, str] | None, tmp_path: Path) -> None:
    arguments = program(json=terminal is None, waits=False)
    if terminal is not None:
        arguments = ["env", *(f"{name}={value}" for name, value in terminal.items()), *arguments]
    with PseudoTerminal(arguments, tmp_path, os.environ) as screen:
        assert screen.await_end(120) == 0
        assert "copying" not in screen.rest


def test_a_pipe_gets_none() -> None:
    done = subprocess.run(program(waits=False), capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("the result\n", "")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_of(monkeypatch: pytest.MonkeyPatch, *, as_json: bool = False) -> list[str]:
    """Return what is shown of one piece of work, of which bars come up at once."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(bars, "PATIENCE_S", 0.0)
    came = threading.Event()
    shows: list[str] = []

    def show(bar: bars.ProgressBar) -> None:
        shows.append(bar._text)
        came.set()

    monkeypatch.setattr(bars.ProgressBar, "show", show)
    with progress_bar(Output(as_json, out=io.StringIO(), err=_Terminal()), "work"):
        came.wait(0.2 if as_json else 60)
    return shows


def test_a_bar_comes_up_and_not_for_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_of(monkeypatch) == ["work"]
    assert shown_of(monkeypatch, as_json=True) == []


def test_a_bar_that_would_come_up_when_the_work_is_done_does_not() -> None:
    err = _Terminal()
    with progress_bar(Output(err=err), "work") as bar:
        pass
    bar.show()
    assert err.getvalue() == ""


def test_lines_go_to_standard_error_where_there_is_no_bar() -> None:
    err = io.StringIO()
    with progress_bar(Output(err=err), "work") as bar:
        bar.say("kill 1")
    assert err.getvalue() == "kill 1\n"


SLOW = """
import sys, time
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli import progress_bar as bars
from poundlock.cli.main import main

bars.PATIENCE_S = 0.0
each = Ledger.__iter__
def slowly(ledger):
    for decision in each(ledger):
        time.sleep(0.5)
        yield decision
Ledger.__iter__ = slowly
sys.exit(main({arguments}))
"""


@pytest.fixture
def checkpoint(own_folder: Path) -> Path:
    """A checkpoint of five decisions, without a sink."""
    storage, clock = LocalStorage(str(own_folder / "checkpoint")), SystemClock()
    identity = open_identity(storage, name="rig", clock=clock)
    with Epoch.claim(storage, clock=clock, sinks={}) as epoch:
        driver = Coordinator(identity=identity, epoch=epoch, ledger=Ledger(storage), participants={}, clock=clock)
        driver.recover()
        for number in range(4):
            read = TaskResults(prepared=[], counts={}, rows_read={"in": 1})
            driver.checkpoint(number, {"in": SourceRange(number, number + 1)}, lambda directive, read=read: read)
    return own_folder / "checkpoint"


@pytest.mark.parametrize(("command", "shown"), [("fsck", "/5"), ("audit", "audit")])
def test_commands_show_how_far_they_are(command: str, shown: str, checkpoint: Path) -> None:
    arguments = [sys.executable, "-c", SLOW.format(arguments=[command, str(checkpoint)])]
    with PseudoTerminal(arguments, checkpoint.parent, os.environ) as terminal:
        before = terminal.await_text("5 decisions", 120)
        assert shown in before
        assert terminal.await_end(120) == 0
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 decisions" in done.stdout
