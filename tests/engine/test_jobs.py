"""Jobs as processes with a real Spark: started in the background, found, asked, stopped, cancelled, and missed when killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.runtime.registry import Registry

pytestmark = pytest.mark.engine

JOB = """
from poundlock import DatagenSource, FileSink, Job

job = Job("made", checkpoint_interval="10 min", checkpoint_dir="checkpoint", parallelism=1)
job.from_source(DatagenSource(rate=300), name="events").sink_to(FileSink("out", row="value"), name="files")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in list(os.environ):
        if name.startswith("POUNDLOCK_") and name not in ("POUNDLOCK_CACHE_DIR", "POUNDLOCK_JARS_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("POUNDLOCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("POUNDLOCK_DRIVER_MEMORY", "1g")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    yield tmp_path
    for left in Registry(tmp_path / "state").running():
        os.killpg(left.pid, signal.SIGKILL)


def poundlock(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    got = main(list(arguments))
    captured = capsys.readouterr()
    assert got == code, captured.err
    return captured.out.splitlines() if code == 0 else captured.err.splitlines()


def entry(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(poundlock(capsys, "info", *arguments, "--json")[0])
    return found


def asked(found: dict[str, Any], method: str, path: str, token: str | None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*found["rest"], timeout=30)
    connection.request(method, path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text) if text.startswith("{") else text


def rows(project: Path) -> int:
    finished = [path for path in (project / "out").rglob("*") if path.is_file() and path.name[0] != "."]
    return sum(len(path.read_text().splitlines()) for path in finished)


def test_a_detached_job_is_found_asked_and_stopped(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = poundlock(capsys, "run", "-d", "job.py")
    job_id = line.removeprefix("Job has been submitted with JobID ")
    assert job_id == json.loads((project / "checkpoint" / "job.json").read_text())["job_id"]
    assert any(line.endswith(f" : {job_id} : made (RUNNING)") for line in poundlock(capsys, "list"))
    found = entry(capsys, job_id[:5])
    assert found["pid"] != os.getpid()
    assert os.getsid(found["pid"]) == found["pid"], "a session of its own: closing the terminal does not end it"
    assert found["checkpoint_dir"] == str(project / "checkpoint")

    numbers = [poundlock(capsys, "checkpoint", name)[-1].split()[1] for name in ("made", job_id)]
    first, second = (int(number) for number in numbers)
    assert second > first, "the interval is ten minutes"

    token = Path(found["token_file"]).read_text()
    prefix = f"/jobs/{job_id}"
    assert asked(found, "POST", f"{prefix}/stop", None)[0] == 401
    assert asked(found, "PATCH", prefix, "wrong")[0] == 401
    status, details = asked(found, "GET", f"{prefix}/checkpoints/details/{second}", token)
    assert (status, details["id"]) == (200, second)
    assert details["sources"]["events"]["rows"] == details["rows_written"] > 0
    assert asked(found, "GET", f"{prefix}/checkpoints", token)[1]["counts"]["completed"] == second + 1
    assert asked(found, "GET", "/overview", token)[1]["jobs-running"] == 1
    assert (
        f'poundlock_last_checkpoint{{job="made",job_id="{job_id}"}} {second}.0'
        in asked(found, "GET", "/metrics/prometheus", token)[1]
    )

    what, next = poundlock(capsys, "run", "-d", "job.py", code=2)
    assert "two drivers on one checkpoint" in what
    assert str(found["pid"]) in next
    assert entry(capsys, "made")["pid"] == found["pid"], "the second one is not listed"

    followed: list[str] = []
    follower = threading.Thread(target=lambda: followed.append("ended") if main(["logs", "made", "-f"]) == 0 else None)
    follower.start()
    assert main(["stop", "made"]) == 0
    follower.join(60)
    assert followed == ["ended"]
    out = capsys.readouterr().out
    assert "recovered" in out
    assert f"Stopped job {job_id}." in out
    last = entry(capsys, "made")
    assert (last["state"], last["exit_code"], last["token_file"] and Path(last["token_file"]).exists()) == (
        "FINISHED",
        0,
        False,
    )
    assert rows(project) == last["progress"]["rows_written"] > 0
    assert not any(
        token in path.read_text(errors="replace") for path in (project / "state").rglob("*") if path.is_file()
    )


def test_a_job_without_rest_is_cancelled_and_one_that_was_killed_is_gone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poundlock(capsys, "run", "-d", "job.py", "--no-rest")
    found = entry(capsys, "made")
    assert found["rest"] is None
    out = poundlock(capsys, "cancel", "made")
    assert out[-1] == f"Cancelled job {found['job_id']}."
    assert entry(capsys, "made")["state"] == "CANCELED"
    assert rows(project) == 0, "what was pending is hidden"

    poundlock(capsys, "run", "-d", "job.py", "--no-rest")
    again = entry(capsys, "made")
    assert (again["job_id"], again["pid"] != found["pid"]) == (found["job_id"], True)
    os.killpg(again["pid"], signal.SIGKILL)
    what, _ = poundlock(capsys, "stop", "made", code=2) if _gone(project) else ("", "")
    assert "is not running: FAILED" in what
    lost = entry(capsys, "made")
    assert (lost["state"], lost["gone"]) == ("FAILED", True)
    assert any(line.endswith("(FAILED, gone)") for line in poundlock(capsys, "list", "-a"))


def _gone(project: Path) -> bool:
    """Wait until the killed process is no more."""
    while Registry(project / "state").running():
        threading.Event().wait(0.05)
    return True
