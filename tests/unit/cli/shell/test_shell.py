"""The shell without Spark: it runs what is typed in one session, goes on behind errors, and ends when it is asked to."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from poundlock.cli.output import Output
from poundlock.cli.shell.shell import Shell
from poundlock.config import load_settings
from poundlock.driver.progress import Progress
from poundlock.errors import PoundlockError, TransientError
from poundlock.sql.running import runner as running
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.shell.shared_spark import SharedSpark

TABLES = """CREATE TABLE orders (id INT) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');
CREATE TABLE nothing (id INT) WITH ('connector' = 'blackhole');"""
INSERT = "INSERT INTO nothing SELECT id FROM orders;"


class Typed:
    """Types inputs, and Ctrl-D behind the last one."""

    def __init__(self, *inputs: str | type[BaseException]) -> None:
        self._inputs = list(inputs)

    def read(self) -> str:
        if not self._inputs:
            raise EOFError
        given = self._inputs.pop(0)
        if isinstance(given, str):
            return given
        raise given

    @property
    def left(self) -> Sequence[Any]:
        return self._inputs


def unexpected(error: Exception) -> PoundlockError:
    return PoundlockError(f"unexpected {error}", next="see the log")


@pytest.fixture
def shell() -> Shell:
    runner = ScriptRunner("sql", lambda fields, rows: None, lambda shown: None, settings=load_settings())
    made = Shell(runner, Output(out=io.StringIO(), err=io.StringIO()), SharedSpark(load_settings()), unexpected)
    runner.spark = lambda: None  # nothing starts
    return made


def lines(shell: Shell) -> list[str]:
    return shell.output.out.getvalue().splitlines()[1:]  # type: ignore[attr-defined]


def errors(shell: Shell) -> list[str]:
    return shell.output.err.getvalue().splitlines()  # type: ignore[attr-defined]


Runs = Callable[..., Progress]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that would run; each finds nothing to read."""
    names: list[str] = []

    def run(job: Any, *, on_progress: Callable[[Progress], None], **given: Any) -> Progress:
        names.append(job.name)
        on_progress(Progress("FINISHED"))
        return Progress("FINISHED")

    monkeypatch.setattr(running, "run", run)
    return names


def test_what_is_typed_runs_in_one_session(shell: Shell) -> None:
    shell.loop(Typed(TABLES, "SHOW TABLES;", "SET 'parallelism.default' = '2';", "SET;"))
    assert lines(shell)[:2] == ["OK", "OK"]
    assert "| nothing    |" in lines(shell)
    assert "| parallelism.default | 2     |" in lines(shell)
    assert errors(shell) == []


def test_an_error_is_shown_with_its_place_and_the_shell_goes_on(shell: Shell) -> None:
    shell.loop(Typed("SELECT\n nothing;", KeyboardInterrupt, "SHOW CATALOGS;"))
    assert errors(shell) == [" nothing", " ^", "error: line 2, column 2: there is no column nothing", errors(shell)[3]]
    assert errors(shell)[3].startswith("Next: ")
    assert "| default_catalog |" in lines(shell)


def test_behind_a_statement_that_fails_the_rest_is_not_run(shell: Shell) -> None:
    shell.loop(Typed("CREATE VIEW v AS SELECT 1 AS n; DROP VIEW w; DROP VIEW v; SHOW VIEWS;", "SHOW VIEWS;"))
    assert errors(shell)[-1] == "not run: 2 statements behind it"
    assert "| v         |" in lines(shell)


def test_a_text_is_shown_as_it_is(shell: Shell) -> None:
    shell.loop(Typed(TABLES, "SHOW CREATE TABLE orders;", "EXPLAIN SELECT id FROM orders;"))
    assert lines(shell)[2].startswith("CREATE TABLE")
    assert "== Abstract Syntax Tree ==" in lines(shell)
    assert not [line for line in lines(shell) if line.startswith("|")]


@pytest.mark.parametrize("word", ["quit", "exit;", "EXIT"])
def test_a_word_ends_it(shell: Shell, word: str) -> None:
    typed = Typed(word, "SHOW TABLES;")
    shell.loop(typed)
    assert typed.left == ["SHOW TABLES;"]


def test_help_names_what_can_be_typed(shell: Shell) -> None:
    shell.loop(Typed("help"))
    assert "INSERT INTO" in "\n".join(lines(shell))
    assert [line.split()[0] for line in lines(shell)[-4:]] == ["help", "quit", "exit", "clear"]


def test_an_error_that_nobody_foresaw_does_not_end_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("oh")

    monkeypatch.setattr(shell.runner, "run", broken)
    shell.loop(Typed("SELECT 1;"))
    assert errors(shell) == ["error: unexpected 'oh'", "Next: see the log"]


def test_the_same_insert_is_the_same_job_and_another_one_is_another(shell: Shell, jobs: list[str]) -> None:
    other = "INSERT INTO nothing SELECT id + 1 FROM orders;"
    shell.loop(Typed(TABLES, INSERT, INSERT, other, "SET 'pipeline.name' = 'mine';", INSERT, other, INSERT))
    assert jobs[0] == jobs[1] != jobs[2]
    assert jobs[3:] == ["mine", "mine-2", "mine"]
    assert len([line for line in lines(shell) if line.startswith("Nothing was inserted")]) == len(jobs)


def test_in_a_script_two_equal_inserts_are_two_jobs(shell: Shell, jobs: list[str]) -> None:
    runner = ScriptRunner("script", lambda fields, rows: None, lambda shown: None, on_progress=lambda progress: None)
    runner.run(TABLES + INSERT + INSERT)
    assert jobs[1] == f"{jobs[0]}-2"


def test_a_job_that_fails_is_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch, jobs: list[str]) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise TransientError("the broker is away", next="start it")

    monkeypatch.setattr(running, "run", fails)
    shell.loop(Typed(TABLES, INSERT, "SELECT id FROM orders;"))
    assert errors(shell) == ["error: the broker is away", "Next: start it"] * 2
