"""Ctrl-C while a statement runs, and how it goes on the terminal."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from poundlock.cli.output import Output
from poundlock.cli.shell.statement_run import StatementRun
from poundlock.driver.progress import Progress, StopRequest


def run_of(stop: StopRequest, kill: Callable[[], None] = lambda: None) -> StatementRun:
    return StatementRun(Output(out=io.StringIO(), err=io.StringIO()), stop, kill)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_a_query_at_once() -> None:
    stop = StopRequest()
    run = run_of(stop)

    def query() -> None:
        interrupt()
        assert stop.wait(30)

    run.run(query)
    assert (run.interrupts, stop.canceling) == (1, True)


def test_ctrl_c_asks_an_insert_to_finish_and_then_to_end_and_then_ends_spark() -> None:
    stop, killed = StopRequest(), threading.Event()
    run = run_of(stop, killed.set)
    run.writes = True
    seen: list[bool] = []

    def insert() -> None:
        for asked in (lambda: stop.stopping, lambda: stop.canceling, killed.is_set):
            seen.append(asked())
            interrupt()
            while not asked():
                time.sleep(0.01)
            seen.append(stop.canceling)

    run.run(insert)
    assert seen == [False, False, False, True, False, True]


def test_behind_a_statement_ctrl_c_is_what_it_was_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="oh"):
        run_of(StopRequest()).run(lambda: int("oh"))  # type: ignore[arg-type, return-value]
    assert signal.getsignal(signal.SIGINT) is before


def test_messages_of_an_insert_stay_on_the_terminal() -> None:
    run = run_of(StopRequest())
    run.writes = True
    run.run(lambda: run.update(Progress("RUNNING", message="Source orders continues at 3")))
    assert "Source orders continues at 3" in run._output.out.getvalue()  # type: ignore[attr-defined]
