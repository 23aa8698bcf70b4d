"""Steps with state and timers of the clock between two topics: an idle job wakes for its timers and not otherwise; moved and rescaled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import Failpoint
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.lives import Lives, failpoint_setting

pytestmark = pytest.mark.services

JOB = Path(__file__).parent / "jobs/kafka_keyed.py"
USERS = [f"u{number}" for number in range(7)]


class Scene:
    """A topic of clicks, and what came of them."""

    def __init__(self, kafka: EmbeddedKafka, name: str, folder: Path) -> None:
        self.kafka, self.name, self.folder = kafka, name, folder
        for topic in (f"{name}-numbered", f"{name}-quiet"):
            kafka.create_topic(topic, 2)
        self.clicked: Counter[str] = Counter()

    def environment(self, checkpoints: str = "checkpoints") -> dict[str, str]:
        return {
            "KEYED_SERVERS": self.kafka.bootstrap_servers,
            "KEYED_TOPIC": self.name,
            "KEYED_CHECKPOINTS": str(self.folder / checkpoints),
        }

    def click(self, *users: str) -> None:
        self.kafka.produce(self.name, [Record(json.dumps({"user": user}).encode()) for user in users])
        self.clicked.update(users)

    def read(self, kind: str) -> Counter[tuple[str, int]]:
        rows = [json.loads(record.value or b"") for record in self.kafka.read(f"{self.name}-{kind}")]
        return Counter((row["user"], row["n"]) for row in rows)

    def numbered(self) -> bool:
        return sum(self.read("numbered").values()) >= sum(self.clicked.values())

    def quiet(self) -> bool:
        """Return whether each user was said to be quiet behind its last click."""
        return all((user, n) in self.read("quiet") for user, n in self.clicked.items())

    def checkpoints(self, folder: str = "checkpoints") -> int:
        return Ledger(LocalStorage(str(self.folder / folder))).newest().checkpoint  # type: ignore[union-attr]

    def cli(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "poundlock", *arguments],
            env={**os.environ, "POUNDLOCK_STATE_DIR": str(self.folder / "state")},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def test_an_idle_job_wakes_for_its_timers_and_goes_on_elsewhere(
    kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    scene = Scene(kafka_broker, new_topic(3), tmp_path)
    death = failpoint_setting("kill", tmp_path / "hit", times=2, points=[Failpoint.DECISION_RECORDED])
    with Lives(JOB, environment=scene.environment(), folder=tmp_path) as lives:
        scene.click(*USERS, *USERS[:3])
        job = lives.until(scene.numbered, lives.start(POUNDLOCK_FAILPOINTS=death))
        job = lives.until(scene.quiet, job)  # nothing comes meanwhile but time
        assert (tmp_path / "hit" / Failpoint.DECISION_RECORDED.value).exists()
        time.sleep(1)
        before = scene.checkpoints()
        time.sleep(3)
        assert scene.checkpoints() == before, "there is nothing to do"
        scene.cli("checkpoint", "kafka-keyed")
        assert scene.checkpoints() > before, "it was asked for"
        scene.click(*USERS[2:5])
        job = lives.until(scene.quiet, job)
        said = scene.cli("stop", "-p", str(tmp_path / "saved"), "kafka-keyed")
        assert lives.end(job) == 0
        path = said.partition("Savepoint completed. Path: ")[2].splitlines()[0]
    more = ["-s", path, "-p", "3"]
    with Lives(JOB, environment=scene.environment("moved"), folder=tmp_path, arguments=more) as lives:
        job = lives.start()
        scene.click(*USERS, *USERS)
        job = lives.until(scene.quiet, lives.until(scene.numbered, job))
        assert lives.stop(job) == 0
    assert scene.read("numbered") == Counter((u, n) for u, most in scene.clicked.items() for n in range(1, most + 1))
    assert all(count == 1 for count in scene.read("quiet").values())
