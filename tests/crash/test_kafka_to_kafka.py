"""Kafka to Kafka under crashes: what an independent read_committed reader sees, against what was produced."""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli.main import main
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink.transactions import Transactions
from poundlock.failpoints import Failpoint
from poundlock.storage import LocalStorage
from poundlock.testing.job_process import JobProcess
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.lives import STATELESS, Lives, failpoint_setting, offsets_read, slow_commits
from support.torture import kept_ahead, tortured

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/kafka_to_kafka.py"
PARTITIONS = 3


class KafkaPair:
    """The job, its topics, and what was produced for it."""

    def __init__(
        self,
        root: Path,
        broker: EmbeddedKafka,
        name: str,
        *,
        sinks: int = 1,
        timeout: str = "60 s",
        arguments: Sequence[str] = (),
        **settings: str,
    ) -> None:
        self.root, self.broker, self.name, self.sinks = root, broker, name, sinks
        self.hit = root / "hit"
        self.files = root / "files"
        self.checkpoints = str(root / "checkpoints")
        self.produced: list[bytes] = []
        for topic in (f"{name}-in", f"{name}-a", f"{name}-b"):
            broker.create_topic(topic, PARTITIONS)
        environment = {
            "CRASH_SERVERS": broker.bootstrap_servers,
            "CRASH_IN": f"{name}-in",
            "CRASH_OUT": name,
            "CRASH_CHECKPOINTS": self.checkpoints,
            "CRASH_FILES": str(self.files),
            "CRASH_SINKS": str(sinks),
            "CRASH_TIMEOUT": timeout,
            **settings,
        }
        self.lives = Lives(JOB, environment=environment, folder=root, arguments=arguments)
        self.asked = Transactions(broker.bootstrap_servers, KafkaSecurity().kafka_python)

    def produce(self, count: int) -> None:
        """Append records, each with a key whose records are numbered."""
        first = len(self.produced)
        values = [b"%03d:%09d" % (i % 97, i) for i in range(first, first + count)]
        records = [Record(v, key=v[:3], partition=int(v[:3]) % PARTITIONS) for v in values]
        self.broker.produce(f"{self.name}-in", records, enable_idempotence=True)
        self.produced += values

    def open_transactions(self) -> list[str]:
        return [tid for tid in self.asked.ongoing() if tid.startswith(f"{self.name}.")]

    def waiting(self) -> int:
        """Return how many records no decided checkpoint has read."""
        return len(self.produced) - offsets_read(LocalStorage(self.checkpoints))

    def caught_up(self) -> bool:
        return sum(1 for _ in self.broker.read(f"{self.name}-a")) >= len(self.produced)

    def run_until_caught_up(self, **environment: str) -> JobProcess:
        """Give the job lives until it has consumed everything; return the one that goes on."""
        return self.lives.run_until(
            lambda value: value.get("lag") == 0 and value.get("last_ms") is not None, most=40, **environment
        )

    def assert_exact(self) -> None:
        """Assert that every sink has every record once, in order within its key, and nothing is left open."""
        assert self.lives.left_behind() == []
        expected = Counter(self.produced)
        for topic in [f"{self.name}-a", f"{self.name}-b"][: 2 if self.sinks == 3 else 1]:
            records = self.broker.read(topic)
            found = Counter(r.value for r in records)
            lost, doubled = expected - found, found - expected
            assert (lost.total(), doubled.total()) == (0, 0), topic
            keys: dict[Any, list[Any]] = defaultdict(list)
            for record in records:
                keys[record.key].append((record.partition, record.value))
            assert all(len({p for p, _ in seen}) == 1 for seen in keys.values())
            assert all(seen == sorted(seen) for seen in keys.values()), f"{topic}: out of order within a key"
        if self.sinks == 3:
            lines = Counter(
                line
                for path in self.files.rglob("*")
                if path.is_file() and not path.name.startswith((".", "_"))
                for line in path.read_bytes().splitlines()
            )
            assert lines == expected, f"files: lost {(expected - lines).total()}, doubled {(lines - expected).total()}"
        assert self.open_transactions() == []
        assert main(["audit", self.checkpoints]) == 0, "the job's own audit finds what the reader did not"


@pytest.fixture
def pair(tmp_path: Path, crash_broker: EmbeddedKafka, request: pytest.FixtureRequest) -> Iterator[KafkaPair]:
    options = getattr(request, "param", {})
    name = f"kk-{request.node.originalname}".replace("_", "-")[:60] + f"-{random.randrange(1 << 24):06x}"
    made = KafkaPair(tmp_path, crash_broker, name, **options)
    with made.lives:
        yield made


def not_hit(pair: KafkaPair) -> set[str]:
    return {point.value for point in STATELESS} - {path.name for path in pair.hit.iterdir()}


@pytest.mark.torture
@pytest.mark.parametrize(
    "pair",
    [{"sinks": 1}, {"sinks": 3}, {"CRASH_MODE": "per_task"}],
    indirect=True,
    ids=["one topic", "two topics and files", "tasks commit"],
)
def test_killed_at_every_failpoint(pair: KafkaPair) -> None:
    pair.produce(40_000)
    job = pair.run_until_caught_up(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", pair.hit, times=2))
    assert not_hit(pair) == set()
    assert pair.lives.stop(job) == 0
    pair.assert_exact()


@pytest.mark.parametrize("pair", [{"sinks": 3}], indirect=True)
def test_killed_with_two_checkpoints_in_flight(pair: KafkaPair) -> None:
    """The driver dies while it commits one checkpoint, and the tasks of the next have opened transactions of their own."""
    pair.produce(15_000)
    job = pair.lives.start(POUNDLOCK_FAILPOINTS=slow_commits(pair.hit, 14))
    pair.lives.until(lambda: {tid[-2:] for tid in pair.open_transactions()} == {"-0", "-1"}, job)
    assert any(pair.hit.iterdir()), "a commit is slow"
    assert job.kill()
    job = pair.run_until_caught_up()
    assert pair.lives.stop(job) == 0
    pair.assert_exact()


@pytest.mark.torture
@pytest.mark.parametrize("pair", [{"sinks": 3, "timeout": "8 s"}], indirect=True)
def test_down_for_longer_than_the_timeout_after_the_decision(pair: KafkaPair) -> None:
    """Spark delivers the checkpoint again, and only what was aborted is produced again."""
    pair.produce(9_000)
    # Nine committables a checkpoint, committed side by side: the twelfth commit is after, or in, what the life produces again
    # first. When the first of a checkpoint is known to be committed, all the others may be: that death may cost nothing.
    before, within = (Failpoint.DECISION_RECORDED, 2), (Failpoint.SINK_COMMITTING, 12)
    for number, (point, times) in enumerate((before, (Failpoint.SINK_COMMITTED, 12), within, before)):
        setting = failpoint_setting("kill", pair.root / f"hit{number}", times=times, points=[point])
        assert pair.lives.end(pair.lives.start(POUNDLOCK_FAILPOINTS=setting)) == -9
        deadline = time.monotonic() + 60
        while pair.open_transactions():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        pair.produce(3_000)
    job = pair.run_until_caught_up()
    assert pair.lives.stop(job) == 0
    decided = Counter(d.checkpoint for d in Ledger(LocalStorage(pair.checkpoints)) if d.occasion == "checkpoint")
    assert sum(times - 1 for times in decided.values()) >= 3
    pair.assert_exact()


# Three tasks of 3 s each on one core, each of which opens its transaction when it has slept: the first is open for 6 s.
LONG = {"timeout": "4 s", "CRASH_SLOW_S": "0.02", "CRASH_RECORDS": "450", "arguments": ["--master", "local[1]"]}


@pytest.mark.torture
@pytest.mark.parametrize("pair", [{**LONG, "CRASH_MODE": "per_task"}], indirect=True)
def test_a_checkpoint_longer_than_a_transaction_may_last(pair: KafkaPair) -> None:
    pair.produce(900)
    job = pair.run_until_caught_up()
    assert pair.lives.stop(job) == 0
    pair.assert_exact()


@pytest.mark.torture
@pytest.mark.parametrize("pair", [LONG], indirect=True)
def test_such_a_checkpoint_is_refused_where_the_driver_commits(pair: KafkaPair) -> None:
    pair.produce(450)
    job = pair.lives.start()
    pair.lives.until(lambda: "of 4000 ms" in job.log_tail() or "is not open any more" in job.log_tail(), job)
    assert pair.lives.stop(job) in (0, 3), "3: the checkpoint that runs while it is stopped fails as well"
    assert pair.broker.read(f"{pair.name}-a") == []


@pytest.mark.torture
@pytest.mark.parametrize("pair", [{"sinks": 3, "timeout": "15 s"}], indirect=True)
def test_many_random_kills_with_three_sinks(pair: KafkaPair) -> None:
    kills = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "50"))
    produce = kept_ahead(lambda: pair.produce(500), pair.waiting, most=15_000)
    job = pair.lives.until(pair.caught_up, tortured(pair.lives.start, produce, kills))
    assert pair.lives.stop(job) == 0
    pair.assert_exact()
