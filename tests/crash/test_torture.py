"""SIGKILL of driver, JVM or worker at random moments while events keep coming. The seed is printed; give it to run the plan again."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from poundlock.testing.torture import Torture, plan_kills

if TYPE_CHECKING:
    from tests.crash.conftest import KafkaScene

pytestmark = pytest.mark.crash


def seed() -> int:
    return int(os.environ.get("POUNDLOCK_TORTURE_SEED") or time.time_ns() // 1000 % 1_000_000_000)


def torture(scene: KafkaScene, kills: int) -> None:
    done = threading.Event()

    def feed() -> None:
        while not done.is_set():
            scene.produce(500)
            done.wait(0.3)

    number = seed()
    torturer = Torture(lambda _: scene.lives.start(), number, plan_kills(number, kills))
    feeder = threading.Thread(target=feed, name="feeder", daemon=True)
    feeder.start()
    try:
        report = torturer.run()
    finally:
        done.set()
        feeder.join(60)
    print(report)
    assert len(report.struck) == kills
    assert torturer.job is not None
    job = scene.wait_until_caught_up(torturer.job)
    assert scene.lives.stop(job) == 0
    scene.assert_exact()


def test_a_dozen_random_kills(kafka_scene: KafkaScene) -> None:
    torture(kafka_scene, 12)


@pytest.mark.torture
def test_many_random_kills(kafka_scene: KafkaScene) -> None:
    torture(kafka_scene, int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "50")))
