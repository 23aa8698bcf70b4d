"""A job that reads a queue and dies: at every failpoint, and at random moments. Files have each message once; the other queue has each at least once."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fixtures import running_or_skipped
from support.lives import STATELESS, Lives, failpoint_setting
from support.rabbitmq import EmbeddedRabbitMQ
from support.torture import tortured

pytestmark = [pytest.mark.crash, pytest.mark.torture]

KILLED = -9
JOB = Path(__file__).parent / "jobs/rabbitmq_to_files.py"


class Scene:
    """A broker, a job that reads from it, and what was published so far."""

    def __init__(self, broker: EmbeddedRabbitMQ, folder: Path) -> None:
        self.broker, self.out, self.published = broker, folder / "out", 0
        environment = {
            "CRASH_BROKER": broker.url,
            "CRASH_OUT": str(self.out),
            "CRASH_CHECKPOINTS": str(folder / "checkpoints"),
        }
        self.lives = Lives(JOB, environment=environment, folder=folder, patience_s=1_800)

    def publish(self, count: int) -> None:
        """Publish more, each with an id, and every tenth twice, as a producer does that had no answer."""
        for n in range(self.published, self.published + count):
            times = 2 if n % 10 == 0 else 1
            self.broker.publish("given", [json.dumps({"n": n}).encode()] * times, [f"{n}"] * times)
        self.published += count

    def written(self) -> Counter[int]:
        """Return how often each number stands in finished files."""
        files = [path for path in self.out.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return Counter(json.loads(line)["n"] for path in files for line in path.read_text().splitlines())

    def caught_up(self) -> bool:
        """Return whether all that was published is in files."""
        return self.written().total() >= self.published

    def assert_exact(self) -> None:
        """Compare files and the other queue with what was published."""
        assert self.written() == Counter(range(self.published))
        copies = Counter(json.loads(body)["n"] for body in self.broker.waiting("copies"))
        assert set(copies) == set(range(self.published))
        assert self.broker.waiting("given") == []


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with running_or_skipped("RabbitMQ", EmbeddedRabbitMQ) as broker:
        for queue in ("given", "copies"):
            broker.declare(queue)
        made = Scene(broker, tmp_path)
        with made.lives:
            yield made


def test_every_failpoint(scene: Scene, tmp_path: Path) -> None:
    hit, points = tmp_path / "hit", {point.value for point in STATELESS}
    setting = failpoint_setting("kill", hit, points=STATELESS)
    scene.publish(300)
    job, end = scene.lives.start(POUNDLOCK_FAILPOINTS=setting), time.monotonic() + scene.lives.patience_s
    while {path.name for path in hit.iterdir()} != points:
        assert time.monotonic() < end, f"not hit: {points - {path.name for path in hit.iterdir()}}"
        scene.publish(5)
        if job.exit_code is not None:
            assert job.exit_code == KILLED
            job = scene.lives.start(POUNDLOCK_FAILPOINTS=setting)
        time.sleep(0.5)
    job = scene.lives.until(scene.caught_up, job)
    assert scene.lives.stop(job) == 0
    scene.assert_exact()


def test_random_kills(scene: Scene) -> None:
    scene.publish(500)
    kills = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "15"))
    job = tortured(scene.lives.start, lambda: scene.publish(20), kills, patience_s=scene.lives.patience_s)
    job = scene.lives.until(scene.caught_up, job)
    assert scene.lives.stop(job) == 0
    scene.assert_exact()
