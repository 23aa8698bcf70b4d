"""Supervised jobs, jobs without REST, and a unit of systemd with a real Spark: who is killed, who is asked, and what comes out."""

from __future__ import annotations

import http.client
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli.main import main
from poundlock.control.registry import JobEntry, Registry
from poundlock.rest.probe import answers
from poundlock.storage import open_storage
from support.error_lines import bare

pytestmark = pytest.mark.engine

JOB = """
from poundlock import DatagenSource, FileSink, Job, RollingPolicy

job = Job("made", checkpoint_interval="300 ms", checkpoint_dir="checkpoint", parallelism=1)
events = job.from_source(DatagenSource(rate=500), name="events")
events.sink_to(FileSink("out", row="value", rolling=RollingPolicy(every="1 s")), name="files")
"""


@pytest.fixture
def project(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("POUNDLOCK_DRIVER_MEMORY", "1g")
    (own_folder / "job.py").write_text(JOB)
    yield own_folder
    for left in Registry(own_folder / "state").running():
        os.kill(left.pid, signal.SIGKILL)  # a supervised process ends with it


def poundlock(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    got = main(list(arguments))
    captured = capsys.readouterr()
    assert got == code, captured.err
    return captured.out.splitlines() if code == 0 else [bare(line) for line in captured.err.splitlines()]


def until(condition: Callable[[JobEntry], bool]) -> JobEntry:
    """Wait for the newest entry to be as wanted."""
    deadline = time.monotonic() + 300
    entries: list[JobEntry] = []
    while time.monotonic() < deadline:
        entries = Registry(Path("state")).entries()
        if entries and condition(entries[0]):
            return entries[0]
        time.sleep(0.05)
    raise AssertionError(f"never came to it: {entries[:1]}")


def asked(entry: JobEntry, path: str) -> Any:
    assert entry.rest is not None
    assert entry.token_file is not None
    connection = http.client.HTTPConnection(*entry.rest, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {Path(entry.token_file).read_text()}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return json.loads(text) if text.startswith("{") else text


def kill_child(entry: JobEntry) -> JobEntry:
    """SIGKILL the job's process; return the entry when the next one runs."""
    assert entry.child is not None
    os.kill(entry.child, signal.SIGKILL)
    restarts = entry.process_restarts + 1
    return until(lambda now: now.process_restarts == restarts and now.state == "RUNNING" and now.child is not None)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def seen() -> Counter[str]:
    files = (path for path in Path("out").rglob("*") if path.is_file() and path.name[0] not in "._")
    return Counter(line for path in files for line in path.read_text().splitlines())


def test_a_job_outlives_its_process_and_every_row_comes_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = poundlock(capsys, "run", "-d", "--restart", "job.py")
    job_id = line.removeprefix("Job has been submitted with JobID ")
    poundlock(capsys, "checkpoint", "made")
    first = until(lambda entry: entry.child is not None)
    assert os.getsid(first.pid) == first.pid

    # A stop by REST ends it for good; what follows begins with its savepoint.
    path = poundlock(capsys, "stop", "made", "-p", "saved")[1].removeprefix("Savepoint completed. Path: ")
    ended = until(lambda entry: entry.ended)
    assert (ended.job_id, ended.state, ended.exit_code, ended.process_restarts) == (job_id, "FINISHED", 0, 0)

    poundlock(capsys, "run", "-d", "--restart", "-s", path, "job.py")
    restored = until(lambda entry: entry.state == "RUNNING")
    assert restored.job_id != job_id
    on = kill_child(restored)
    assert on.job_id == restored.job_id, "it goes on from the checkpoint, and is not restored a second time"
    assert (on.pid, on.started_ms) == (restored.pid, restored.started_ms)
    assert on.child != restored.child
    assert len(poundlock(capsys, "list")) == 4, "one entry"
    assert any(line.split() == ["restarts", "1", "of", "the", "process"] for line in poundlock(capsys, "info", "made"))
    assert f'poundlock_process_restarts_total{{job="made",job_id="{on.job_id}"}} 1.0' in asked(
        on, "/metrics/prometheus"
    )
    found = asked(on, f"/jobs/{on.job_id}/exceptions")
    assert found["root-exception"] == "the job's process was killed by SIGKILL"
    poundlock(capsys, "checkpoint", "made")

    # The supervisor's own death takes the job's process along; the next start goes on.
    assert on.child is not None
    handle = os.pidfd_open(on.child)
    os.kill(on.pid, signal.SIGKILL)
    assert select.select([handle], [], [], 30)[0]
    os.close(handle)
    assert poundlock(capsys, "list")[0] == "No running jobs."
    assert any("(FAILED, gone)" in line and restored.job_id in line for line in poundlock(capsys, "list", "-a"))
    poundlock(capsys, "run", "-d", "--restart", "--no-rest", "job.py")
    assert poundlock(capsys, "stop", "made")[-1].startswith(f"Stopped job {restored.job_id}.")
    last = until(lambda entry: entry.ended)
    assert (last.job_id, last.state, last.exit_code, last.rest) == (restored.job_id, "FINISHED", 0, None)
    newest = [each for each in Ledger(open_storage("checkpoint")) if each.occasion == "checkpoint"][-1]
    rows = seen()
    assert rows.total() == len(rows) == newest.sources["events"].end["row"] > 0


def test_without_rest_a_kill_is_seen_and_signals_do_what_is_asked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poundlock(capsys, "run", "-d", "--no-rest", "job.py")
    first = until(lambda entry: entry.state == "RUNNING")
    assert first.rest is None
    assert poundlock(capsys, "checkpoint", "made")[-1].endswith(" completed."), "by files in the checkpoint folder"
    assert "progress" in "".join(poundlock(capsys, "info", "made"))
    os.kill(first.pid, signal.SIGKILL)
    gone = until(lambda entry: entry.gone)
    assert gone.failure is not None
    assert gone.failure[0] == f"process {first.pid} is gone, without a last word"
    assert poundlock(capsys, "list") == ["No running jobs.", "No scheduled jobs."]
    assert any(line.endswith(" : made (FAILED, gone)") for line in poundlock(capsys, "list", "-a"))
    what, next = poundlock(capsys, "stop", "made", code=2)
    assert "is not running: FAILED" in what
    assert next == "Next: start it with: poundlock run job.py"

    # The supervisor is sent the signals and hands them on.
    poundlock(capsys, "run", "-d", "--no-rest", "--restart", "job.py")
    second = until(lambda entry: entry.state == "RUNNING")
    assert second.job_id == first.job_id
    assert poundlock(capsys, "cancel", "made")[-1] == f"Cancelled job {first.job_id}."
    ended = until(lambda entry: entry.ended)
    assert (ended.state, ended.exit_code, ended.process_restarts) == ("CANCELED", 130, 0)


def test_a_unit_of_systemd_runs_answers_its_probe_and_stops_cleanly(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Started as systemd would: with the environment, the folder and the command line of the unit, and nothing else."""
    token = project / "token"
    token.write_text("a-token-that-was-given\n")
    token.chmod(0o600)
    port = free_port()
    given = (f"POUNDLOCK_REST_PORT={port}", f"POUNDLOCK_REST_TOKEN_FILE={token}")
    text = "\n".join(poundlock(capsys, "deploy", "systemd", "job.py", "--env", given[0], "--env", given[1]))
    directives = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    environment = dict(shlex.split(value)[0].split("=", 1) for name, value in directives if name == "Environment")
    (command,) = [shlex.split(value) for name, value in directives if name == "ExecStart"]
    (folder,) = [value for name, value in directives if name == "WorkingDirectory"]
    # A manager gives HOME too; the code of this tree is found by PYTHONPATH, an installed one without.
    more = {name: os.environ[name] for name in ("HOME", "PYTHONPATH", "POUNDLOCK_CACHE_DIR") if name in os.environ}
    with (project / "printed").open("wb") as printed:
        process = subprocess.Popen(
            command, cwd=folder, env={"PATH": os.defpath, **more, **environment}, stdout=printed, stderr=printed
        )
    try:
        until(lambda entry: entry.state == "RUNNING" and entry.pid == process.pid)
        asked = dict(pair.split("=", 1) for pair in given)
        assert answers(asked) is None
        (project / "wrong").write_text("another-token-than-that")
        (project / "wrong").chmod(0o600)
        assert answers({**asked, "POUNDLOCK_REST_TOKEN_FILE": str(project / "wrong")}) is not None

        # Whoever has the wrong token, or wants the same port, is told so and changes nothing.
        entry = until(lambda entry: entry.token_file is not None)
        assert entry.token_file is not None
        Path(entry.token_file).write_text("another-token-than-that")
        what, next = poundlock(capsys, "cancel", "made", code=2)
        assert what == f"error: job made does not take the token in {entry.token_file}"
        assert next.startswith("Next: ")
        (project / "other.py").write_text(JOB.replace('"checkpoint"', '"other"').replace('"made"', '"other"'))
        what, next = poundlock(capsys, "run", "-d", "-D", f"rest.port={port}", "other.py", code=2)
        assert f"REST cannot listen on 127.0.0.1:{port}" in what
        assert "--no-rest" in next
        assert not (project / "other").exists()
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0
    ended = until(lambda entry: entry.ended)
    assert (ended.state, ended.exit_code) == ("FINISHED", 0)
    assert token.exists(), "the user's file is the user's"
