"""Rounds of running, crashing, saving, restoring, rescaling and upgrading one job: the output is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from poundlock.savepoint.metadata import check_files, read_metadata
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.rounds import Rounds, visible

pytestmark = [pytest.mark.crash, pytest.mark.services]

JOB = Path(__file__).parent / "jobs/rounds.py"
PARTITIONS = 3
TOPICS = ("events", "clicks", "extra")


class Input:
    """What was produced, and what an undisturbed run makes of it."""

    def __init__(self, kafka: EmbeddedKafka, name: str) -> None:
        self.kafka, self.name, self.count = kafka, name, 0
        for topic in TOPICS:
            kafka.create_topic(f"{name}-{topic}", PARTITIONS)

    def produce(self, count: int = 60) -> None:
        numbers = range(self.count, self.count + count)
        for topic in TOPICS:
            records = [Record(self._value(topic, n), partition=n % PARTITIONS) for n in numbers]
            self.kafka.produce(f"{self.name}-{topic}", records)
        self.count += count

    def _value(self, topic: str, n: int) -> bytes:
        if topic == "clicks":
            return json.dumps({"t": n, "k": str(n % 4)}).encode()
        return f"{topic} {n}".encode()

    def lines(self, topic: str) -> Counter[bytes]:
        return Counter(self._value(topic, n) for n in range(self.count))

    def windows(self) -> Counter[bytes]:
        counts = Counter((str(n % 4), n // 100 * 100) for n in range(self.count))
        return Counter(f"{key},{start},{count}".encode() for (key, start), count in counts.items())


def run_rounds(tmp_path: Path, kafka: EmbeddedKafka, rounds: int, stretch: int) -> Rounds:
    seed = int(os.environ.get("POUNDLOCK_ROUNDS_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}: POUNDLOCK_ROUNDS_SEED={seed} runs the same rounds")
    given = Input(kafka, f"rounds-{seed}")
    given.produce(600)
    environment = {"ROUNDS_SERVERS": kafka.bootstrap_servers, "ROUNDS_TOPICS": given.name}
    played = Rounds(JOB, tmp_path, environment, seed, given.produce)
    for number in range(rounds):
        played.round()
        if (number + 1) % stretch == 0 or number + 1 == rounds:
            played.finish()
            compare(played, given)
    print(f"{rounds} rounds: {dict(sorted(played.done.items()))}")
    return played


def compare(played: Rounds, given: Input) -> None:
    output = Path(played.config["output"])
    counted, windows = visible(output / "counts"), given.windows()
    closed = Counter(line for line in windows if int(line.split(b",")[1]) + 100 < given.count - 2000)
    found = {
        "events": differing(visible(output / "events"), given.lines("events")),
        "windows": differing(counted - windows, Counter()),
        "closed windows": differing(counted & closed, closed),
    }
    if played.config["extra"]:
        found["extra"] = differing(visible(Path(played.config["extra"])), given.lines("extra"))
    # Texts, not sets of ten thousands of lines: pytest would compare those line by line, for minutes.
    assert not any(found.values()), f"{found}\n{played._tail()}"
    for taken in played.taken:
        savepoint = LocalStorage(taken.path)
        check_files(savepoint, read_metadata(savepoint))  # nothing that went on from it touched it


def differing(seen: Counter[bytes], wanted: Counter[bytes]) -> str:
    """Say in a few words how lines differ; "" = they do not."""
    parts = [(what, found) for what, found in (("missing", wanted - seen), ("too many", seen - wanted)) if found]
    return "; ".join(f"{found.total()} {what}, such as {sorted(found)[:5]}" for what, found in parts)


@pytest.mark.timeout(2400)
def test_a_few_rounds(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    run_rounds(tmp_path, kafka_broker, 2, 2)


@pytest.mark.torture
def test_many_rounds(tmp_path: Path, kafka_broker: EmbeddedKafka) -> None:
    played = run_rounds(tmp_path, kafka_broker, int(os.environ.get("POUNDLOCK_ROUNDS", "100")), 10)
    if len(played.story) >= 100:
        assert min(played.done.values()) > 0
