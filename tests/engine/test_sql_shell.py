"""The shell as a person meets it: in a terminal, with a real Spark."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from poundlock.cli.main import main
from poundlock.control.registry import Registry
from support.pseudo_terminal import PseudoTerminal

pytestmark = pytest.mark.engine
CTRL_C = "\x03"
ORDERS = """CREATE TABLE orders (id INT, product STRING) WITH (
'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '200 ms');"""
COPIES = """CREATE TABLE copies (id INT, product STRING)
WITH ('connector' = 'filesystem', 'path' = 'copies', 'format' = 'json');"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.json").write_text('{"id": 1, "product": "pen"}\n{"id": 2, "product": "ink"}\n')
    return tmp_path


def shell(folder: Path, *arguments: str) -> PseudoTerminal:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POUNDLOCK_")}
    environment["POUNDLOCK_STATE_DIR"] = str(folder / "state")
    command = [sys.executable, "-m", "poundlock", "sql", "--master", "local[1]", *arguments]
    return PseudoTerminal(command, folder, environment)


def lines_of(folder: Path) -> list[str]:
    return sorted(line for path in folder.glob("[!._]*") for line in path.read_text().splitlines())


def test_a_session_in_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POUNDLOCK_STATE_DIR", str(folder / "state"))
    (folder / "init.sql").write_text(ORDERS)
    with shell(folder, "-i", "init.sql") as terminal:
        terminal.await_text("Type help")
        terminal.type("SELECT product\rFROM (VALUES ('red'), ('blue')) AS t (product); SELECT nothing; SELECT 3;\r")
        terminal.await_text("| product |")
        assert "| blue    |" in terminal.await_text("2 rows")
        terminal.await_text("error: line 2, column 56")
        terminal.await_text("not run: 1 statement behind it")

        # An error shows its place, and the shell goes on.
        terminal.type("SELECT produkt FROM orders;\r")
        terminal.await_text("SELECT produkt FROM orders\n       ^\n")
        terminal.await_text("error: line 1, column 8: there is no column produkt")
        terminal.await_text("Next: did you mean product?")

        # A query without an end shows what is there, and then what comes.
        terminal.type("SELECT product, COUNT(*) AS n FROM orders GROUP BY product;\r")
        terminal.await_text("Ctrl-C ends the query")
        terminal.await_text("| pen     | 1 |")
        (folder / "orders" / "b.json").write_text('{"id": 3, "product": "pen"}\n')
        terminal.await_text("| pen     | 2 |")
        terminal.type(CTRL_C)
        terminal.await_text("| pen     | 2 |")
        terminal.await_text("2 rows")
        terminal.await_text("the query was ended")

        # An INSERT without an end is ended by Ctrl-C, and goes on with the same statement.
        terminal.type(COPIES.replace("\n", "\r") + "\r")
        terminal.await_text("OK\n")
        terminal.type("INSERT INTO copies SELECT * FROM orders;\r")
        terminal.await_text("Ctrl-C ends the INSERT")
        terminal.await_text("3 rows")
        terminal.type(CTRL_C)
        terminal.await_text("the same statement goes on where it was")
        assert len(lines_of(folder / "copies")) == 3
        (folder / "orders" / "c.json").write_text('{"id": 4, "product": "pad"}\n')
        terminal.type("INSERT INTO copies SELECT * FROM orders;\r")
        terminal.await_text("  1 rows")

        # It is a job as all others: another terminal sees it, stops it, and audits it.
        (entry,) = Registry(folder / "state").running()
        assert main(["info", entry.job_id]) == 0
        assert main(["stop", entry.job_id]) == 0
        terminal.await_text("the job was ended from outside")
        assert [each.state for each in Registry(folder / "state").entries()] == ["FINISHED", "FINISHED"]
        assert main(["audit", entry.name]) == 0
        assert [line.split(",")[0] for line in lines_of(folder / "copies")] == [f'{{"id":{n}' for n in (1, 2, 3, 4)]

        # What ends the shell ends its job well. Nothing is left behind: neither Java nor the processes of tasks.
        (folder / "orders" / "d.json").write_text('{"id": 5, "product": "pad"}\n')
        terminal.type("INSERT INTO copies SELECT * FROM orders;\r")
        terminal.await_text("  1 rows")
        started = psutil.Process(terminal.process.pid).children(recursive=True)
        assert any("java" in each.name() for each in started)
        assert len(started) > 1
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.await_end() == 128 + signal.SIGTERM
        assert {each.state for each in Registry(folder / "state").entries()} == {"FINISHED"}
        assert len(lines_of(folder / "copies")) == 5
        _, left = psutil.wait_procs(started, timeout=60)
        assert left == []
    assert "SELECT produkt" in (folder / "state" / "sql-history").read_text()
