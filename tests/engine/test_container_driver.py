"""A driver as a cluster starts it, under spark-submit, asked from a state directory that knows nothing of it: through its checkpoint."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.control.control_files import newest_entry
from poundlock.spark.launch.jars import pyspark_jars
from poundlock.spark.launch.java import find_java
from poundlock.storage import open_storage

pytestmark = pytest.mark.engine

ID = "c0ffee" + "0" * 26
APPLICATION = "application_1545534487726_0001"
JOB = """
from poundlock import DatagenSource, FileSink, Job, RollingPolicy

job = Job("made", checkpoint_interval="300 ms", checkpoint_dir="checkpoint", parallelism=1)
events = job.from_source(DatagenSource(rate=500), name="events")
events.sink_to(FileSink("out", row="value", rolling=RollingPolicy(every="1 s")), name="files")
"""
PROGRAM = """
import os, sys
sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]  # the installed one has the jars beside it
from poundlock.cli.jobs.submitted import main
os.environ["CONTAINER_ID"] = "container_1545534487726_0001_01_000001"  # the JVM would look for YARN's folders
main(sys.argv[1:], os.environ)
"""


@pytest.fixture
def driver(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What YARN would run in a container; the only difference is that the tasks run in its JVM."""
    (own_folder / "job.py").write_text(JOB)
    program = own_folder / "program.py"
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        "LOG_DIRS": str(own_folder / "logs"),
        "JAVA_HOME": find_java(dict(os.environ)).home,
        "SPARK_HOME": str(pyspark_jars().parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    words = [str(own_folder / "checkpoint"), ID, "run", "job.py", "--no-rest"]
    with (own_folder / "driver.out").open("wb") as out:
        made = subprocess.Popen(
            [
                "/bin/bash", str(pyspark_jars().parent / "bin" / "spark-submit"), "--master", "local[1]",
                "--driver-memory", "1g", "--conf", "spark.driver.extraJavaOptions=-Xss16m", str(program), *words,
            ],
            env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    monkeypatch.setenv("POUNDLOCK_STATE_DIR", str(own_folder / "another-machine"))
    monkeypatch.setattr("poundlock.control.channel.check_shared", lambda entry, directory: None)
    yield made
    if made.poll() is None:
        os.killpg(made.pid, 9)
    made.wait()


def until_running(driver: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 400
    storage = open_storage(str(folder / "checkpoint"))
    while (entry := newest_entry(storage)) is None or entry.progress.get("checkpoint") is None:
        assert driver.poll() is None, (folder / "driver.out").read_text()
        assert time.monotonic() < deadline, (folder / "driver.out").read_text()
        time.sleep(0.2)


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> Sequence[str]:
    got = main(list(words))
    captured = capsys.readouterr()
    assert got == 0, captured.err
    return captured.out.splitlines()


def test_it_is_asked_from_elsewhere(
    driver: subprocess.Popen[bytes], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until_running(driver, own_folder)
    assert typed(capsys, "list", "-a")[0] == "No running jobs."
    (line,) = (line for line in typed(capsys, "list", "checkpoint") if APPLICATION in line)
    assert " : made (RUNNING) " in line
    info = json.loads("".join(typed(capsys, "info", "./checkpoint", "--json")))
    assert (info["application"], info["state"], info["rest"]) == (APPLICATION, "RUNNING", None)
    assert typed(capsys, "checkpoint", "./checkpoint")[-1].endswith(" completed.")
    (saved,) = (own_folder / "saved").iterdir() if typed(capsys, "savepoint", "./checkpoint", "saved") else ()
    assert saved.name.startswith("savepoint-")
    assert any(" info    completed checkpoint checkpoint=" in line for line in typed(capsys, "logs", "./checkpoint"))
    asked_over_rest(info["job_id"])
    assert typed(capsys, "stop", "./checkpoint")[-1].startswith(f"Stopped job {info['job_id']}.")
    assert driver.wait(120) == 0
    assert "the job ended" in typed(capsys, "logs", "./checkpoint", "--last", "1")[0]
    assert typed(capsys, "list", "checkpoint")[0] == "No running jobs."
    files = (path for path in (own_folder / "out").rglob("*") if path.is_file() and path.name[0] not in "._")
    rows = Counter(line for path in files for line in path.read_text().splitlines())
    assert rows.total() == len(rows) > 0


def asked_over_rest(job_id: str) -> None:
    """Ask a gateway, which is a process of its own, how the job goes, and for a checkpoint."""
    gateway = subprocess.Popen(
        [sys.executable, "-m", "poundlock", "rest", "./checkpoint", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert gateway.stdout is not None
        shown = json.loads(gateway.stdout.readline())
        token = Path(shown["token_file"]).read_text()

        def ask(method: str, path: str) -> Any:
            connection = http.client.HTTPConnection(*shown["rest"], timeout=60)
            connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
            answer = json.loads(connection.getresponse().read())
            connection.close()
            return answer

        assert ask("GET", "/jobs") == {"jobs": [{"id": job_id, "status": "RUNNING"}]}
        details = ask("GET", f"/jobs/{job_id}")
        assert [vertex["id"] for vertex in details["vertices"]] == ["events", "files"]
        assert details["vertices"][0]["metrics"]["read-records"] > 0
        request = ask("POST", f"/jobs/{job_id}/checkpoints")["request-id"]
        deadline = time.monotonic() + 120
        while (now := ask("GET", f"/jobs/{job_id}/checkpoints/{request}"))["status"]["id"] != "COMPLETED":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert isinstance(now["operation"]["checkpointId"], int)
    finally:
        gateway.terminate()
        assert gateway.wait(60) == 0
        assert not Path(shown["token_file"]).exists()
