"""`checkpointing_mode="AT_LEAST_ONCE"`: rows are visible with no decision of theirs, and a crash repeats them and loses none."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.lives import Lives

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/alarms.py"
_PATIENCE_S = 600.0


def _until(holds: Callable[[], bool], lives: Lives) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, lives._stuck("stands still")
        time.sleep(0.1)


def test_rows_are_visible_before_any_decision_and_come_again_after_a_crash(
    tmp_path: Path, crash_broker: EmbeddedKafka
) -> None:
    given, out = (f"alarms-{random.randrange(1 << 24):06x}-{name}" for name in ("in", "out"))
    for topic in (given, out):
        crash_broker.create_topic(topic, 2)
    checkpoints = tmp_path / "checkpoints"
    ledger = Ledger(LocalStorage(str(checkpoints)))
    environment = {
        "CRASH_SERVERS": crash_broker.bootstrap_servers,
        "CRASH_IN": given,
        "CRASH_OUT": out,
        "CRASH_CHECKPOINTS": str(checkpoints),
        "CRASH_LETTERS": str(tmp_path / "letters"),
    }

    def produce(first: int) -> Counter[bytes]:
        values = [b"%06d" % number for number in range(first, first + 50)]
        crash_broker.produce(given, [Record(value, partition=i % 2) for i, value in enumerate([*values, b"low"])])
        return Counter(values)

    def seen() -> Counter[bytes]:
        return Counter(record.value or b"" for record in crash_broker.read(out))

    def occasions() -> list[str]:
        return [decision.occasion for decision in ledger]

    with Lives(JOB, environment=environment, folder=tmp_path) as lives:
        job = lives.start()
        first = produce(0)
        _until(lambda: seen() == first, lives)
        second = produce(100)
        _until(lambda: seen() == first + second, lives)
        assert occasions() == ["start"], "two rounds, and nothing is decided"
        job.kill()

        job = lives.start()
        twice = Counter(dict.fromkeys(first + second, 2))
        _until(lambda: seen() == twice, lives)
        assert occasions() == ["start", "start"]
        assert lives.stop(job) == 0
        assert occasions()[2:] in (["checkpoint"], ["checkpoint", "end"]), "a stop ends the rounds, and is decided"
        (checkpoint,) = [decision for decision in ledger if decision.occasion == "checkpoint"]
        assert checkpoint.sources["events"].rows == 102
        counts = checkpoint.sinks["alarms"].counts
        assert (counts.read, counts.filtered, counts.written) == (102, 2, 100)

        job = lives.start()
        third = produce(200)
        _until(lambda: seen() == twice + third, lives)
        assert lives.stop(job) == 0
        assert seen() == twice + third, "what was decided does not come again"
        assert lives.left_behind() == []
