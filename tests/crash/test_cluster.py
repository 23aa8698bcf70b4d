"""A real standalone cluster: executors, a worker and the master are killed while jobs run, and nothing is lost or done twice.

The workers do not have this package: everything a task runs was sent there by the job.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from poundlock.testing.job_process import JobProcess, completed
from support.cluster import StandaloneCluster
from support.error_lines import bare
from support.lives import Lives, files_found

if TYPE_CHECKING:
    from tests.crash.conftest import KafkaScene

pytestmark = [pytest.mark.crash, pytest.mark.engine]

JOBS = Path(__file__).parent / "jobs"
SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.extraJavaOptions=-XX:+UseSerialGC")
IMPATIENT = ("-D", "executor_timeout=15 s")


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    with StandaloneCluster(2) as cluster:
        yield cluster


@pytest.fixture
def whole(cluster: StandaloneCluster) -> StandaloneCluster:
    """The cluster with its master and two workers, whatever the test before did to it."""
    if cluster.master_pid is None:
        cluster.start_master()
    for _ in range(2 - len(cluster.worker_pids)):
        cluster.start_worker()
    cluster.wait_for_workers(2)
    return cluster


def newest(job: JobProcess) -> int:
    return max((completed(line.value) for line in job.lines()), default=-1)


def goes_on(job: JobProcess, produce: Callable[[], None], seconds: float = 600) -> None:
    """Produce until the job has completed two checkpoints more: one may have been under way already."""
    wanted, deadline, told, due = newest(job) + 2, time.monotonic() + seconds, -2, 0.0
    while (seen := newest(job)) < wanted:
        if seen != told or time.monotonic() > due:  # as much as it takes, and no more: all of it is read in the end
            produce()
            told, due = seen, time.monotonic() + 10
        assert job.exit_code is None, job.log_tail()
        assert time.monotonic() < deadline, job.log_tail()
        time.sleep(0.3)


@pytest.mark.parametrize("master", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_executor_worker_and_master_are_killed(whole: StandaloneCluster, kafka_scene: KafkaScene, master: bool) -> None:
    cluster, scene = whole, kafka_scene
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pause = random.Random(seed).uniform
    scene.lives.add("--master", cluster.master, "-p", "2", *SMALL, *IMPATIENT)

    def produce() -> None:
        scene.produce(200)

    produce()
    job = scene.lives.start()
    goes_on(job, produce)
    first = cluster.executors()
    assert len(first) == 2

    scene.produce(3_000)
    time.sleep(pause(0, 1))
    first[0].kill()
    goes_on(job, produce)

    scene.produce(3_000)
    time.sleep(pause(0, 1))
    cluster.kill_worker(cluster.worker_pids[0])
    goes_on(job, produce)
    assert len(cluster.worker_pids) == 1

    if master:
        cluster.kill_master()
        goes_on(job, produce)  # on the executor it has

        before = cluster.executors()
        for executor in before:
            executor.kill()
        cluster.start_master()  # knows nothing of the job, which has to come to it anew
        cluster.start_worker()
        cluster.wait_for_workers(2)
        goes_on(job, produce)
        assert {process.pid for process in cluster.executors()}.isdisjoint(process.pid for process in before)

    job = scene.wait_until_caught_up(job)
    assert scene.lives.stop(job) == 0
    scene.assert_exact()


@pytest.mark.torture
def test_state_survives_executors_and_stragglers(tmp_path: Path, whole: StandaloneCluster) -> None:
    given, out, marks = tmp_path / "in", tmp_path / "out", tmp_path / "marks"
    for folder in (given, marks):
        folder.mkdir()
    sent = {f"k{number}": 0 for number in range(5)}
    files = 0

    def produce(straggler: bool = False) -> None:
        nonlocal files
        rows = []
        for key in sent:
            sent[key] += 1
            rows.append({"k": key, "i": files, "first": straggler and key == "k0"})
        hidden = given / f".{files:05d}.jsonl"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(given / f"{files:05d}.jsonl")
        files += 1

    speculative = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "500ms",
        # Small files are read by one task, and one task has no others that it could be slower than.
        "spark.speculation.task.duration.threshold": "1s",
    }
    environment = {
        "CRASH_IN": str(given), "CRASH_OUT": str(out), "CRASH_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "CRASH_MARKS": str(marks),
    }  # fmt: skip
    arguments = ["--master", whole.master, "-p", "2", *SMALL, *IMPATIENT]
    for key, value in speculative.items():
        arguments += ["--conf", f"{key}={value}"]
    with Lives(JOBS / "numbered.py", environment=environment, folder=tmp_path, arguments=arguments) as lives:
        produce()
        job = lives.start(CRASH_WATCH="1")
        goes_on(job, produce)
        deadline = time.monotonic() + 300
        while not list(marks.iterdir()):  # a second attempt of a task that took long, on the other worker
            produce(straggler=True)
            produce()
            goes_on(job, produce)
            assert time.monotonic() < deadline
        produce(straggler=True)
        whole.executors()[0].kill()
        goes_on(job, produce)
        job = lives.until(lambda: files_found(tmp_path / "checkpoints", "rows") == files, job)
        assert lives.stop(job) == 0
        assert lives.run(CRASH_WATCH="0") == [0]  # what the stop left unread
        assert lives.left_behind() == []
    rows = [json.loads(line) for path in out.rglob("part-*") for line in path.read_text().splitlines()]
    numbers: dict[str, list[int]] = {key: [] for key in sent}
    for row in rows:
        numbers[row["k"]].append(row["n"])
    assert {key: sorted(found) for key, found in numbers.items()} == {
        key: list(range(1, count + 1)) for key, count in sent.items()
    }
    assert [path for path in out.rglob(".*") if path.is_file()] == []


@pytest.mark.torture
def test_keyed_tasks_stay_where_their_state_is_and_move_with_an_executor(
    tmp_path: Path, whole: StandaloneCluster
) -> None:
    given, out = tmp_path / "in", tmp_path / "out"
    for folder in (given, tmp_path / "marks"):
        folder.mkdir()
    files = 0

    def produce() -> None:
        nonlocal files
        rows = [{"k": f"k{number}", "i": files, "first": False} for number in range(20)]
        hidden = given / f".{files:05d}.jsonl"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(given / f"{files:05d}.jsonl")
        files += 1

    def stayed(job: JobProcess, first: int) -> list[float]:
        """Return the part of the key groups that stayed, of each checkpoint behind one."""
        told = {completed(line.value): line.value.get("state_locality") for line in job.lines()}
        return [share for checkpoint, share in told.items() if checkpoint > first and share is not None]

    environment = {
        "CRASH_IN": str(given), "CRASH_OUT": str(out), "CRASH_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "CRASH_MARKS": str(tmp_path / "marks"),
    }  # fmt: skip
    arguments = ["--master", whole.master, "-p", "2", *SMALL]  # as many as cores: of more, some would not wait
    with Lives(JOBS / "numbered.py", environment=environment, folder=tmp_path, arguments=arguments) as lives:
        produce()
        job = lives.start(CRASH_WATCH="1")
        goes_on(job, produce)
        begun = newest(job)
        for _ in range(6):
            goes_on(job, produce)
        quiet = stayed(job, begun)
        assert sum(quiet) / len(quiet) >= 0.9, quiet
        whole.executors()[0].kill()
        goes_on(job, produce)
        begun = newest(job)
        for _ in range(8):  # those of the executor that is gone have a new place; or all are spread again
            goes_on(job, produce)
        assert max(stayed(job, begun)) >= 0.9
        job = lives.until(lambda: files_found(tmp_path / "checkpoints", "rows") == files, job)
        assert lives.stop(job) == 0
        assert lives.run(CRASH_WATCH="0") == [0]  # what the stop left unread
    rows = [json.loads(line) for path in out.rglob("part-*") for line in path.read_text().splitlines()]
    numbers: dict[str, list[int]] = {f"k{number}": [] for number in range(20)}
    for row in rows:
        numbers[row["k"]].append(row["n"])
    assert all(sorted(found) == list(range(1, files + 1)) for found in numbers.values())


@pytest.mark.torture
def test_what_a_cluster_cannot_do_is_said_in_two_lines(tmp_path: Path, whole: StandaloneCluster) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1\n")
    environment = {
        **os.environ,
        "CRASH_IN": str(tmp_path / "in"),
        "CRASH_OUT": str(tmp_path / "out"),
        "CRASH_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "CRASH_DEAD_LETTERS": str(tmp_path / "dead"),
        "POUNDLOCK_STATE_DIR": str(tmp_path / "state"),
    }

    def said(*arguments: str) -> list[str]:
        command = [sys.executable, "-m", "poundlock", "run", str(JOBS / "files_to_files.py"), "--master", whole.master]
        done = subprocess.run(
            [*command, "-D", "restart-strategy.type=none", *SMALL, *arguments],
            capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=600,
        )  # fmt: skip
        assert done.returncode not in (0, 130), done.stdout
        return [bare(line) for line in done.stderr.splitlines()]

    what, following = said("--conf", "spark.executor.memory=900g", "-D", "executor_timeout=3 s")[-2:]
    assert what.startswith("error: the cluster spark://127.0.0.1:")
    assert what.endswith("gave no executor within 3 s")
    assert "spark.executor.memory" in following
    what, following = said("--conf", "spark.pyspark.python=/nowhere/bin/python")[-2:]
    assert what == "error: the cluster's machines have no /nowhere/bin/python"
    assert following.startswith("Next: send an environment along with --archives")
    assert not list((tmp_path / "out").rglob("part-*"))
