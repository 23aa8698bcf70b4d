"""The shell without Spark: it runs what is typed in one session, goes on behind errors, and ends when it is asked to."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.identity import Identity, new_job_id
from poundlock.cli.job_lookup import KnownJob
from poundlock.cli.output import Output
from poundlock.cli.shell.shell import Shell
from poundlock.config import load_settings
from poundlock.control.channel import FirstAnswer, FolderChannel, SignalChannel
from poundlock.control.registry import JobEntry, Registry
from poundlock.driver import driver
from poundlock.driver.progress import Progress, StopRequest
from poundlock.errors import PoundlockError, TransientError
from poundlock.sql.running import runner as running
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.shell.shared_spark import SharedSpark
from support.error_lines import bare

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


class NoSpark(SharedSpark):
    """Starts nothing."""

    def session(self) -> Any:
        return None


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    settings = load_settings([f"state_dir={tmp_path}/state", "rest_enabled=false"])
    runner = ScriptRunner("sql", lambda fields, rows: None, lambda shown: None, settings=settings)
    output = Output(out=io.StringIO(), err=io.StringIO())
    return Shell(runner, settings, output, NoSpark(settings), ["-i", "init.sql"], unexpected)


def ways(entry: JobEntry) -> Sequence[Any]:
    """Return the ways to a job."""
    channel = KnownJob(entry, lambda: entry).channel()
    assert isinstance(channel, FirstAnswer)
    return channel.ways


def listed(shell: Shell) -> list[JobEntry]:
    return Registry(shell.settings.state_dir).entries()


def lines(shell: Shell) -> list[str]:
    return shell.output.out.getvalue().splitlines()[1:]  # type: ignore[attr-defined]


def errors(shell: Shell) -> list[str]:
    return [bare(line) for line in shell.output.err.getvalue().splitlines()]  # type: ignore[attr-defined]


Runs = Callable[..., Progress]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that would run; each finds nothing to read."""
    names: list[str] = []

    def run(job: Any, *, on_progress: Callable[[Progress], None], **given: Any) -> Progress:
        names.append(job.name)
        on_progress(Progress("FINISHED"))
        return Progress("FINISHED")

    for place in (running, driver):
        monkeypatch.setattr(place, "run", run)
    return names


def claimed(job: Any, on_claim: Callable[[Identity], None]) -> None:
    """Claim a checkpoint, as a job does before it runs."""
    on_claim(Identity(job_id=new_job_id(), name=job.name, created_ms=1))


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

    for place in (running, driver):
        monkeypatch.setattr(place, "run", fails)
    shell.loop(Typed(TABLES, INSERT, "SELECT id FROM orders;"))
    assert errors(shell) == ["error: the broker is away", "Next: start it"] * 2


class Running:
    """An INSERT without an end: `meanwhile` is called once it is listed, then it goes on until it is asked to stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[StopRequest], object]) -> None:
        self._meanwhile = meanwhile
        monkeypatch.setattr(driver, "run", self)

    def __call__(
        self,
        job: Any,
        *,
        on_progress: Callable[[Progress], None],
        on_claim: Callable[[Identity], None],
        stop: StopRequest,
        **given: Any,
    ) -> Progress:
        claimed(job, on_claim)
        on_progress(Progress("RUNNING", checkpoint=1))
        self._meanwhile(stop)
        assert stop.wait(30)
        ended = Progress("CANCELED" if stop.canceling else "FINISHED", checkpoint=1)
        on_progress(ended)
        return ended


def send(number: int, until: Callable[[], bool] = lambda: True) -> None:
    os.kill(os.getpid(), number)
    while not until():
        time.sleep(0.01)


def test_an_insert_is_listed_as_a_job_while_it_runs_and_ctrl_c_ends_it_alone(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[JobEntry] = []

    def meanwhile(stop: StopRequest) -> None:
        seen.extend(listed(shell))
        send(signal.SIGINT, lambda: stop.stopping)

    Running(monkeypatch, meanwhile)
    shell.loop(Typed(TABLES, INSERT, "SHOW CATALOGS;"))
    (running_one,), (ended,) = seen, listed(shell)
    assert (running_one.state, running_one.command, running_one.is_shell) == ("RUNNING", "sql", True)
    assert [*map(type, ways(running_one))] == [FolderChannel], "its signals are the shell's"
    assert [*map(type, ways(replace(running_one, is_shell=False)))] == [SignalChannel, FolderChannel]
    assert list(running_one.arguments) == ["-i", "init.sql"]
    assert (ended.job_id, ended.state, ended.exit_code) == (running_one.job_id, "FINISHED", 0)
    assert Path(ended.log).read_text().count("the job ended") == 1
    assert f"job {ended.name}, log {ended.log}" in lines(shell)
    assert errors(shell)[0] == "the INSERT was ended; what it has written stays"
    assert "| default_catalog |" in lines(shell)


def test_ctrl_c_once_more_cancels_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(stop: StopRequest) -> None:
        send(signal.SIGINT, lambda: stop.stopping)
        send(signal.SIGINT, lambda: stop.canceling)

    Running(monkeypatch, meanwhile)
    shell.loop(Typed(TABLES, INSERT))
    (ended,) = listed(shell)
    assert (ended.state, ended.exit_code) == ("CANCELED", 130)


def test_a_job_that_somebody_else_ends_ends_what_was_typed_with_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Running(monkeypatch, lambda stop: stop.stop())
    shell.loop(Typed(TABLES, f"{INSERT} SHOW TABLES;", "SHOW CATALOGS;"))
    assert errors(shell) == [
        "the job was ended from outside; what it has written stays",
        "not run: 1 statement behind it",
    ]
    assert "| default_catalog |" in lines(shell)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_the_shell_ends_its_job_well(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    Running(monkeypatch, lambda stop: send(number, lambda: stop.stopping))
    typed = Typed(TABLES, f"{INSERT} SHOW TABLES;", "SHOW CATALOGS;")
    shell.loop(typed)
    (ended,) = listed(shell)
    assert (ended.state, ended.exit_code) == ("FINISHED", 0)
    assert (shell.ended_by, typed.left) == (number, ["SHOW CATALOGS;"])


def test_a_query_is_nobody_elses(shell: Shell, jobs: list[str]) -> None:
    shell.loop(Typed(TABLES, "SELECT id FROM orders;"))
    assert jobs
    assert listed(shell) == []
