"""A job from a queue into files and from files into a queue, through kills: files have each message once, and the queue has each row.

Each row once in Pulsar, at least once in the others. MQTT is Mosquitto's, Kinesis that of moto's server, which is a fake of the service;
RabbitMQ has its own module.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.lives import STATELESS, Lives, failpoint_setting, folders_of
from support.queues import SYSTEMS, Queues
from support.torture import kept_ahead, tortured

pytestmark = [pytest.mark.crash, pytest.mark.torture]

KILLED = -9
JOB = Path(__file__).parent / "jobs/queues.py"


class Scene:
    """A system of messages, a job on it, and what was given to both of its sources so far."""

    def __init__(self, queues: Queues, folder: Path) -> None:
        self.queues, self.folder, self.given = queues, folder, 0
        (folder / "in").mkdir()
        environment = {**queues.environment, **folders_of(folder, folder / "in")}
        self.lives = Lives(JOB, environment=environment, folder=folder, patience_s=1_800)

    def give(self, count: int) -> None:
        """Give more numbers: as messages, and as lines of a file."""
        numbers = range(self.given, self.given + count)
        self.queues.give(numbers)
        hidden = self.folder / f"in/.{self.given}"
        hidden.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
        hidden.rename(self.folder / f"in/{self.given}.json")
        self.given += count

    def written(self) -> Counter[int]:
        """Return how often each number stands in finished files."""
        files = [p for p in (self.folder / "out").rglob("*") if p.is_file() and not p.name.startswith(".")]
        return Counter(json.loads(line)["n"] for path in files for line in path.read_text().splitlines())

    def caught_up(self) -> bool:
        """Return whether all that was given has arrived."""
        return self.written().total() >= self.given and len(self.queues.copies()) >= self.given

    def assert_exact(self) -> None:
        """Compare what arrived with what was given."""
        assert self.lives.left_behind() == []
        assert self.written() == Counter(range(self.given))
        copies = self.queues.copies()
        assert (copies if self.queues.once else Counter(set(copies))) == Counter(range(self.given))


@pytest.fixture(params=list(SYSTEMS))
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with SYSTEMS[request.param](tmp_path) as queues:
        made = Scene(queues, tmp_path)
        with made.lives:
            yield made


def test_every_failpoint(scene: Scene, tmp_path: Path) -> None:
    hit, points = tmp_path / "hit", {point.value for point in STATELESS}
    setting = failpoint_setting("kill", hit, points=STATELESS)
    scene.give(300)
    job, end = scene.lives.start(POUNDLOCK_FAILPOINTS=setting), time.monotonic() + scene.lives.patience_s
    while {path.name for path in hit.iterdir()} != points:
        assert time.monotonic() < end, f"not hit: {points - {path.name for path in hit.iterdir()}}"
        scene.give(5)
        if job.exit_code is not None:
            assert job.exit_code == KILLED
            job = scene.lives.start(POUNDLOCK_FAILPOINTS=setting)
        time.sleep(0.5)
    job = scene.lives.until(scene.caught_up, job)
    assert scene.lives.stop(job) == 0
    scene.assert_exact()


def test_random_kills(scene: Scene) -> None:
    scene.give(500)
    produce = kept_ahead(lambda: scene.give(20), lambda: scene.given - scene.written().total(), 2_000)
    kills = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "15"))
    job = tortured(scene.lives.start, produce, kills, patience_s=scene.lives.patience_s)
    job = scene.lives.until(scene.caught_up, job)
    assert scene.lives.stop(job) == 0
    scene.assert_exact()
