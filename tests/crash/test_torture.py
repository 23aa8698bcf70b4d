"""SIGKILL of driver, JVM or worker at random moments while events keep coming. The seed is printed; give it to run the plan again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.torture import kept_ahead, tortured

if TYPE_CHECKING:
    from tests.crash.conftest import KafkaScene

pytestmark = pytest.mark.crash


def torture(scene: KafkaScene, kills: int) -> None:
    produce = kept_ahead(lambda: scene.produce(500), scene.waiting, most=15_000)
    job = scene.wait_until_caught_up(tortured(scene.lives.start, produce, kills))
    assert scene.lives.stop(job) == 0
    scene.assert_exact()


def test_a_few_random_kills(kafka_scene: KafkaScene) -> None:
    torture(kafka_scene, 4)


@pytest.mark.torture
def test_many_random_kills(kafka_scene: KafkaScene) -> None:
    torture(kafka_scene, int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "50")))
