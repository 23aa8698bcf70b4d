"""Jobs as processes with a real Spark: started in the background, found, asked, stopped and cancelled."""

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
from poundlock.control.registry import Registry

pytestmark = pytest.mark.engine

JOB = """
from poundlock import DatagenSource, FileSink, Job, SparkSource, TumblingEventTimeWindows, WatermarkStrategy

job = Job("made", checkpoint_interval="10 min", checkpoint_dir="checkpoint", parallelism=1)
job.from_source(DatagenSource(rate=300), name="events").sink_to(FileSink("out", row="value"), name="files")

# A query of Spark's reads this one's rows.
counted = Job("counted", checkpoint_interval="10 min", checkpoint_dir="checkpoint-counted", parallelism=1,
              spark={"spark.sql.shuffle.partitions": "1"})
(
    counted.from_source(SparkSource("rate", {"rowsPerSecond": 50}), name="rate")
    .assign_timestamps_and_watermarks(
        WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="timestamp"), name="event-time"
    )
    .key_by("value % 3 as kind").window(TumblingEventTimeWindows("1 s")).aggregate("count(*) as n", name="counts")
    .select("kind", "n")
    .sink_to(FileSink("out-counted", format="json"), name="counted-out")
)
"""


@pytest.fixture
def project(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("POUNDLOCK_DRIVER_MEMORY", "1g")
    (own_folder / "job.py").write_text(JOB)
    yield own_folder
    for left in Registry(own_folder / "state").running():
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


def rows(folder: Path) -> int:
    finished = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return sum(len(path.read_text().splitlines()) for path in finished)


def test_a_detached_job_is_found_asked_and_stopped(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = poundlock(capsys, "run", "-d", "job.py:job")
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

    what, next = poundlock(capsys, "run", "-d", "job.py:job", code=2)
    assert "two drivers on one checkpoint" in what
    assert str(found["pid"]) in next
    assert entry(capsys, "made")["pid"] == found["pid"], "the second one is not listed"

    followed: list[str] = []
    follower = threading.Thread(target=lambda: followed.append("ended") if main(["logs", "made", "-f"]) == 0 else None)
    follower.start()
    assert main(["stop", "made"]) == 0
    follower.join(300)
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
    assert rows(project / "out") == last["progress"]["rows_written"] > 0
    assert not any(
        token in path.read_text(errors="replace") for path in (project / "state").rglob("*") if path.is_file()
    )


def test_a_job_whose_rows_spark_reads_is_asked_and_cancelled(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    poundlock(capsys, "run", "-d", "job.py:counted")
    found = entry(capsys, "counted")
    numbers = [int(poundlock(capsys, "checkpoint", "counted")[-1].split()[1]) for _ in range(2)]
    assert numbers[1] > numbers[0] >= 0, "rows come all the time, and the interval is ten minutes"
    token = Path(found["token_file"]).read_text()
    read = [
        asked(found, "GET", f"/jobs/{found['job_id']}/checkpoints/details/{number}", token)[1]["sources"]["rate"]
        for number in numbers
    ]
    assert read[1]["start"] == read[0]["end"]
    assert read[1]["end"]["batch"] == read[0]["end"]["batch"] + 1
    text = ""
    while "poundlock_state_size_bytes" not in text:  # it is asked for once a second
        text = asked(found, "GET", "/metrics/prometheus", token)[1]

    assert poundlock(capsys, "cancel", "counted")[-1] == f"Cancelled job {found['job_id']}."
    last = entry(capsys, "counted")
    assert (last["state"], last["exit_code"], Path(found["token_file"]).exists()) == ("CANCELED", 130, False)
    assert rows(project / "out-counted") == 0, "what is pending stays hidden"
