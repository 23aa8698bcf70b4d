"""Every step of a checkpoint, one after the other, is the last thing a process does; then the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import Failpoint
from support.lives import DRIVERS, STATELESS, failpoint_setting, slow_commits
from support.stores import LOCAL_FIRST

if TYPE_CHECKING:
    from tests.crash.conftest import FileScene, KafkaScene, Scene

pytestmark = pytest.mark.crash


def not_hit(scene: Scene) -> set[str]:
    return {point.value for point in STATELESS} - {path.name for path in scene.hit.iterdir()}


@LOCAL_FIRST
def test_files_killed_at_every_failpoint(file_scene: FileScene) -> None:
    """At the second pass of each process: in the checkpoint after the one that a new life resumes or makes first."""
    file_scene.produce(45_000)
    codes = file_scene.lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", file_scene.hit, times=2))
    assert not_hit(file_scene) == set()
    assert len(codes) - 1 >= len(DRIVERS)
    file_scene.assert_exact()


@LOCAL_FIRST
def test_files_failing_at_every_failpoint(file_scene: FileScene) -> None:
    file_scene.produce(45_000)
    full = failpoint_setting("enospc", file_scene.root / "full", times=2, points=[Failpoint.SINK_WRITING])
    raises = failpoint_setting("raise", file_scene.hit)
    assert file_scene.lives.run(POUNDLOCK_FAILPOINTS=f"{raises},{full}") == [0]
    assert not_hit(file_scene) == set()
    assert (file_scene.root / "full" / Failpoint.SINK_WRITING.value).exists()
    file_scene.assert_exact()


@LOCAL_FIRST
def test_kafka_killed_at_every_failpoint(kafka_scene: KafkaScene) -> None:
    """At the first pass of each process: many of the deaths are in the recovery from the one before."""
    kafka_scene.produce(45_000)
    job = kafka_scene.lives.run_until(
        lambda value: value.get("lag") == 0 and value.get("last_ms") is not None,
        POUNDLOCK_FAILPOINTS=failpoint_setting("kill", kafka_scene.hit),
    )
    assert not_hit(kafka_scene) == set()
    assert kafka_scene.lives.stop(job) == 0
    kafka_scene.assert_exact()


def test_files_killed_with_two_checkpoints_in_flight(file_scene: FileScene) -> None:
    """The driver dies while it commits one checkpoint, and the tasks of the next have written already."""
    file_scene.produce(45_000)
    ledger = Ledger(file_scene.store.storage("checkpoints"))

    before = 0

    def in_flight() -> bool:
        newest = ledger.newest()
        # A new life finds what the one before left, and has to get two of its own on their way.
        if newest is None or newest.checkpoint <= before or ledger.is_committed(newest.number):
            return False
        return any(file_scene.out.rglob(f".*-{newest.checkpoint + 1}.inprogress.*"))

    setting = slow_commits(file_scene.hit, 8)
    for _ in range(2):
        job = file_scene.lives.start(CRASH_EACH="1", POUNDLOCK_FAILPOINTS=setting)
        file_scene.lives.until(in_flight, job)
        assert job.kill()
        newest = ledger.newest()
        assert newest is not None
        assert not ledger.is_committed(newest.number)
        before = newest.checkpoint
        setting = slow_commits(file_scene.root / "again", 14)
    assert file_scene.lives.run(CRASH_EACH="1") == [0]
    file_scene.assert_exact()


def test_control_without_the_ledger_the_audit_fails(file_scene: FileScene) -> None:
    """The crash matrix can fail: with a ledger that forgets what earlier lives decided, crashes after the decision cost or double rows."""
    file_scene.produce(12_000)
    points = [Failpoint.DECISION_RECORDED, Failpoint.SINK_COMMITTED]
    setting = failpoint_setting("kill", file_scene.hit, times=3, points=points)
    file_scene.lives.run(POUNDLOCK_FAILPOINTS=setting, CRASH_FORGETS="1")
    assert not_hit(file_scene).isdisjoint(point.value for point in points)
    result = file_scene.audit()
    assert result.lost or result.duplicated, result
