"""What breaks around a job: the broker goes away, the disk is full, a second driver is started on its checkpoint."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from support.small_disk import small_disk

if TYPE_CHECKING:
    from tests.crash.conftest import FileScene, KafkaScene

pytestmark = pytest.mark.crash


def test_broker_restarted_in_mid_job(kafka_scene: KafkaScene) -> None:
    kafka_scene.produce(20_000)
    lives = kafka_scene.lives
    job = lives.start()
    lives.checkpoints(job, 3)
    assert not kafka_scene.caught_up(), "all was consumed before the broker went away: give it more input"
    kafka_scene.broker.restart()
    kafka_scene.produce(2000)
    survivor = kafka_scene.wait_until_caught_up(job)
    assert survivor is job, f"the broker's restart cost the driver its life: {job.exit_code}"
    assert lives.stop(job) == 0
    kafka_scene.assert_exact()


def test_two_drivers_on_one_checkpoint(file_scene: FileScene) -> None:
    file_scene.produce(20_000)
    lives = file_scene.lives
    first = lives.start(CRASH_WATCH="1")
    lives.checkpoints(first, 2)
    second = lives.start(CRASH_WATCH="1")
    assert lives.end(second) == 2
    said = second.log_tail(20_000)
    assert f"two drivers on one checkpoint: process {first.pid}" in said
    assert "Next: " in said
    assert "Traceback" not in said
    assert first.exit_code is None
    lives.checkpoints(first, 3)
    assert lives.stop(first) == 0
    assert lives.run() == [0]
    file_scene.assert_exact()


def test_full_disk_of_the_output(file_scene: FileScene) -> None:
    """The output is on a file system too small for it; the job keeps trying, and goes on once there is room."""
    with small_disk(file_scene.out, "size=600k") as disk, file_scene.lives as lives:
        file_scene.produce(20_000)
        job = lives.start()
        restarted = job.wait_line(lambda value: int(value.get("restarts") or 0) >= 1, seconds=lives.patience_s)
        assert restarted is not None, job.log_tail()
        assert job.exit_code is None
        assert shutil.disk_usage(file_scene.out).total < 1_000_000
        assert file_scene.audit().duplicated == 0
        disk.mount("remount,size=64m")
        assert lives.end(job) == 0
        file_scene.assert_exact()


@pytest.mark.torture
def test_full_disk_of_checkpoints_and_of_what_lists_the_job(file_scene: FileScene) -> None:
    """All that poundlock writes of its own is on a disk that is full for a while: checkpoint, list of jobs and log."""
    with small_disk(file_scene.root / "disk", "size=64m,nr_inodes=4000") as disk, file_scene.lives as lives:
        own = {"CRASH_CHECKPOINTS": str(disk.path / "checkpoints"), "POUNDLOCK_STATE_DIR": str(disk.path / "state")}
        file_scene.produce(20_000)
        job = lives.start(**own)
        lives.checkpoints(job, 2)
        disk.fill()
        full = job.wait_line(lambda value: "disk full while" in str(value.get("message")), seconds=lives.patience_s)
        assert full is not None, job.log_tail()
        assert "free some space; the job goes on from its last checkpoint" in str(full.value["message"])
        refused = lives.start(**own)
        assert lives.end(refused) in (2, 3), "another one that is started meanwhile says why it cannot"
        assert job.kill()
        dead = lives.start(**own)
        assert lives.end(dead) == 3
        assert "disk full while" in dead.log_tail()
        assert "Traceback" not in dead.log_tail(1000)
        disk.free()
        assert lives.end(lives.start(**own)) == 0
        file_scene.assert_exact()
