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
    with small_disk(file_scene.out, "600k") as disk:
        file_scene.produce(20_000)
        lives = file_scene.lives
        try:
            job = lives.start()
            restarted = job.wait_line(lambda value: int(value.get("restarts") or 0) >= 1, seconds=lives.patience_s)
            assert restarted is not None, job.log_tail()
            assert job.exit_code is None
            assert shutil.disk_usage(file_scene.out).total < 1_000_000
            assert file_scene.audit().duplicated == 0
            disk.resize("64m")
            assert lives.end(job) == 0
            file_scene.assert_exact()
        finally:
            lives.__exit__()
