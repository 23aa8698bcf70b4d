"""A job on stores that are not a local disk: savepoints between them, a cluster that goes away, a quota, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from poundlock.testing.hdfs import EmbeddedHdfs
from poundlock.testing.servers import free_port
from support.fixtures import running_or_skipped
from support.stores import HDFS_FIRST, Store

if TYPE_CHECKING:
    from tests.crash.conftest import FileScene, KafkaScene

pytestmark = [pytest.mark.crash, pytest.mark.services]

ON_HDFS = pytest.mark.parametrize("store", ["hdfs"], indirect=True)


def poundlock(scene: FileScene, *arguments: str) -> str:
    """Run a command about the scene's job and return what it says; a savepoint is looked at without any setting."""
    settings = () if arguments[0] == "savepoint" else ("-D", f"state_dir={scene.root / 'state'}")
    done = subprocess.run(
        [sys.executable, "-m", "poundlock", *arguments, *settings],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@HDFS_FIRST
def test_a_savepoint_goes_on_in_another_checkpoint_folder(file_scene: FileScene, store: Store) -> None:
    """Stopped with a savepoint on the store, restored into a new folder there, killed, gone on, and looked at by the commands."""
    file_scene.produce(20_000)
    lives = file_scene.lives
    first = lives.start(CRASH_WATCH="1")
    lives.checkpoints(first, 3)
    said = poundlock(file_scene, "stop", "-p", store.at("savepoints"), "crash-files")
    assert lives.end(first) == 0
    (path,) = set(re.findall(rf"{re.escape(store.at('savepoints'))}/\S*savepoint-[0-9a-f-]+", said))
    assert file_scene.audit().lost > 0, "all was consumed before the savepoint: give it more input"
    assert "crash-files" in poundlock(file_scene, "savepoint", "inspect", path)
    moved = {"CRASH_CHECKPOINTS": store.at("checkpoints-2")}
    second = lives.start("-s", path, CRASH_WATCH="1", **moved)
    lives.checkpoints(second, 2)
    second.kill()
    lives.end(second)
    assert lives.run(**moved)[-1] == 0
    file_scene.assert_exact()
    said = poundlock(file_scene, "fsck", store.at("checkpoints-2"))
    assert "0 orphans" in said
    assert "0 findings" in said


@pytest.mark.torture
@ON_HDFS
def test_the_main_job_on_hdfs_survives_the_death_of_namenode_and_datanode(
    kafka_scene: KafkaScene, hdfs: EmbeddedHdfs
) -> None:
    """Kafka to files, all of it on HDFS; its processes are killed in mid-job, and come back on the same data."""
    kafka_scene.produce(20_000)
    lives = kafka_scene.lives
    # HDFS takes its time to come back: the attempts have to last as long.
    lives.add("-D", "restart-strategy.fixed-delay.delay=2 s")
    job = lives.start()
    lives.checkpoints(job, 3)
    assert not kafka_scene.caught_up(), "all was consumed before HDFS went away: give it more input"
    hdfs.restart()
    kafka_scene.produce(2000)
    survivor = kafka_scene.wait_until_caught_up(job)
    assert survivor is job, f"the restart cost the driver its life: {job.exit_code}"
    assert lives.stop(job) == 0
    kafka_scene.assert_exact()


@pytest.mark.torture
def test_the_death_of_the_datanode_alone_costs_nothing(
    tmp_path: Path, make_file_scene: Callable[[Path, Store], FileScene]
) -> None:
    """Files to files on an HDFS whose datanode has a process of its own; while it is away nothing can be written or read."""
    with running_or_skipped("HDFS", lambda: EmbeddedHdfs(apart=True)) as cluster:
        scene = make_file_scene(tmp_path, Store("hdfs", f"{cluster.uri}/apart"))
        with scene.lives as lives:
            scene.produce(45_000)
            job = lives.start()
            lives.checkpoints(job, 3)
            cluster.kill_datanode()
            restarted = job.wait_line(lambda value: int(value.get("restarts") or 0) >= 1, seconds=lives.patience_s)
            assert restarted is not None, job.log_tail()
            cluster.start_datanode()
            assert lives.end(job) == 0
            scene.assert_exact()


@pytest.mark.torture
@ON_HDFS
def test_a_quota_reached_in_mid_job_leaves_whole_files_only(
    file_scene: FileScene, store: Store, hdfs: EmbeddedHdfs
) -> None:
    file_scene.produce(45_000)
    store.storage("out").create_exclusive("there", b"")
    place = store.at("out").removeprefix(hdfs.uri)
    hdfs.admin("-setQuota", "12", place)
    try:
        lives = file_scene.lives
        job = lives.start("-D", "restart-strategy.type=none")
        assert lives.end(job) == 3
        said = job.log_tail(20_000)
        assert "the quota of names is used up" in said or "the quota of a folder is used up" in said
        assert "Next: " in said
        assert "Traceback" not in said
        found = file_scene.audit()
        assert found.duplicated == found.misplaced == 0, found
    finally:
        hdfs.admin("-clrQuota", place)
    store.storage("out").delete("there")
    assert lives.run()[-1] == 0
    file_scene.assert_exact()


def refused(scene: FileScene, what: str, **environment: str) -> None:
    """Assert that the job is refused before it starts, in two lines."""
    job = scene.lives.start(**environment)
    assert scene.lives.end(job) == 2
    said = job.log_tail(20_000)
    assert what in said
    assert "Next: " in said
    assert "Traceback" not in said


def test_a_namenode_that_is_not_there_is_refused(file_scene: FileScene) -> None:
    pytest.importorskip("hdfs_native")
    file_scene.produce(100)
    nowhere = f"hdfs://127.0.0.1:{free_port()}/x"
    refused(file_scene, f"the folder {nowhere} cannot be reached", CRASH_OUT=nowhere)
    refused(file_scene, f"the checkpoint {nowhere} cannot be reached", CRASH_CHECKPOINTS=nowhere)


def test_a_folder_that_may_not_be_written_is_refused(file_scene: FileScene, own_hdfs: EmbeddedHdfs) -> None:
    file_scene.produce(100)
    where = f"{own_hdfs.uri}/of-the-administrator/out"
    refused(file_scene, "Permission denied", CRASH_OUT=where, HADOOP_USER_NAME="somebody")
    refused(file_scene, "Permission denied", CRASH_CHECKPOINTS=where, HADOOP_USER_NAME="somebody")
