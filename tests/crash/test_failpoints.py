"""Every step of a checkpoint, one after the other, is the last thing a process does; then the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poundlock.failpoints import Failpoint
from support.lives import DRIVERS, STATELESS, failpoint_setting
from support.stores import EVERYWHERE, LOCAL_FIRST

if TYPE_CHECKING:
    from tests.crash.conftest import FileScene, KafkaScene, Scene

pytestmark = pytest.mark.crash


def not_hit(scene: Scene) -> set[str]:
    return {point.value for point in STATELESS} - {path.name for path in scene.hit.iterdir()}


@EVERYWHERE
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


def test_control_without_the_ledger_the_audit_fails(file_scene: FileScene) -> None:
    """The crash matrix can fail: with a ledger that forgets what earlier lives decided, crashes after the decision cost or double rows."""
    file_scene.produce(12_000)
    points = [Failpoint.DECISION_RECORDED, Failpoint.SINK_COMMITTED]
    setting = failpoint_setting("kill", file_scene.hit, times=3, points=points)
    file_scene.lives.run(POUNDLOCK_FAILPOINTS=setting, CRASH_FORGETS="1")
    assert not_hit(file_scene).isdisjoint(point.value for point in points)
    result = file_scene.audit()
    assert result.lost or result.duplicated, result
