"""Files on S3, rows in PostgreSQL and records in Kafka under one decision, killed again and again: all three have the input once."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink.transactions import Transactions
from poundlock.failpoints import Failpoint
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.postgres import EmbeddedPostgres
from support.lives import DRIVERS, Lives, failpoint_setting
from support.stores import Store
from support.torture import kept_ahead, tortured

pytestmark = [pytest.mark.crash, pytest.mark.services]

ON_S3 = pytest.mark.parametrize("store", ["s3"], indirect=True)
JOB = Path(__file__).parent / "jobs/three_sinks.py"
# Each is passed by the driver, or by a task before anything is decided: every one ends a life or an attempt.
DEATHS = [
    Failpoint.SINK_WRITING,
    Failpoint.SINK_PREPARED,
    Failpoint.PREPARE_VERIFIED,
    Failpoint.DECISION_RECORDED,
    Failpoint.SINK_COMMITTING,
    Failpoint.SINK_COMMITTED,
    Failpoint.CHECKPOINT_DONE,
]


class ThreeSinks:
    """The job, where its three sinks write, and what was put in."""

    def __init__(self, root: Path, store: Store, broker: EmbeddedKafka, server: EmbeddedPostgres, **more: str) -> None:
        self.root, self.store, self.broker, self.server = root, store, broker, server
        self.input = root / "in"
        self.input.mkdir()
        self.name = f"three_{random.randrange(1 << 32):08x}"
        self.produced: list[str] = []
        broker.create_topic(self.name, 3)
        server.execute(f"CREATE TABLE {self.name} (value text NOT NULL)")
        environment = {
            "CRASH_IN": str(self.input),
            "CRASH_FILES": store.at("files"),
            "CRASH_CHECKPOINTS": str(root / "checkpoints"),
            "CRASH_DSN": server.dsn,
            "CRASH_TABLE": self.name,
            "CRASH_SERVERS": broker.bootstrap_servers,
            "CRASH_TOPIC": self.name,
            **store.environment,
            **more,
        }
        self.lives = Lives(JOB, environment=environment, folder=root, arguments=store.arguments)
        self.transactions = Transactions(broker.bootstrap_servers, KafkaSecurity().kafka_python)

    def produce(self, count: int) -> None:
        """Put one more file with so many lines into the input folder, whole at once."""
        first = len(self.produced)
        values = [f"{i:09d}" for i in range(first, first + count)]
        hidden = self.input / f".{first:09d}"
        hidden.write_text("".join(f"{value}\n" for value in values))
        hidden.rename(self.input / f"{first:09d}.log")
        self.produced += values

    def rows(self) -> Counter[str]:
        return Counter(value for (value,) in self.server.execute(f"SELECT value FROM {self.name}"))

    def waiting(self) -> int:
        """Return how many lines are not in the table yet."""
        ((rows,),) = self.server.execute(f"SELECT count(*) FROM {self.name}")
        return len(self.produced) - int(rows)

    def caught_up(self) -> bool:
        return self.waiting() <= 0

    def assert_agree(self) -> None:
        """Assert that each of the three has every line once, and that nothing is left prepared, open or hidden."""
        assert self.lives.left_behind() == []
        wanted = Counter(self.produced)
        folder = self.store.fetch("files", self.root)
        paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        assert [str(path) for path in paths if any(part.startswith(".") for part in path.parts)] == []
        assert self.store.open_uploads("files") == []
        found = {
            "files": Counter(line for path in paths for line in (folder / path).read_text().splitlines()),
            "table": self.rows(),
            "topic": Counter(r.value.decode() for r in self.broker.read(self.name) if r.value is not None),
        }
        wrong = {
            name: f"lost {(wanted - lines).total()}, doubled {(lines - wanted).total()}"
            for name, lines in found.items()
            if lines != wanted
        }
        assert wrong == {}
        assert self.server.execute("SELECT gid FROM pg_prepared_xacts") == []
        assert [tid for tid in self.transactions.ongoing() if tid.startswith(self.name)] == []


@pytest.fixture
def three(
    tmp_path: Path, store: Store, crash_broker: EmbeddedKafka, postgres_server: EmbeddedPostgres
) -> Iterator[ThreeSinks]:
    made = ThreeSinks(tmp_path, store, crash_broker, postgres_server)
    with made.lives:
        yield made


@ON_S3
@pytest.mark.parametrize(
    "deaths", [pytest.param(DEATHS[2:4], id="some"), pytest.param(DEATHS, id="every", marks=pytest.mark.torture)]
)
def test_killed_at_the_steps_of_a_checkpoint(three: ThreeSinks, deaths: list[Failpoint]) -> None:
    three.produce(10_000)
    codes = three.lives.run(POUNDLOCK_FAILPOINTS=failpoint_setting("kill", three.root / "hit", times=2, points=deaths))
    assert {path.name for path in (three.root / "hit").iterdir()} == {point.value for point in deaths}
    assert codes.count(-9) == len(DRIVERS.intersection(deaths)), codes
    three.assert_agree()


@pytest.mark.torture
@ON_S3
def test_the_server_is_killed_while_the_job_runs(three: ThreeSinks) -> None:
    three.produce(20_000)
    job = three.lives.start()
    for _ in range(2):
        three.lives.checkpoints(job, 2)
        three.server.restart()
    assert three.lives.end(job) == 0
    three.assert_agree()


@pytest.mark.torture
@pytest.mark.parametrize("store", ["s3", "minio"], indirect=True)
@pytest.mark.parametrize("kills", [int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "50"))])
def test_many_random_kills(
    tmp_path: Path, store: Store, crash_broker: EmbeddedKafka, postgres_server: EmbeddedPostgres, kills: int
) -> None:
    three = ThreeSinks(tmp_path, store, crash_broker, postgres_server, CRASH_WATCH="1")
    produce = kept_ahead(lambda: three.produce(60), three.waiting, most=1_800)
    with three.lives:
        three.produce(500)
        job = three.lives.until(three.caught_up, tortured(three.lives.start, produce, kills))
        assert three.lives.stop(job) == 0
        three.assert_agree()
