"""The two-phase commit to Kafka under dozens of deaths a minute: a driver without Spark against a real broker.

The driver is killed at random steps; between two lives a broker is killed, transactions time out, zombies open transactions,
and decided ones are committed a second time. The seed is printed; give it to run the plan again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, KafkaSink
from poundlock.audit.audit import audit
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.identity import read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import WriterContext
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink.sink import CommitMode
from poundlock.connectors.kafka.sink.transactions import Transactions
from poundlock.failpoints import ENVIRONMENT, Failpoint
from poundlock.formats.chunk import Lines
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka

pytestmark = pytest.mark.crash

JOB = Path(__file__).parent / "jobs/kafka_lives.py"
# A broker that starts drops the word of transactions that ran out of time while it was down (see docs/kafka-sink.md), so
# only lives before which nobody kills it have a timeout that a test can wait for.
SHORT, LONG = "3 s", "120 s"
# The steps around the decision are where work can be lost or done twice: they are chosen more often.
# Without Spark nothing reads a source, and there is no state: a life that waits for these points makes a thousand checkpoints.
PASSED = [point for point in Failpoint if point not in (Failpoint.TASKS_READING, Failpoint.STATE_WRITING)]
POINTS = [*PASSED, Failpoint.DECISION_RECORDED, Failpoint.SINK_COMMITTING, Failpoint.SINK_COMMITTED] * 2
TROUBLES = ["none", "none", "none", "time out", "time out", "broker killed", "zombie", "committed twice"]


class Lives:
    """The driver's lives, and what is done to it in between."""

    def __init__(self, root: Path, brokers: Sequence[EmbeddedKafka], name: str, seed: int, mode: CommitMode) -> None:
        self.root, self.name, self.chance, self.mode = root, name, random.Random(seed), mode
        self.brokers = dict(zip("ab", (brokers[0], brokers[-1]), strict=True))
        self.storage = LocalStorage(str(root / "checkpoint"))
        self.deaths: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self.asked: dict[str, Transactions] = {}
        self.sinks: dict[str, KafkaSink] = {}
        settings: dict[str, Any] = {
            "transactional_id_prefix": name, "transaction_timeout": LONG, "commit_mode": mode
        }  # fmt: skip
        for sink, broker in self.brokers.items():
            broker.create_topic(f"{name}-{sink}", 2)
            self.asked[sink] = Transactions(broker.bootstrap_servers, KafkaSecurity().kafka_python)
            self.sinks[sink] = KafkaSink(broker.bootstrap_servers, f"{name}-{sink}", **settings)
            self.sinks[sink].preflight()

    def life(self, batches: int, failpoint: str | None, timeout: str = LONG) -> int:
        servers = " ".join(broker.bootstrap_servers for broker in self.brokers.values())
        environment = {**os.environ, **({ENVIRONMENT: failpoint} if failpoint else {})}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(JOB), str(self.root), servers, self.name, str(batches), timeout,
             self.mode],
            env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode in (0, -9, 1), done.stderr
        if done.returncode == 1:  # a checkpoint that ran out of time is repeated by the next life
            last = done.stderr.strip().splitlines()[-2:]
            assert "TransientError" in " ".join(last), done.stderr
            self.deaths["transient"] += 1
        return done.returncode

    def run(self, kills: int) -> None:
        """Kill the driver so many times, then let it come to an end."""
        while self.deaths.total() < kills:
            point, trouble = self.chance.choice(POINTS), self.chance.choice(TROUBLES)
            failpoint, timeout = (
                f"{point.value}:kill@{self.chance.randint(1, 6)}",
                SHORT if trouble == "time out" else LONG,
            )
            if self.life(self.committed() + 1000, failpoint, timeout) == -9:
                self.deaths[point.value] += 1
            self.trouble(trouble)
        batches = self.committed() + 4
        while self.life(batches, None) != 0:
            pass
        self.assert_exact(batches)

    def committed(self) -> int:
        folder = self.root / "commits"
        return max((int(p.name) for p in folder.iterdir()), default=-1) if folder.exists() else -1

    def trouble(self, what: str) -> None:
        self.troubles[what] += 1
        if what in ("time out", "broker killed"):
            while any(self.is_short(sink, tid) for sink, tid in self.open_transactions()):
                time.sleep(0.1)
        if what == "broker killed":
            self.brokers[self.chance.choice("ab")].restart()
        elif what == "zombie":
            self.zombie()
        elif what == "committed twice":
            newest = Ledger(self.storage).newest()
            for sink in ("a", "b") if newest is not None else ():
                for committable in newest.sinks[sink].committables:
                    self.sinks[sink].commit(committable)

    def zombie(self) -> None:
        """Open a transaction as a task of an attempt would that nobody waits for any more.

        With per_task it would commit by itself, so it dies before that.
        """
        per_task = self.mode == "per_task"
        identity = read_identity(self.storage)
        if identity is None:
            return
        sink = self.chance.choice("ab")
        context = WriterContext(
            job_id=identity.job_id, sink=sink, epoch=0,
            checkpoint=1_000_000 if per_task else 0, subtask=0, attempt="z",
            directive={}, reject=lambda record: None, started_ms=0,
        )  # fmt: skip
        import numpy as np

        writer = self.sinks[sink].open_writer(context)
        writer.write(Lines(memoryview(b"zombie\n"), np.array([6], np.int64)))
        if not per_task:
            writer.prepare()

    def is_short(self, sink: str, tid: str) -> bool:
        told = self.asked[sink].describe(tid)
        return told is not None and told.state == "Ongoing" and told.timeout_ms < 60_000

    def open_transactions(self) -> list[tuple[str, str]]:
        return [
            (s, tid) for s, asked in self.asked.items() for tid in asked.ongoing() if tid.startswith(f"{self.name}.")
        ]

    def assert_exact(self, batches: int) -> None:
        sys.path.insert(0, str(JOB.parent))
        try:
            from kafka_lives import TASKS, rows  # type: ignore[import-not-found]
        finally:
            sys.path.pop(0)
        expected = Counter(value for n in range(batches) for task in range(TASKS) for value in rows(n, task))
        found = {t: Counter(r.value for r in b.read(f"{self.name}-{t}", timeout=120)) for t, b in self.brokers.items()}
        files = (p for p in (self.root / "files").iterdir() if not p.name.startswith((".", "_")))
        found["files"] = Counter(line for path in files for line in path.read_bytes().splitlines())
        for name, seen in found.items():
            assert ((expected - seen).total(), (seen - expected).total()) == (0, 0), f"{name}: lost, duplicated"
        assert self.open_transactions() == []
        self.assert_audited(sum(expected.values()))

    def assert_audited(self, rows: int) -> None:
        """The job's own audit says the same: what was produced again counts once, nothing is there that nobody decided."""
        identity = read_identity(self.storage)
        assert identity is not None
        sinks = {**self.sinks, "files": FileSink(str(self.root / "files"), row="value")}
        owned = {name: bound(sink, job_id=identity.job_id, sink=name) for name, sink in sinks.items()}
        report = audit(Ledger(self.storage), owned)
        assert report.agrees, report.disagreements
        assert {name: found.visible for name, found in report.sinks.items()} == dict.fromkeys(sinks, rows)


@pytest.fixture
def setting() -> tuple[CommitMode, int]:
    """How the sink commits, and over how many clusters the topics are spread."""
    return "two_phase", 2


@pytest.fixture
def lives(tmp_path: Path, setting: tuple[CommitMode, int]) -> Iterator[Lives]:
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or time.time_ns() // 1000 % 1_000_000_000)
    with ExitStack() as stack:
        brokers = [stack.enter_context(EmbeddedKafka()) for _ in range(setting[1])]
        made = Lives(tmp_path, brokers, "lives", seed, setting[0])
        yield made
        print(f"seed {seed}: {made.deaths.total()} deaths {dict(made.deaths)}, between them {dict(made.troubles)}")


def test_files_and_topics_of_two_clusters_agree_after_every_death(lives: Lives) -> None:
    lives.run(10)


@pytest.mark.parametrize("setting", [("per_task", 1)])
def test_three_sinks_agree_where_tasks_commit_by_themselves(lives: Lives) -> None:
    lives.run(5)


@pytest.mark.torture
@pytest.mark.parametrize("setting", [("two_phase", 1), ("two_phase", 2), ("per_task", 1)])
def test_three_sinks_agree_after_hundreds_of_deaths(lives: Lives) -> None:
    lives.run(int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "200")))
