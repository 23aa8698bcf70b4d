"""The note that the newest decision is carried out deleted: the next start commits all of it again, and nothing comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.conftest import FileScene, KafkaScene, Scene

pytestmark = pytest.mark.crash


def forget_last_commit(scene: Scene) -> None:
    notes = scene.notes()
    assert notes
    for note in notes:
        note.unlink()


def test_files_last_commit_deleted_after_a_stop_a_kill_and_the_end(file_scene: FileScene) -> None:
    file_scene.produce(60_000)
    lives = file_scene.lives
    job = lives.start()
    lives.checkpoints(job, 4)
    assert lives.stop(job) == 0
    before = file_scene.audit()
    assert before.lost > 0, "the job was through before it was stopped: give it more input"
    assert before.hidden == before.duplicated == before.misplaced == 0
    forget_last_commit(file_scene)

    job = lives.start()
    lives.checkpoints(job, 4)
    job.kill()
    assert lives.left_behind() == []
    forget_last_commit(file_scene)

    assert lives.run() == [0]
    file_scene.assert_exact()
    forget_last_commit(file_scene)
    assert lives.run() == [0]
    file_scene.assert_exact()


@pytest.mark.torture
def test_kafka_last_commit_deleted(kafka_scene: KafkaScene) -> None:
    lives = kafka_scene.lives
    for _ in range(2):
        kafka_scene.produce(3000)
        job = lives.run_until(lambda value: value.get("lag") == 0 and value.get("last_ms") is not None)
        assert lives.stop(job) == 0
        forget_last_commit(kafka_scene)
    # Without rows no checkpoint is taken, so there are some for the last life too.
    kafka_scene.produce(1000)
    job = lives.run_until(lambda value: value.get("lag") == 0 and value.get("last_ms") is not None)
    assert lives.stop(job) == 0
    kafka_scene.assert_exact()
