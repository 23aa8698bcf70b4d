"""A driver that commits many transactions over several connections dies between any two of them; every row is there once, and none is left open."""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from poundlock import KafkaSink, PostgresSink
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink import transactions
from poundlock.connectors.postgres import connection
from poundlock.failpoints import Failpoint
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.postgres import EmbeddedPostgres
from support.forked_lives import KILLED
from support.postgres_rig import open_transactions
from support.transaction_lives import CHECKPOINTS, TASKS, TransactionJob

pytestmark = [pytest.mark.crash, pytest.mark.services]

BEGUN, KNOWN = Failpoint.SINK_COMMITTING, Failpoint.SINK_COMMITTED
Kill = tuple[Failpoint, int, Failpoint, int]
"""(where a life is killed, at the how manieth pass, where the next one is, at the how manieth)"""


class Target(Protocol):
    """Where a job writes: what only it writes to."""

    connections: int
    sink: Any

    def rows(self) -> Counter[str]:
        """Return the rows that everybody sees."""

    def open(self) -> int:
        """Return how many transactions of the job are neither committed nor aborted."""


class Topic:
    """A topic of Kafka."""

    connections = transactions._CONNECTIONS

    def __init__(self, broker: EmbeddedKafka) -> None:
        self._broker, self._name = broker, f"many-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self._name, 3)
        self.sink = KafkaSink(
            broker.bootstrap_servers, self._name, transactional_id_prefix=self._name, transaction_timeout="120 s"
        )
        self.sink.preflight()
        self._asked = transactions.transactions(broker.bootstrap_servers, KafkaSecurity())

    def rows(self) -> Counter[str]:
        return Counter((record.value or b"").decode() for record in self._broker.read(self._name))

    def open(self) -> int:
        return sum(tid.startswith(f"{self._name}.") for tid in self._asked.ongoing())


class Table:
    """A table of PostgreSQL."""

    connections = connection._CONNECTIONS

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server, self._name = server, f"many_{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE TABLE {self._name} (value text NOT NULL)")
        self.sink = PostgresSink(server.dsn, self._name)
        self.sink.preflight()

    def rows(self) -> Counter[str]:
        return Counter(value for (value,) in self._server.execute(f"SELECT value FROM {self._name}"))

    def open(self) -> int:
        return len(open_transactions(self._server))


@pytest.fixture(params=["kafka", "postgres"])
def make_target(request: pytest.FixtureRequest) -> Callable[[], Target]:
    if request.param == "kafka":
        broker = request.getfixturevalue("crash_broker")
        return lambda: Topic(broker)
    server = request.getfixturevalue("postgres_server")
    return lambda: Table(server)


def killed_twice(folder: Path, target: Target, kill: Kill) -> None:
    """Kill a job between two commits, its next life between two others, and let the third live to the end; assert that nothing shows of it."""
    folder.mkdir()
    point, times, again, times_again = kill
    why = f"killed at {point.value} {times}, then at {again.value} {times_again}"
    job = TransactionJob(folder, target.sink)
    assert job.live(f"{point.value}:kill@{times}") == KILLED, why
    number = (times - 1) % TASKS + 1  # of the commit in its decision
    least, most = left_by(point, number, target.connections)
    assert least <= target.open() <= most, why
    if job.live(f"{again.value}:kill@{times_again}") == KILLED:
        assert job.live() == 0, why
    assert target.rows() == job.expected, why
    assert target.open() == 0, why


def left_by(point: Failpoint, number: int, connections: int) -> tuple[int, int]:
    """Return how many transactions of a decision are open at least, and at most, when a driver dies at this commit of it."""
    if point is KNOWN:  # what comes after it may have been committed by another connection, or all of it
        return 0, TASKS - number
    # What comes before it has begun, and each of the other connections has one of these under way at most.
    return TASKS - (number - 1), TASKS - max(0, number - connections)


def assert_exact_after(kills: Iterator[Kill], root: Path, make_target: Callable[[], Target]) -> None:
    for place, kill in enumerate(kills):
        killed_twice(root / str(place), make_target(), kill)


def test_killed_between_two_of_many_commits(tmp_path: Path, make_target: Callable[[], Target]) -> None:
    """In the first decision, where some are committed and some are not, in the second, and in the recovery from each."""
    seed = int(os.environ.get("POUNDLOCK_CRASH_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}: POUNDLOCK_CRASH_SEED={seed} kills at the same commits")
    chance = random.Random(seed)
    firsts = [
        (BEGUN, chance.randrange(make_target().connections + 1, TASKS + 1)),
        (KNOWN, chance.randrange(1, TASKS)),
        (chance.choice((BEGUN, KNOWN)), chance.randrange(TASKS + 1, CHECKPOINTS * TASKS)),
    ]
    kills = ((*first, chance.choice((BEGUN, KNOWN)), chance.randrange(1, TASKS)) for first in firsts)
    assert_exact_after(kills, tmp_path, make_target)


@pytest.mark.torture
@pytest.mark.parametrize("point", [BEGUN, KNOWN], ids=lambda point: point.value)
def test_killed_between_any_two_of_many_commits(
    tmp_path: Path, make_target: Callable[[], Target], point: Failpoint
) -> None:
    """At every commit of both decisions, and the next life at the same one of the other decision as well, or of the same."""
    again = {BEGUN: KNOWN, KNOWN: BEGUN}[point]
    kills = ((point, n, again, (n * 5 - 1) % (TASKS * CHECKPOINTS) + 1) for n in range(1, TASKS * CHECKPOINTS + 1))
    assert_exact_after(kills, tmp_path, make_target)
