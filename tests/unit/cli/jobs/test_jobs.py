"""The commands about running jobs against a registry and a real REST server, without Spark: what they say, and how they refuse."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.job_lookup import KnownJob, await_end, show_saved
from poundlock.cli.main import main
from poundlock.cli.output import Output
from poundlock.config import load_settings
from poundlock.control.process_id import CANCEL, process_start
from poundlock.control.registry import JobEnd, JobEntry, Registration, Registry, registered
from poundlock.driver.progress import Progress
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.rest.observed import Observed
from poundlock.rest.server import RestServer, take_port
from support.error_lines import bare
from support.rest_job import ID, TOKEN, observed

OTHER = "c0ff00" + "0" * 26


@pytest.fixture(autouse=True)
def state(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for looked in ("rest.client", "cli.job_lookup", "control.channel"):
        monkeypatch.setattr(f"poundlock.{looked}._POLL_S", 0.01)
    return own_folder / "state"


def entry(job_id: str = ID, **changes: Any) -> JobEntry:
    made = registered(
        job_id=job_id,
        name="orders",
        checkpoint_dir="c",
        log=Path("orders.log"),
        job_file="job.py",
        arguments=["job.py"],
    )
    return replace(made, **{"state": "RUNNING", **changes})


class Served:
    """A job with a server: what is asked of it is carried out by a thread."""

    def __init__(self, state: Path, folder: Path) -> None:
        self.job: Observed = observed(folder)[0]
        self.server = RestServer(take_port("127.0.0.1", 0), TOKEN)
        self.entry: Registration = Registry(state).register(entry(rest=self.server.address), TOKEN)
        self.server.start(self.job)

    def end(self, state: Any, code: int = 0) -> None:
        self.job.update(Progress(state))
        self.entry.end(JobEnd(state=state, exit_code=code, progress={"checkpoint": 2}))

    def when(self, condition: Callable[[], bool], act: Callable[[], None]) -> None:
        def work() -> None:
            while not condition():
                self.job.stop.wait(0.01)
            act()

        threading.Thread(target=work, daemon=True).start()


@pytest.fixture
def served(state: Path, tmp_path: Path) -> Iterator[Served]:
    made = Served(state, tmp_path / "ledger")
    yield made
    made.server.close()


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> tuple[str, list[str]]:
    assert main(list(arguments)) == code
    captured = capsys.readouterr()
    return captured.out, [bare(line) for line in captured.err.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """Return what an error says; it is two lines and nothing else."""
    out, err = said(capsys, code, *arguments)
    assert len(err) == 2, err
    assert err[0].startswith("error: ")
    assert err[1].startswith("Next: ")
    assert "Traceback" not in out
    return "\n".join(err)


def test_nothing_is_running(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, 0, "list")[0] == "No running jobs.\nNo scheduled jobs.\n"
    assert said(capsys, 0, "list", "-a")[0] == "No running jobs.\nNo scheduled jobs.\nNo terminated jobs.\n"
    assert json.loads(said(capsys, 0, "list", "--json")[0]) == []


def test_jobs_are_listed_in_flinks_words(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    registry = Registry(state)
    registry.register(entry(OTHER)).end(JobEnd(state="FAILED", exit_code=1, failure=("it broke", "mend it")))
    registry.register(entry(process_start="gone", started_ms=1))
    registry.register(entry(started_ms=1_700_000_000_000))
    lines = said(capsys, 0, "list", "-a")[0].splitlines()
    assert lines[0] == "------------------ Running/Restarting Jobs -------------------"
    assert lines[1] == f"2023-11-14T22:13:20.000Z : {ID} : orders (RUNNING)"
    assert lines[2:5] == [
        "-" * 62,
        "No scheduled jobs.",
        "---------------------- Terminated Jobs -----------------------",
    ]
    assert lines[5].endswith(f" : {OTHER} : orders (FAILED)")
    assert lines[6].endswith(f" : {ID} : orders (FAILED, gone)")
    assert len(json.loads(said(capsys, 0, "list", "--json")[0])) == 1


def test_info_asks_the_job_and_goes_without_its_answer(capsys: pytest.CaptureFixture[str], served: Served) -> None:
    out, _ = said(capsys, 0, "info", "orders")
    assert f"Job {ID} : orders (RUNNING)" in out
    assert "checkpoint 2" in out
    assert TOKEN not in out
    found = json.loads(said(capsys, 0, "info", ID[:6], "--json")[0])
    assert found["progress"]["rows_read"] == 20
    served.server.close()
    assert "progress" not in said(capsys, 0, "info", "orders")[0]


def test_info_of_a_job_whose_process_is_gone_says_so_of_its_progress(
    capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    Registry(state).register(entry(process_start="gone", progress={"state": "RUNNING", "checkpoint": 3}))
    out, _ = said(capsys, 0, "info", "orders")
    assert f"Job {ID} : orders (FAILED, gone)" in out
    assert "  progress    FAILED  checkpoint 3" in out
    assert json.loads(said(capsys, 0, "info", "orders", "--json")[0])["progress"]["state"] == "FAILED"


def test_info_names_the_partition_that_holds_the_watermark_back(
    capsys: pytest.CaptureFixture[str], served: Served
) -> None:
    assert "watermark" not in said(capsys, 0, "info", "orders")[0]
    served.job.update(Progress("RUNNING", watermark=1_545_184_226_432, held_by="clicks-1 of time"))
    (line,) = (line for line in said(capsys, 0, "info", "orders")[0].splitlines() if line.startswith("  watermark"))
    assert line == "  watermark   2018-12-19T01:50:26.432Z, held back by clicks-1 of time"
    found = json.loads(said(capsys, 0, "info", "orders", "--json")[0])["progress"]
    assert (found["watermark"], found["held_by"]) == (1_545_184_226_432, "clicks-1 of time")


def test_what_is_no_http_says_nothing_on_the_jobs_terminal(capfd: pytest.CaptureFixture[str], served: Served) -> None:
    assert main(["info", "orders", "--json"]) == 0
    capfd.readouterr()
    with socket.create_connection(served.server.address, timeout=10) as connection:
        connection.sendall(b"\x16\x03 this is no HTTP\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert capfd.readouterr() == ("", "")


def test_a_checkpoint_is_waited_for(capsys: pytest.CaptureFixture[str], served: Served) -> None:
    waiting = served.job.requests
    served.when(lambda: bool(waiting._waiting), lambda: waiting._waiting[0].complete(13))
    out, _ = said(capsys, 0, "checkpoint", "orders")
    assert out.splitlines()[-1] == f"Checkpoint 13 for job {ID} completed."


def test_a_checkpoint_that_the_job_did_not_live_to_take(capsys: pytest.CaptureFixture[str], served: Served) -> None:
    served.when(lambda: bool(served.job.requests._waiting), served.job.requests.close)
    assert "the job ended before" in refused(capsys, 1, "checkpoint", "orders")


def test_a_stop_waits_for_the_end(capsys: pytest.CaptureFixture[str], served: Served) -> None:
    served.when(lambda: served.job.stop.stopping, lambda: served.end("FINISHED"))
    out, err = said(capsys, 0, "stop", "orders")
    assert out.splitlines() == [f"Stopping job {ID}.", f"Stopped job {ID}. Newest checkpoint: 2."]
    assert err == []
    assert not served.job.stop.canceling
    assert "is not running: FINISHED" in refused(capsys, 2, "stop", "orders")


def test_a_stop_in_which_the_job_fails(capsys: pytest.CaptureFixture[str], served: Served) -> None:
    failure = ("the disk is full", "free some space")
    served.when(
        lambda: served.job.stop.stopping, lambda: served.entry.end(JobEnd(state="FAILED", exit_code=3, failure=failure))
    )
    assert "the disk is full" in refused(capsys, 3, "stop", "orders")


def test_a_cancel(capsys: pytest.CaptureFixture[str], served: Served) -> None:
    served.when(lambda: served.job.stop.canceling, lambda: served.end("CANCELED", 130))
    out, _ = said(capsys, 0, "cancel", "orders")
    assert out.splitlines() == [f"Cancelling job {ID}.", f"Cancelled job {ID}."]


@pytest.mark.parametrize("command", ["stop", "cancel", "info", "logs", "checkpoint"])
def test_an_unknown_id_and_a_prefix_of_two(capsys: pytest.CaptureFixture[str], served: Served, command: str) -> None:
    assert "there is no job 'ffff'" in refused(capsys, 2, command, "ffff")
    Registry(served.entry._path.parents[1]).register(entry(OTHER))
    text = refused(capsys, 2, command, "c0ff")
    assert ID in text
    assert OTHER in text
    assert not served.job.stop.stopping
    assert served.job.requests.take() is None


@pytest.mark.parametrize("command", ["stop", "cancel", "checkpoint"])
def test_a_wrong_token_changes_nothing(capsys: pytest.CaptureFixture[str], served: Served, command: str) -> None:
    Path(served.entry.entry.token_file or "").write_text("wrong")
    assert "does not take the token" in refused(capsys, 2, command, "orders")
    assert not served.job.stop.stopping
    assert served.job.requests.take() is None


def test_a_job_that_answers_in_no_way(
    capsys: pytest.CaptureFixture[str], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poundlock.control.channel._PATIENCE_S", 0.2)
    Registry(state).register(entry())
    assert "has written nothing into" in refused(capsys, 3, "checkpoint", "orders")


@pytest.mark.parametrize(
    ("command", "numbers", "older"),
    [("stop", "15", False), ("cancel", str(int(CANCEL)), False), ("cancel", "15 2", True)],
    ids=["stop", "cancel", "cancel of a version that knows no signal for it"],
)
@pytest.mark.parametrize("with_rest", [False, True])
def test_without_an_answer_signals_are_sent(
    capsys: pytest.CaptureFixture[str], state: Path, command: str, numbers: str, older: bool, with_rest: bool
) -> None:
    """The process notes the signals it gets, and ends with the last one; its server, if it had one, is gone."""
    wanted = len(numbers.split())
    code = (
        "import signal, sys, time\ngot = []\n"
        f"for n in (2, 15, {int(CANCEL)}): signal.signal(n, lambda n, f: got.append(n))\n"
        "print('ready', flush=True)\n"
        f"while len(got) < {wanted}: time.sleep(0.01)\nprint(*sorted(got, reverse=True))"
    )
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = unused.getsockname()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        start = process_start(child.pid) or ""
        made = entry(pid=child.pid, process_start=start, rest=address if with_rest else None)
        made = replace(made, cancel_signal=None if older else int(CANCEL))
        mine = Registry(state).register(made, TOKEN if with_rest else None)
        state_at_end = "FINISHED" if command == "stop" else "CANCELED"

        def end() -> None:
            child.wait()
            mine.end(JobEnd(state=state_at_end, exit_code=0))

        threading.Thread(target=end, daemon=True).start()
        # Between the process's end and its last word it is gone: this test stands in for the process there.
        code_of = main([command, "orders"])
        got = child.stdout.read().strip()
    assert got == numbers
    capsys.readouterr()
    assert code_of in (0, 1)


def test_logs_are_printed_for_people_and_as_they_are(
    capsys: pytest.CaptureFixture[str], state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "orders.log"
    lines = [
        {"time": "2026-01-01T00:00:00Z", "level": "info", "message": "recovered", "checkpoint": 3, "job": "orders"},
        {"time": "t", "level": "info", "message": "run", "settings": {"p": 2, "spark": {"a": "b"}}, "ids": ["x", "y"]},
        {"time": "2026-01-01T00:00:01Z", "level": "error", "message": "it broke", "exception": "Traceback: here"},
    ]
    log.write_text("\n" + "".join(json.dumps(line) + "\n" for line in lines) + "no json\n")
    mine = Registry(state).register(entry(log=str(log)))
    assert said(capsys, 0, "logs", "orders")[0].splitlines() == [
        "2026-01-01T00:00:00Z info    recovered checkpoint=3",
        "t info    run p=2 a=b ids=x,y",
        "2026-01-01T00:00:01Z error   it broke",
        "Traceback: here",
        "no json",
    ]
    assert said(capsys, 0, "logs", "orders", "--last", "1")[0] == "no json\n"
    assert json.loads(said(capsys, 0, "logs", "orders", "--json")[0].splitlines()[0]) == lines[0]

    def go_on() -> None:
        with log.open("a") as file:
            for part in ('{"time": "t", "level": "info",', ' "message": "later"}\n'):
                file.write(part)
                file.flush()
        mine.end(JobEnd(state="FINISHED", exit_code=0))

    threading.Timer(0.3, go_on).start()
    assert said(capsys, 0, "logs", "orders", "-f")[0].splitlines()[-1] == "t info    later"
    log.unlink()
    assert "cannot be read" in refused(capsys, 2, "logs", "orders")


def test_a_drained_job_is_told_what_going_on_from_its_savepoint_does(capsys: pytest.CaptureFixture[str]) -> None:
    show_saved(entry(), "/saved", Output())
    show_saved(entry(), "/saved", Output(), drained=True)
    first, resume, second, drained = capsys.readouterr().out.splitlines()
    assert first == second == "Savepoint completed. Path: /saved"
    assert resume == "You can resume your program from this savepoint with the run command."
    assert drained.startswith("The job is drained: every window has fired.")
    assert "fires a window again" in drained


JOB = """
from poundlock import DatagenSource, FileSink, Job
job = Job("gen", checkpoint_dir="checkpoint")
job.from_source(DatagenSource(count=1), name="events").sink_to(FileSink("out", row="value"), name="files")
"""


def test_a_port_that_is_taken_is_refused_before_anything_is_touched(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, state: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB)
    with take_port("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        text = refused(capsys, 2, "run", "job.py", "-D", f"rest.port={port}")
    assert f"127.0.0.1:{port}" in text
    assert not (tmp_path / "checkpoint").exists()
    assert Registry(state).entries() == []


def test_a_port_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    assert "rest.port" in refused(capsys, 2, "run", "job.py", "-D", "rest.port=70000")
    for host in ("999.1.1.1", "192.0.2.1", "x" * 70):
        text = refused(capsys, 2, "run", "job.py", "-D", f"rest.bind-address={host}")
        assert f"Next: rest.bind-address={host!r} is no address of this machine: set it to 127.0.0.1" in text


def test_the_script_that_was_typed_is_in_what_to_type_next(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "my job.py").write_text(JOB)
    (tmp_path / "checkpoint").mkdir()
    for note in ("savepoint.json", "restoring.json"):
        (tmp_path / "checkpoint" / note).write_text('{"v": 1, "savepoint": "saved", "job_id": "a"}')
        assert "poundlock run -s saved 'my job.py:job'" in refused(capsys, 2, "run", "my job.py:job")
        assert "poundlock run -s saved 'my job.py'" in refused(capsys, 2, "fsck", "my job.py")
        (tmp_path / "checkpoint" / note).unlink()


def test_a_job_of_nearly_that_name_is_suggested(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    Registry(state).register(entry())
    assert "did you mean orders?" in refused(capsys, 2, "info", "oders")


@pytest.mark.slow
def test_a_detached_job_that_is_refused_says_so_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("from poundlock import Job\njob = Job('empty')\n")
    assert "has no sink" in refused(capsys, 2, "run", "-d", "job.py")
    assert "no file missing.py" in refused(capsys, 2, "run", "-d", "missing.py")
    assert Registry(load_settings().state_dir).entries() == []


def test_rest_that_is_not_installed_is_said_once_in_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from poundlock.cli.job_endpoint import Presence
    from poundlock.control.logs import open_log
    from poundlock.driver.progress import StopRequest
    from poundlock.driver.requests import Requests
    from poundlock.job import Job
    from poundlock.rest import server

    monkeypatch.setattr(server, "find_spec", lambda name: None if name == "fastapi" else object())
    with open_log("a", tmp_path) as log:
        presence = Presence(
            job=Job("a"), settings=load_settings(), log=log, stop=StopRequest(), requests=Requests(), job_file="a.py",
            arguments=["a.py"],
        )  # fmt: skip
        presence.take_port()
        assert presence._listening is None
        presence.end(0)
    assert log.path.read_text().count("REST is off: REST needs the package fastapi") == 1


@pytest.mark.parametrize("command", [["savepoint", ID], ["cancel", ID, "-s"], ["stop", ID, "-p"]])
def test_a_folder_of_another_file_system_is_refused_and_one_as_a_uri_is_understood(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert "there is no file system ftp:// here" in refused(capsys, 2, *command, "ftp://host/saved")
    asked: list[Any] = []

    def taken() -> bool:
        asked.extend(trigger for trigger in [served.job.requests.take()] if trigger is not None)
        return bool(asked)

    def tell() -> None:
        if command[0] != "savepoint":
            served.entry.end(JobEnd(state="FINISHED", exit_code=0))
        asked[0].complete(f"{asked[0].directory}/savepoint")

    served.when(taken, tell)

    out, _ = said(capsys, 0, *command, "file:///saved/here")
    assert "Path: /saved/here/savepoint\n" in out
    flinks = f"Cancelled job {ID}. Savepoint stored in /saved/here/savepoint.\n"
    assert (flinks in out) == (command[0] == "cancel")
    assert not list(tmp_path.glob("*:*"))


def test_between_two_processes_a_job_cannot_be_asked_for_a_savepoint(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Registry(state).register(entry()).between(restarts=1, why="killed")
    assert "is being started again, and nobody answers" in refused(capsys, 3, "savepoint", ID)


@pytest.mark.parametrize(("error", "code"), [(DefinitionError, 2), (TransientError, 3), (PoundlockError, 1)])
def test_a_savepoint_that_fails_has_the_exit_code_of_its_failure(
    served: Served, capsys: pytest.CaptureFixture[str], error: type[PoundlockError], code: int
) -> None:
    asked: list[Any] = []
    served.when(
        lambda: (asked.append(served.job.requests.take()), asked[-1])[1] is not None,
        lambda: asked[-1].fail(error("it broke", next="mend it")),
    )
    assert refused(capsys, code, "savepoint", ID).endswith("was taken: it broke\nNext: mend it")


def test_a_job_that_ends_before_its_savepoint_is_told(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    def end() -> None:
        served.entry.end(JobEnd(state="FINISHED", exit_code=0))
        served.server.close()

    served.when(lambda: served.job.requests.take() is not None, end)
    assert "was taken: it ended before that (FINISHED)" in refused(capsys, 1, "savepoint", ID)


@pytest.mark.parametrize("asked", ["saved", "other"])
def test_the_savepoint_that_a_job_ends_with_is_not_one_of_another_folder(
    served: Served, capsys: pytest.CaptureFixture[str], asked: str, tmp_path: Path
) -> None:
    last = f"Savepoint completed. Path: {tmp_path}/saved/savepoint-1"

    def end() -> None:
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "savepoint.json").write_text(json.dumps({"v": 1, "savepoint": "it", "job_id": ID}))
        served.entry.end(JobEnd(state="FINISHED", exit_code=0, progress={"message": last}))
        served.server.close()

    served.when(lambda: served.job.requests.take() is not None, end)
    if asked == "saved":
        assert last in said(capsys, 0, "savepoint", ID, asked)[0]
    else:
        text = refused(capsys, 1, "savepoint", ID, asked)
        assert "was taken: it ended before that (FINISHED)" in text
        assert text.endswith("Next: start it again, then ask again: poundlock run -s it job.py")
    assert refused(capsys, 2, "stop", ID).endswith("Next: start it with: poundlock run -s it job.py")


@pytest.fixture
def stopped(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobEntry]:
    """A job whose process takes connections and answers none, as one that was stopped by a signal."""
    for limit, seconds in (("client._TIMEOUT_S", 0.6), ("client._STATUS_S", 0.1), ("client.TELL_S", 0.2)):
        monkeypatch.setattr(f"poundlock.rest.{limit}", seconds)
    for limit, seconds in (("TELL_S", 0.2), ("_PATIENCE_S", 0.8), ("_POLL_S", 0.05)):
        monkeypatch.setattr(f"poundlock.control.channel.{limit}", seconds)
    folder = tmp_path / "checkpoint"
    (folder / "control").mkdir(parents=True)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        made = entry(rest=silent.getsockname(), checkpoint_dir=str(folder))
        written = replace(made, written_ms=1, progress={"state": "RUNNING", "checkpoint": 7})
        (folder / "control" / "driver.json").write_bytes(written.to_bytes())
        Registry(state).register(made, TOKEN)
        yield made


def test_what_is_asked_of_a_driver_that_does_not_answer_is_told_to_wait(
    capsys: pytest.CaptureFixture[str], stopped: JobEntry
) -> None:
    """Nothing was told for more than 90 s."""
    _, err = said(capsys, 3, "checkpoint", "orders")
    process = f"process {stopped.pid} on {stopped.host}, the driver of job orders,"
    assert [line for line in err if not line.startswith("Next: ")] == [
        f"{process} does not answer on 127.0.0.1:{stopped.rest[1] if stopped.rest else 0}; it is waited for, up to 1 s",
        f"{process} has not answered by {stopped.checkpoint_dir} yet; it is waited for, up to 1 s",
        f"error: {process} has written nothing into {stopped.checkpoint_dir} for 1 s",
    ]
    assert all(f"kill -CONT {stopped.pid}" in line for line in err if line.startswith("Next: "))


@pytest.mark.parametrize("rest", [True, False])
def test_info_of_a_driver_that_does_not_answer_says_so_and_what_it_wrote(
    capsys: pytest.CaptureFixture[str], stopped: JobEntry, state: Path, rest: bool
) -> None:
    """It took half a minute, and did not say whose words these are."""
    if not rest:
        Registry(state).register(replace(stopped, rest=None))
    out, err = said(capsys, 0, "info", "orders")
    assert "checkpoint 7" in out
    assert len(err) == 2
    assert err[0].startswith(f"process {stopped.pid} on {stopped.host}, the driver of job orders, ")
    assert err[0].endswith(": this is what it wrote into its checkpoint folder")
    assert "does not answer" in json.loads(said(capsys, 0, "info", "orders", "--json")[0])["silent"] or not rest


def test_the_end_of_a_driver_that_does_not_answer_is_waited_for_in_words(
    capsys: pytest.CaptureFixture[str], stopped: JobEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poundlock.cli.job_lookup._TELL_S", 0.02)
    ends = iter([stopped] * 8)
    ended = replace(stopped, state="FINISHED")
    known = KnownJob(stopped, lambda: next(ends, ended))
    assert await_end(known, Output()) == ended
    told = capsys.readouterr().err
    assert told.count("its end is waited for\nNext: see what it does there: ps") == 1


def test_what_was_cancelled_with_a_savepoint_while_it_was_stopped_is_started_from_it(
    served: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def end() -> None:
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "savepoint.json").write_text(json.dumps({"v": 1, "savepoint": "it", "job_id": ID}))
        served.end("CANCELED")

    served.when(lambda: served.job.stop.stopping, end)
    assert refused(capsys, 1, "stop", ID).endswith("Next: start it again: poundlock run -s it job.py")
