"""A job whose driver the cluster runs, without a cluster: a thread is the driver, and the checkpoint folder between them is local."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.jobs import submit as submitting
from poundlock.cli.jobs import submitted as driving
from poundlock.cli.main import main
from poundlock.control import cluster_driver as submitted
from poundlock.control import spark_submit as submission
from poundlock.control import yarn
from poundlock.control.control_files import entry_of, newest_entry, put_aside
from poundlock.control.control_server import ControlServer
from poundlock.control.registry import JobEnd, Registry, registered
from poundlock.control.yarn import Application
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.errors import DefinitionError
from poundlock.storage import LocalStorage
from support.error_lines import bare

pytestmark = pytest.mark.slow

ID = "c0ffee" + "0" * 26
APPLICATION = "application_1545534487726_0001"
JOB = """
from poundlock import DatagenSource, FileSink, Job
job = Job("gen", checkpoint_dir="checkpoint")
job.from_source(DatagenSource(count=1), name="events").sink_to(FileSink("out", row="value"), name="files")
"""


class Driver:
    """A driver in a container: what the cluster starts when it has taken the job."""

    def __init__(self, folder: Path) -> None:
        self.storage = LocalStorage(str(folder / "checkpoint"))
        self.stop, self.requests = StopRequest(), Requests()
        self.act: Callable[[Driver], None] = lambda driver: driver.end("FINISHED", 0)
        self.over: Application | None = None
        self.taken: list[Any] = []
        self.made: ControlServer | None = None

    def submitted(self, given: Any, java_home: str, log: Path) -> str:
        self.taken.append(given)
        threading.Thread(target=self.act, args=(self,), daemon=True).start()
        return APPLICATION

    def begin(self) -> ControlServer:
        log = Path(self.storage.root).parent / "driver.log"
        made = registered(
            job_id=ID, name="gen", checkpoint_dir=self.storage.root, log=log, job_file="job.py", arguments=()
        )
        first = replace(made, application=APPLICATION, host="there", pid=7)
        self.made = ControlServer(self.storage, first, self.stop, self.requests)
        self.made.start()
        self.made.update(Progress("RUNNING", checkpoint=3, application=APPLICATION))
        while (entry := newest_entry(self.storage)) is None or entry.state != "RUNNING":
            time.sleep(0.01)
        return self.made

    def end(self, state: str, code: int, failure: tuple[str, str] | None = None) -> None:
        made = self.made or self.begin()
        self.requests.close()
        made.end(JobEnd(state=state, exit_code=code, failure=failure, progress={"state": state, "checkpoint": 4}))


@pytest.fixture
def driver(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    (own_folder / "job.py").write_text(JOB)
    made = Driver(own_folder)
    monkeypatch.setattr(submission, "check", lambda *arguments: None)
    monkeypatch.setattr(submission, "submit", made.submitted)
    monkeypatch.setattr(yarn, "ask", lambda id: made.over if id == APPLICATION else None)
    monkeypatch.setattr(submitting, "_LOOK_S", 0.05)
    monkeypatch.setattr(submitting, "_ASK_S", 0.0)
    return made


RUN = ("run", "job.py", "--master", "yarn", "--deploy-mode", "cluster")


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> tuple[str, list[str]]:
    got = main(list(arguments))
    captured = capsys.readouterr()
    assert got == code, captured
    return captured.out, [bare(line) for line in captured.err.splitlines()]


def test_a_driver_is_followed_to_its_end(driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, 0, *RUN)
    assert err == ["Submitting gen to yarn", f"Submitted application {APPLICATION}"]
    assert f"Job has been submitted with JobID {ID}" in out
    assert out.splitlines()[-1].startswith("FINISHED  checkpoint 4")
    (entry,) = Registry(tmp_path / "state").entries()
    assert (entry.application, entry.state, entry.exit_code) == (APPLICATION, "FINISHED", 0)
    assert f"(FINISHED) {APPLICATION}" in said(capsys, 0, "list", "-a")[0]
    assert f"application {APPLICATION}, with the driver" in said(capsys, 0, "info", "gen")[0]
    driver.storage.replace("control/driver.json", b"{}")  # the checkpoint is another application's by now
    assert Registry(tmp_path / "state").entries() == [entry]
    _, err = said(capsys, 2, "logs", "gen")
    assert err[1] == f"Next: type: yarn logs -applicationId {APPLICATION}"


def test_a_failure_of_the_driver_is_that_of_the_command(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    driver.act = lambda driver: driver.end("FAILED", 4, ("the topic is gone", "make it again"))
    _, err = said(capsys, 4, *RUN)
    assert err[-2:] == ["error: the topic is gone", "Next: make it again"]


def test_a_driver_that_died_is_not_waited_for(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(driver: Driver) -> None:
        made = driver.begin()
        made._over.set()
        driver.over = Application(id=APPLICATION, state="KILLED", why="killed by its user")

    driver.act = die
    _, err = said(capsys, 1, *RUN)
    assert "without a last word of its driver: killed by its user" in err[-2]
    stale = newest_entry(driver.storage)
    assert stale is not None
    driver.storage.replace("control/driver.json", replace(stale, written_ms=1).to_bytes())
    assert "(FAILED, gone)" in said(capsys, 0, "list", "-a")[0]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the checkpoint folder cannot be read; it can, to begin with."""
    now = [False]
    read = LocalStorage.read

    def troubled(self: LocalStorage, path: str) -> bytes:
        if now[0] and path.startswith("control/"):
            raise TimeoutError(110, "Connection timed out", f"{self.root}/{path}")
        return read(self, path)

    monkeypatch.setattr(LocalStorage, "read", troubled)
    return now


def test_a_store_that_is_away_when_a_job_ends_makes_no_failure(
    driver: Driver, away: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    def act(driver: Driver) -> None:
        driver.begin()
        time.sleep(0.5)
        away[0] = True
        driver.over = Application(id=APPLICATION, state="FINISHED")
        time.sleep(0.5)
        driver.end("FINISHED", 0)
        away[0] = False

    driver.act = act
    out, _ = said(capsys, 0, *RUN)
    assert out.splitlines()[-1].startswith("FINISHED")


def test_a_store_that_stays_away_is_not_waited_for(
    driver: Driver, away: list[bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submitting, "_PATIENCE_S", 0.2)
    away[0] = True
    driver.over = Application(id=APPLICATION, state="FINISHED")
    _, err = said(capsys, 3, *RUN)
    assert f"is over, and how it ended cannot be read in {Path('checkpoint').absolute()}: " in err[-2]
    assert "/checkpoint can be reached" in err[-1]


def test_what_cannot_be_read_is_not_listed_as_a_failure(
    driver: Driver, away: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    driver.act = lambda driver: driver.begin() and None
    said(capsys, 0, *RUN, "-d")
    driver.end("FINISHED", 0)
    driver.over = Application(id=APPLICATION, state="FINISHED")
    away[0] = True
    assert "FAILED" not in said(capsys, 0, "list", "-a")[0]
    away[0] = False
    assert f"(FINISHED) {APPLICATION}" in said(capsys, 0, "list", "-a")[0]


def test_a_job_that_nobody_listened_to_has_ended_as_it_said(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    driver.act = lambda driver: driver.begin() and None
    said(capsys, 0, *RUN, "-d")
    driver.end("FINISHED", 0)
    driver.over = Application(id=APPLICATION, state="FINISHED")
    word = newest_entry(driver.storage)
    assert word is not None
    later = replace(word, application="application_1545534487726_0002", state="RUNNING", ended_ms=None)
    driver.storage.replace("control/driver.json", later.to_bytes())
    assert f"(FINISHED) {APPLICATION}" in said(capsys, 0, "list", "-a")[0]


def test_why_a_later_attempt_did_not_begin_is_told(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    def die(driver: Driver) -> None:
        made = driver.begin()
        made._over.set()
        time.sleep(0.5)
        why = ("the topic is gone", "make it again")
        put_aside(driver.storage, replace(made.entry, attempt=2, state="FAILED", ended_ms=1, exit_code=4, failure=why))
        driver.over = Application(id=APPLICATION, state="FAILED")

    driver.act = die
    _, err = said(capsys, 4, *RUN)
    assert err[-2:] == ["error: the topic is gone", "Next: make it again"]


def test_a_driver_that_never_began(driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def die(driver: Driver) -> None:
        driver.over = Application(id=APPLICATION, state="FAILED", why="AM Container exited with exitCode: 209")

    driver.act = die
    _, err = said(capsys, 1, *RUN)
    assert "the Python of the cluster's containers is 3.9" in err[-2]
    assert Registry(tmp_path / "state").entries() == []


def test_detached_it_returns_once_the_driver_runs(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    driver.act = lambda driver: driver.begin() and None
    out, err = said(capsys, 0, *RUN, "-d")
    assert out == f"Job has been submitted with JobID {ID}\n"
    assert err[-1] == f"Submitted application {APPLICATION}"
    assert f"(RUNNING) {APPLICATION}" in said(capsys, 0, "list")[0]

    taken: list[str] = []

    def serve() -> None:
        while len(taken) < 2:
            if (trigger := driver.requests.take()) is not None:
                taken.append(trigger.kind)
                trigger.complete(9 if trigger.kind == "checkpoint" else f"{trigger.directory}/savepoint-1")
            time.sleep(0.01)

    threading.Thread(target=serve, daemon=True).start()
    assert f"Checkpoint 9 for job {ID} completed." in said(capsys, 0, "checkpoint", "gen")[0]
    for words in (["savepoint", "gen"], ["savepoint", "gen", "/local"], ["stop", "gen", "--drain"]):
        _, err = said(capsys, 2, *words)
        assert "runs on a cluster" in err[0]
        assert err[1] == "Next: name a folder that all machines share, such as hdfs://namenode/savepoints"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poundlock.control.channel.check_shared", lambda entry, directory: None)
        assert "/local/savepoint-1" in said(capsys, 0, "savepoint", "gen", "/local")[0]

    def stop() -> None:
        driver.stop.wait(60)
        driver.end("CANCELED" if driver.stop.canceling else "FINISHED", 0)

    threading.Thread(target=stop, daemon=True).start()
    assert said(capsys, 0, "stop", "gen")[0].splitlines()[-1] == f"Stopped job {ID}. Newest checkpoint: 4."


def test_ctrl_c_stops_the_driver(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    def act(driver: Driver) -> None:
        driver.begin()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        driver.stop.wait(60)
        driver.end("CANCELED" if driver.stop.canceling else "FINISHED", 0)

    driver.act = act
    out, _ = said(capsys, 0, *RUN)
    assert "stopping: finishing the checkpoint" in out
    assert out.splitlines()[-1].startswith("FINISHED")


def test_ctrl_c_stops_the_next_attempt_too(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    def act(driver: Driver) -> None:
        first = driver.begin()
        first._over.set()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        while not driver.storage.names("control/requests"):
            time.sleep(0.01)
        driver.begin()
        code = 0 if driver.stop.wait(20) else 1
        driver.end("FINISHED" if code == 0 else "FAILED", code)

    driver.act = act
    out, _ = said(capsys, 0, *RUN)
    assert out.splitlines()[-1].startswith("FINISHED")


def test_ctrl_c_while_it_is_submitted_names_what_the_cluster_may_have_taken(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(given: Any, java_home: str, log: Path) -> str:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"INFO Client: Submitting application {APPLICATION} to ResourceManager\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(submission, "submit", interrupted)
    _, err = said(capsys, 130, *RUN)
    assert err[-1].endswith(f"end it with: yarn application -kill {APPLICATION}")


def test_restart_does_not_go_with_it(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(capsys, 2, *RUN, "--restart")
    assert "--restart starts a driver of this machine again" in err[0]
    assert driver.taken == []


# --- the driver's side -------------------------------------------------------------------------------------------------


class Left(Exception):
    """The process would have ended."""


def attempt(folder: Path, number: int, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...] = ("version",)) -> int:
    """Run a driver as the cluster's attempt of this number; return its exit code."""

    def leave(code: int) -> None:
        raise Left(code)

    environment = {
        "CONTAINER_ID": f"container_1545534487726_0001_{number:02d}_000001",
        "LOG_DIRS": f"{folder / 'logs'},/another/disk",
    }
    before = dict(os.environ)
    monkeypatch.setattr(submitted, "end_with_parent", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "_exit", leave)
        with pytest.raises(Left) as raised:
            driving.main([str(folder / "checkpoint"), ID, *typed], environment)
    assert dict(os.environ) == before
    assert environment["POUNDLOCK_LOG_DIR"] == str(folder / "logs")
    place = submitted.container(environment)
    assert place is not None
    assert (place.attempt, place.checkpoint, place.job_id) == (number, str(folder / "checkpoint"), ID)
    code: int = raised.value.args[0]
    return code


def test_what_ended_before_it_began_is_told_beside(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attempt(tmp_path, 1, monkeypatch, ("run", "missing.py")) == 2
    word = entry_of(driver.storage, APPLICATION)
    assert word is not None
    assert word.failure is not None
    assert (word.state, word.exit_code, word.failure[0]) == ("FAILED", 2, "there is no file missing.py")
    assert newest_entry(driver.storage) is None
    assert attempt(tmp_path, 2, monkeypatch, ("run", "job.py")) == 2
    capsys.readouterr()


def test_a_signal_in_a_container_is_no_stop(tmp_path: Path) -> None:
    """The cluster takes the container away: a clean stop would be a last word, and no attempt would come after it."""
    place = submitted.Container(application=APPLICATION, attempt=1, checkpoint="c", job_id=ID)
    program = (
        "import os, signal, time\n"
        "from poundlock.cli.signals import signals_asking\n"
        "from poundlock.driver.progress import StopRequest\n"
        "with signals_asking(StopRequest(), print):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, submitted.VARIABLE: place.to_environment()}, check=False
    )
    assert done.returncode == 143


def test_an_attempt_behind_a_last_word_does_nothing(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attempt(tmp_path, 2, monkeypatch) == 0
    assert "poundlock" in capsys.readouterr().out
    driver.end("FAILED", 3, ("it broke", ""))
    assert attempt(tmp_path, 2, monkeypatch) == 3
    assert "poundlock" not in capsys.readouterr().out


def test_an_attempt_does_not_take_back_what_another_has_taken_over(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.begin()
    life = {"v": 1, "epoch": 1, "host": "there", "pid": 7, "started_ms": 1}
    driver.storage.create_exclusive("epochs/00000001.json", json.dumps(life).encode())
    assert attempt(tmp_path, 2, monkeypatch) == 0
    later = json.dumps({**life, "epoch": 2, "pid": 8}).encode()
    driver.storage.create_exclusive("epochs/00000002.json", later)
    assert attempt(tmp_path, 2, monkeypatch) == 5
    assert "process 8 on there has taken over" in capsys.readouterr().err
    other = driver.made
    assert other is not None
    driver.storage.replace("control/driver.json", replace(other.entry, application="application_1_1").to_bytes())
    assert attempt(tmp_path, 2, monkeypatch) == 5
    assert "application_1_1 has taken over" in capsys.readouterr().err
    driver.requests.close()
    other.end(JobEnd(state="FAILED", exit_code=5))
    found = newest_entry(driver.storage)
    assert found is not None
    assert (found.application, found.ended) == ("application_1_1", False)
    driver.storage.replace("control/driver.json", replace(found, ended_ms=1, state="CANCELED").to_bytes())
    assert attempt(tmp_path, 2, monkeypatch) == 5
    driver.storage.delete(f"control/{APPLICATION}.json")  # it has never been a driver here
    assert attempt(tmp_path, 2, monkeypatch) == 0


@pytest.mark.parametrize(
    ("other", "code"), [("application_1545534487725_0009", 0), ("application_1545534487726_0002", 5)]
)
def test_an_attempt_after_one_that_never_began_goes_on_from_an_application_that_was_killed(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, code: int
) -> None:
    driver.begin()
    word = newest_entry(driver.storage)
    assert word is not None
    driver.storage.replace("control/driver.json", replace(word, application=other).to_bytes())
    driver.storage.delete(f"control/{APPLICATION}.json")
    assert attempt(tmp_path, 2, monkeypatch) == code


def test_a_container_without_the_package_of_the_file_system_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(path: str) -> LocalStorage:
        raise DefinitionError(f"{path} needs the package hdfs-native", next="install it")

    monkeypatch.setattr("poundlock.storage.open_storage", missing)
    assert attempt(tmp_path, 1, monkeypatch, ("run", "missing.py")) == submitted.NOT_INSTALLED
    assert capsys.readouterr().err.splitlines()[-1] == "Next: install it"
