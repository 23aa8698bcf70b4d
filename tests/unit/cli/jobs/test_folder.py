"""The commands about a running job, given its checkpoint folder alone: as on a machine that knows nothing of the job."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.identity import open_identity
from poundlock.cli.main import main
from poundlock.control import yarn
from poundlock.control.control_files import put_entry
from poundlock.control.control_logs import LogCopy
from poundlock.control.control_server import ControlServer
from poundlock.control.registry import JobEnd, JobEntry, registered
from poundlock.control.yarn import Application
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

pytestmark = pytest.mark.slow

APPLICATION = "application_1545534487726_0001"


class Driver:
    """A driver elsewhere, which does at once what it is asked."""

    def __init__(self, folder: Path, **where: Any) -> None:
        self.storage = LocalStorage(str(folder / "jobs" / "orders"))
        self.id = open_identity(self.storage, name="orders", clock=SystemClock()).job_id
        self.log = folder / "driver.log"
        self.log.write_text('{"time": "t1", "level": "info", "message": "run"}\n')
        made = registered(
            job_id=self.id,
            name="orders",
            checkpoint_dir="/there",
            log=self.log,
            job_file="job.py",
            arguments=["job.py"],
        )
        self.stop, self.requests = StopRequest(), Requests()
        entry = replace(made, host="there", pid=7, **where)
        self.server = ControlServer(
            self.storage, entry, self.stop, self.requests, copy=LogCopy(self.log, made.started_ms)
        )
        self.server.update(Progress("RUNNING", checkpoint=3, rows_read=20))
        self.server.start()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while not self.stop.stopping:
            if (trigger := self.requests.take()) is not None:
                trigger.complete(9 if trigger.kind == "checkpoint" else f"{trigger.directory}/savepoint-1")
                if trigger.then != "go on":
                    self.stop.cancel()
            time.sleep(0.01)
        with self.log.open("a") as file:
            file.write('{"time": "t2", "level": "info", "message": "the job ended"}\n')
        self.requests.close()
        state = "CANCELED" if self.stop.canceling else "FINISHED"
        self.server.end(JobEnd(state=state, exit_code=0, progress={"state": state, "checkpoint": 10}))


@pytest.fixture(params=[APPLICATION, None])
def driver(own_folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Driver]:
    monkeypatch.setattr("poundlock.control.control_server._LOOK_S", 0.05)
    monkeypatch.setattr("poundlock.control.driver_status.DriverLock.holder", lambda storage: "process 7 on there")
    monkeypatch.setattr(yarn, "ask", lambda id: None)
    made = Driver(own_folder, application=request.param)
    yield made
    made.stop.cancel()
    made.thread.join(60)


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local folders mean the same on all machines."""
    monkeypatch.setattr("poundlock.control.channel.check_shared", lambda entry, directory: None)


def text(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> tuple[str, str]:
    got = main(list(words))
    captured = capsys.readouterr()
    assert got == code, captured
    return captured.out, captured.err


def test_it_is_listed_with_its_folder_and_with_the_folder_above(
    driver: Driver, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text(capsys, 0, "list", "-a")[0].startswith("No running jobs.")
    for folder in ("jobs/orders", "jobs"):
        line = text(capsys, 0, "list", folder)[0].splitlines()[1]
        assert f"{driver.id} : orders (RUNNING)" in line
    (listed,) = json.loads(text(capsys, 0, "list", str(own_folder / "jobs"), "--json")[0])
    assert listed["application"] == driver.server.entry.application
    assert "no job has written how it goes into" in text(capsys, 2, "list", str(own_folder))[1]


def test_info_shows_what_the_driver_wrote(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = text(capsys, 0, "info", "jobs/orders")
    assert f"Job {driver.id} : orders (RUNNING)" in out
    assert "checkpoint 3" in out
    assert json.loads(text(capsys, 0, "info", "jobs/orders", "--json")[0])["progress"]["rows_read"] == 20


@pytest.mark.usefixtures("mounted")
def test_a_checkpoint_and_a_savepoint_are_taken(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"Checkpoint 9 for job {driver.id} completed." in text(capsys, 0, "checkpoint", "jobs/orders")[0]
    assert "Path: /saved/savepoint-1\n" in text(capsys, 0, "savepoint", "jobs/orders", "/saved")[0]
    assert not driver.stop.stopping


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize("command", [["stop", "-p"], ["cancel", "-s"]])
def test_it_ends_with_a_savepoint(driver: Driver, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    verb, option = command
    assert "Path: /saved/savepoint-1\n" in text(capsys, 0, verb, "jobs/orders", option, "/saved")[0]
    assert "No running jobs." in text(capsys, 0, "list", "jobs")[0]


def test_a_stop_and_a_cancel_wait_for_the_end(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    out = text(capsys, 0, "stop", "jobs/orders")[0]
    assert out.splitlines()[-1] == f"Stopped job {driver.id}. Newest checkpoint: 10."
    assert "is not running: FINISHED" in text(capsys, 2, "cancel", "jobs/orders")[1]
    assert "(FINISHED)" in text(capsys, 0, "list", "jobs/orders", "-a")[0]


def test_a_cancel(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    assert text(capsys, 0, "cancel", "jobs/orders")[0].splitlines()[-1] == f"Cancelled job {driver.id}."
    assert driver.stop.canceling


def test_the_log_is_read_from_the_folder(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("poundlock.cli.jobs.logs._FOLDER_POLL_S", 0.05)
    assert text(capsys, 0, "logs", "jobs/orders")[0] == "t1 info    run\n"
    threading.Timer(0.5, driver.stop.stop).start()
    assert text(capsys, 0, "logs", "jobs/orders", "-f")[0].splitlines() == [
        "t1 info    run",
        "t2 info    the job ended",
    ]
    assert text(capsys, 0, "logs", "jobs/orders", "--last", "1")[0] == "t2 info    the job ended\n"


def test_a_savepoint_on_the_machine_of_the_driver_is_refused(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "needs a folder to go to" in text(capsys, 2, "savepoint", "jobs/orders")[1]
    assert "/saved is of one machine" in text(capsys, 2, "savepoint", "jobs/orders", "/saved")[1]


def entry_of(folder: Path, **changes: Any) -> JobEntry:
    storage = LocalStorage(str(folder / "checkpoint"))
    id = open_identity(storage, name="orders", clock=SystemClock()).job_id
    made = registered(
        job_id=id, name="orders", checkpoint_dir="c", log=folder / "none.log", job_file="job.py", arguments=()
    )
    entry = replace(made, state="RUNNING", written_ms=1, **changes)
    put_entry(storage, entry)
    return entry


@pytest.mark.parametrize("gone", [{"process_start": "another"}, {"host": "there"}, {"application": APPLICATION}])
def test_a_driver_that_died_is_gone(
    own_folder: Path, gone: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(yarn, "ask", lambda id: Application(id=id, state="KILLED"))
    entry_of(own_folder, **gone)
    assert "(FAILED, gone)" in text(capsys, 0, "list", "checkpoint", "-a")[0]
    assert "is not running: FAILED" in text(capsys, 2, "stop", "./checkpoint")[1]
    assert "the log of job orders cannot be read" in text(capsys, 2, "logs", "./checkpoint")[1]


def test_a_folder_in_which_no_driver_has_written(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_identity(LocalStorage(str(own_folder / "checkpoint")), name="orders", clock=SystemClock())
    for command in ("stop", "info", "logs", "checkpoint"):
        assert "no driver has written how it goes into" in text(capsys, 2, command, "./checkpoint")[1]
    assert "is no checkpoint of a job that has run" in text(capsys, 2, "stop", "./none")[1]


def test_a_driver_that_falls_silent_is_not_waited_for_for_ever(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from poundlock.cli import job_lookup
    from poundlock.cli.output import Output
    from poundlock.errors import TransientError

    monkeypatch.setattr(job_lookup, "_SILENT_S", 0.1)
    monkeypatch.setattr(job_lookup, "_FOLDER_POLL_S", 0.05)
    entry = entry_of(own_folder, host="there")
    with pytest.raises(TransientError, match="the driver on there has written nothing into"):
        job_lookup.await_end(job_lookup.KnownJob(entry, lambda: entry), Output())
