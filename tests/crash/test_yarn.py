"""A real resource manager, node manager and HDFS: the driver here or in a container, the tasks in containers; all of them are killed."""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from poundlock.spark.launch.jars import pyspark_jars
from poundlock.storage import open_storage
from poundlock.testing.events import ReferenceEvents
from poundlock.testing.hdfs import EmbeddedHdfs
from poundlock.testing.job_process import JobProcess, completed
from support.lives import Lives
from support.yarn import EmbeddedYarn

pytestmark = [pytest.mark.crash, pytest.mark.engine, pytest.mark.torture]

JOB = Path(__file__).parent / "jobs" / "files_to_files.py"
CONF = {
    "spark.yarn.jars": f"local:{pyspark_jars()}/*",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.yarn.am.memory": "512m",
}


@dataclass
class Scene:
    """A job from files to files on HDFS, and what was produced for it."""

    hdfs: EmbeddedHdfs
    yarn: EmbeddedYarn
    home: Path
    root: str
    produced: list[bytes] = field(default_factory=list)

    @property
    def folders(self) -> dict[str, str]:
        names = {"IN": "in", "OUT": "out", "CHECKPOINTS": "checkpoints", "DEAD_LETTERS": "dead"}
        return {f"CRASH_{name}": f"{self.root}/{folder}" for name, folder in names.items()}

    @property
    def environment(self) -> dict[str, str]:
        return {"HADOOP_CONF_DIR": str(self.yarn.conf), **self.folders}

    @property
    def arguments(self) -> list[str]:
        words = ["--master", "yarn", "-p", "2", "-D", "executor_timeout=5 min", "-D", "driver_memory=512m"]
        return [*words, *(word for key, value in CONF.items() for word in ("--conf", f"{key}={value}"))]

    def there(self, **more: str) -> list[str]:
        """What makes it a driver in a container, with the variables that the job's file reads."""
        given = {**self.folders, **more}
        return [
            "--deploy-mode", "cluster",
            *(word for key, value in given.items() for word in ("--conf", f"spark.yarn.appMasterEnv.{key}={value}")),
        ]  # fmt: skip

    def produce(self, count: int) -> None:
        first = len(self.produced)
        values = list(ReferenceEvents(count=count, malformed=0, first_serial=first))
        whole = b"".join(value + b"\n" for value in values)
        assert open_storage(f"{self.root}/in").create_exclusive(f"{first:09d}.log", whole)
        self.produced += values

    def goes_on(self, job: JobProcess, count: int = 3_000) -> None:
        """Produce more and wait until a checkpoint behind the newest is complete."""
        at = max((completed(line.value) for line in job.lines()), default=-1)
        self.produce(count)
        reached = job.wait_line(lambda value: completed(value) > at, seconds=900)
        assert reached is not None, job.log_tail()

    def lines(self) -> Counter[bytes]:
        out = open_storage(f"{self.root}/out")
        names = [entry.path for entry in out.list()]
        assert [name for name in names if name.rpartition("/")[2].startswith(".")] == []
        return Counter(line for name in names for line in out.read(name).splitlines())

    def all_of_it(self, job: JobProcess) -> None:
        """Wait until the job has given as many lines as were produced."""
        deadline = time.monotonic() + 900
        out = open_storage(f"{self.root}/out")
        while True:
            seen = [entry for entry in out.list() if not entry.path.rpartition("/")[2].startswith(".")]
            if sum(entry.bytes for entry in seen) >= sum(len(line) + 1 for line in self.produced):
                return
            assert job.exit_code is None, job.log_tail()
            assert time.monotonic() < deadline, job.log_tail()
            time.sleep(1)

    def lives(self, arguments: Sequence[str] = ()) -> Lives:
        return Lives(
            JOB, environment=self.environment, folder=self.home, arguments=[*self.arguments, *arguments], patience_s=900
        )

    def said(self, *words: str, state: str = "state") -> str:
        """Run a command as whoever started the job would, and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "poundlock.cli.main", *words],
            env={**os.environ, **self.environment, "POUNDLOCK_STATE_DIR": str(self.home / state)},
            cwd=self.home, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def elsewhere(self, *words: str) -> str:
        """Run a command about the job by its checkpoint folder, with a state directory that knows nothing of it."""
        return self.said(*words, f"{self.root}/checkpoints", state="another")

    def over_rest(self, path: str) -> Any:
        """Ask a gateway to the job."""
        gateway = subprocess.Popen(
            [sys.executable, "-m", "poundlock.cli.main", "rest", f"{self.root}/checkpoints", "--json"],
            env={**os.environ, **self.environment, "POUNDLOCK_STATE_DIR": str(self.home / "another")},
            cwd=self.home, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert gateway.stdout is not None
        shown = json.loads(gateway.stdout.readline())
        connection = http.client.HTTPConnection(*shown["rest"], timeout=60)
        connection.request("GET", path, headers={"Authorization": f"Bearer {Path(shown['token_file']).read_text()}"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        gateway.terminate()
        assert gateway.wait(60) == 0
        return answer

    def assert_exact(self) -> None:
        assert self.lines() == Counter(self.produced)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[EmbeddedHdfs, EmbeddedYarn]]:
    with EmbeddedHdfs() as hdfs, EmbeddedYarn(hdfs.uri) as yarn:
        yield hdfs, yarn


@pytest.fixture
def scene(cluster: tuple[EmbeddedHdfs, EmbeddedYarn], tmp_path: Path) -> Scene:
    hdfs, yarn = cluster
    return Scene(hdfs, yarn, tmp_path, f"{hdfs.uri}/{tmp_path.name}-{secrets.token_hex(4)}")


def running(yarn: EmbeddedYarn) -> list[str]:
    return [str(app["id"]) for app in yarn.applications() if app["state"] == "RUNNING"]


def test_an_executor_is_killed_on_yarn(scene: Scene) -> None:
    yarn = scene.yarn
    with scene.lives() as lives:
        scene.produce(2_000)
        job = lives.start(CRASH_WATCH="1")
        killed = False
        for _ in range(4):
            scene.goes_on(job)
            if not killed and (executors := yarn.executors()):
                scene.produce(3_000)
                time.sleep(random.random())
                executors[0].kill()
                killed = True
        assert killed
        (application,) = running(yarn)
        assert {line.value.get("application") for line in job.lines()} >= {application}
        assert f"(RUNNING) {application}" in scene.said("list")
        assert json.loads(scene.said("info", "crash-files", "--json"))["spark_application"] == application
        scene.all_of_it(job)
        assert lives.stop(job) == 0
        assert lives.left_behind() == []
    scene.assert_exact()


def test_a_driver_in_a_container_is_killed_and_cancelled_with_a_savepoint(scene: Scene) -> None:
    yarn = scene.yarn
    with scene.lives() as lives:
        scene.produce(2_000)
        job = lives.start(*scene.there(CRASH_WATCH="1"), CRASH_WATCH="1")
        scene.goes_on(job)
        (application,) = running(yarn)
        (listed,) = json.loads(scene.said("list", "--json"))
        assert (listed["application"], listed["state"]) == (application, "RUNNING")
        assert f"(RUNNING) {application}" in scene.said("list")
        assert application in scene.said("info", "crash-files")
        assert "completed" in scene.said("checkpoint", "crash-files")
        assert f"(RUNNING) {application}" in scene.elsewhere("list")
        assert application in scene.elsewhere("info")
        assert "completed checkpoint" in scene.elsewhere("logs")
        assert scene.over_rest("/jobs")["jobs"] == [{"id": listed["job_id"], "status": "RUNNING"}]

        scene.produce(3_000)
        time.sleep(random.random())
        yarn.executors()[0].kill()
        scene.goes_on(job)

        scene.produce(3_000)
        (driver,) = yarn.drivers()
        below = driver.children(recursive=True)
        driver.kill()
        scene.goes_on(job)
        assert [process for process in below if process.is_running()] == []
        assert running(yarn) == [application]
        assert scene.elsewhere("logs").count(" run file=") == 2, "both attempts'"
        assert len(list(open_storage(f"{scene.root}/checkpoints").names("epochs"))) == 2

        scene.produce(3_000)
        saved = scene.said("cancel", "-s", f"{scene.root}/saved", "crash-files").partition("Path: ")[2].split()[0]
        assert saved.startswith(f"{scene.root}/saved/")
        assert lives.end(job) == 130
        assert "No running jobs." in scene.said("list")
        assert f"(CANCELED) {application}" in scene.said("list", "-a")

        scene.produce(3_000)
        job = lives.start("-s", saved, *scene.there(CRASH_WATCH="1"), CRASH_WATCH="1")
        scene.all_of_it(job)
        assert "Stopped job" in scene.elsewhere("stop")
        assert lives.end(job) == 0
        assert lives.left_behind() == []
    scene.assert_exact()


def test_what_yarn_does_not_take_is_told_in_two_lines(scene: Scene) -> None:
    def refused(*words: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, "-m", "poundlock.cli.main", "run", str(JOB), *scene.arguments, *scene.there(), *words],
            env={**os.environ, **scene.environment, "POUNDLOCK_STATE_DIR": str(scene.home / "state")},
            cwd=scene.home, capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        lines = [line for line in done.stderr.splitlines() if not line.startswith("Submitt")]
        assert len(lines) == 2, done.stderr
        assert lines[1].startswith("Next: ")
        return done.returncode, lines

    before = {app["id"] for app in scene.yarn.applications()}
    code, lines = refused("-D", "driver_memory=99g")
    assert (code, "gives no container of that size" in lines[0]) == (2, True), lines
    code, lines = refused("--conf", "spark.yarn.queue=none")
    assert code == 2, lines
    code, lines = refused("-D", f"checkpoint_dir={scene.home}")
    assert (code, "is a folder of one machine" in lines[0]) == (2, True), lines
    assert {app["state"] for app in scene.yarn.applications() if app["id"] not in before} <= {"FAILED"}
    code, lines = refused("--conf", "spark.pyspark.python=/no/such/python")
    assert (code, "the cluster's containers have no /no/such/python" in lines[0]) == (1, True), lines
