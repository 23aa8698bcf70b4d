"""The seed story in SQL under crashes: windows of a topic into upserts, a topic and files, as one job of one decision a checkpoint."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from poundlock.cli.main import main
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.sink.transactions import Transactions
from poundlock.failpoints import Failpoint
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.kafka_tables import bounded, kafka_table
from support.lives import Lives, failpoint_setting, offsets_read

pytestmark = [pytest.mark.crash, pytest.mark.services]

PARTITIONS = 3
BEGIN = datetime(2026, 1, 5, 23, 58)
STATEMENTS = """
CREATE VIEW counts AS
SELECT window_start, page, COUNT(*) AS n, SUM(amount) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, page;

EXECUTE STATEMENT SET BEGIN
INSERT INTO newest SELECT page, MAX(window_start), SUM(n), SUM(total) FROM counts GROUP BY page;
INSERT INTO windows SELECT window_start, page, n, total FROM counts;
INSERT INTO files SELECT window_start, page, n, total, DATE_FORMAT(window_start, 'yyyy-MM-dd') FROM counts;
END
"""
Count = tuple[str, str, int, int]


class Story:
    """The script, its topics and files, and what was produced for it."""

    def __init__(self, root: Path, broker: EmbeddedKafka, name: str) -> None:
        self.root, self.broker, self.name = root, broker, name
        self.hit, self.files = root / "hit", root / "files"
        self.checkpoints = root / "checkpoints/story"  # of each job of a script in a folder of its name
        self.expected: Counter[Count] = Counter()
        self.produced = 0
        for topic in (f"{name}-in", f"{name}-newest", f"{name}-windows"):
            broker.create_topic(topic, PARTITIONS)
        script = root / "story.sql"
        script.write_text(self._script())
        self.lives = Lives(script, environment={}, folder=root, arguments=["-p", "2"], command="sql", patience_s=900.0)
        self.transactions = Transactions(broker.bootstrap_servers, KafkaSecurity().kafka_python)

    def _script(self) -> str:
        once = {"sink__delivery_guarantee": "exactly-once", "sink__transactional_id_prefix": self.name}
        most = {"source__max_records_per_checkpoint": "300"}
        keyed = {"key__format": "json", "value__format": "json"}
        return (
            "SET 'execution.checkpointing.interval' = '0 s';\nSET 'pipeline.name' = 'story';\n"
            f"SET 'execution.checkpointing.dir' = '{self.checkpoints.parent}';\n"
            + kafka_table(
                self.broker, "events", "page STRING, amount INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
                f"{self.name}-in", **bounded(format="json", **most),
            )
            + kafka_table(
                self.broker, "newest", "page STRING, latest TIMESTAMP(3), n BIGINT, total BIGINT, PRIMARY KEY (page) NOT ENFORCED",
                f"{self.name}-newest", connector="upsert-kafka", **keyed, **once,
            )
            + kafka_table(
                self.broker, "windows", "window_start TIMESTAMP(3), page STRING, n BIGINT, total BIGINT", f"{self.name}-windows",
                format="json", key__format="raw", key__fields="page", **once,
            )
            + "CREATE TABLE files (window_start TIMESTAMP(3), page STRING, n BIGINT, total BIGINT, `day` STRING) PARTITIONED BY (`day`) "
            f"WITH ('connector' = 'filesystem', 'path' = '{self.files}', 'format' = 'json');"
            + STATEMENTS
        )  # fmt: skip

    def produce(self, count: int) -> None:
        """Produce events of five pages, two hundred to ten seconds; each is at most two seconds behind those before it."""
        dice = random.Random(self.produced)
        counts: dict[tuple[str, str], list[int]] = {}
        records = []
        for number in range(self.produced, self.produced + count):
            at = BEGIN + timedelta(milliseconds=50 * number - dice.randrange(2_000))
            page, amount = f"p{dice.randrange(5)}", dice.randrange(100)
            event = {"page": page, "amount": amount, "ts": f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"}
            records.append(Record(json.dumps(event), partition=number % PARTITIONS))
            start = at - timedelta(seconds=at.second % 10, microseconds=at.microsecond)
            counted = counts.setdefault((str(start), page), [0, 0])
            counted[0] += 1
            counted[1] += amount
        self.broker.produce(f"{self.name}-in", records, enable_idempotence=True)
        self.produced += count
        self.expected = Counter((start, page, n, total) for (start, page), (n, total) in counts.items())

    def read(self) -> int:
        """Return how many records decided checkpoints have read."""
        return offsets_read(LocalStorage(str(self.checkpoints))) if (self.checkpoints / "ledger").exists() else 0

    def assert_exact(self) -> None:
        """Assert that topics and files have every window once, that the newest sums are those of all windows, and that nothing is left open."""
        assert self.lives.left_behind() == []
        records = self.broker.read(f"{self.name}-windows")
        assert _counts([record.value or b"" for record in records]) == self.expected
        assert all(record.key == json.loads(record.value or b"")["page"].encode() for record in records)
        lines = []
        for path in self.files.rglob("*"):
            if path.is_file() and not path.name.startswith((".", "_")):
                written = path.read_bytes().splitlines()
                assert all(json.loads(line)["window_start"][:10] == path.parent.name.removeprefix("day=") for line in written)  # fmt: skip
                lines += written
        assert _counts(lines) == self.expected
        assert not [path for path in self.files.rglob(".*") if path.is_file()], "no hidden file is left"
        assert self._newest() == self._sums()
        assert [tid for tid in self.transactions.ongoing() if tid.startswith(f"{self.name}.")] == []
        assert main(["audit", str(self.checkpoints)]) == 0

    def _newest(self) -> dict[str, tuple[str, int, int]]:
        """Return the last upsert of each page; none may say less than one before it."""
        made: dict[str, tuple[str, int, int]] = {}
        for record in self.broker.read(f"{self.name}-newest"):
            row = json.loads(record.value or b"")
            now = (row["latest"], row["n"], row["total"])
            assert all(a <= b for a, b in zip(made.get(row["page"], now), now, strict=True)), (
                "an older upsert came later"
            )
            made[row["page"]] = now
        return made

    def _sums(self) -> dict[str, tuple[str, int, int]]:
        sums: dict[str, tuple[str, int, int]] = {}
        for start, page, n, total in self.expected:
            latest, m, most = sums.get(page, ("", 0, 0))
            sums[page] = (max(start, latest), m + n, most + total)
        return sums


def _counts(lines: list[bytes] | list[str]) -> Counter[Count]:
    rows = [json.loads(line) for line in lines]
    return Counter((row["window_start"], row["page"], row["n"], row["total"]) for row in rows)


@pytest.fixture
def story(tmp_path: Path, crash_broker: EmbeddedKafka) -> Iterator[Story]:
    made = Story(tmp_path, crash_broker, f"story-{random.randrange(1 << 32):08x}")
    with made.lives:
        yield made


def test_killed_while_it_commits(story: Story) -> None:
    story.produce(900)
    setting = failpoint_setting("kill", story.hit, times=3, points=[Failpoint.SINK_COMMITTING])
    assert story.lives.run(POUNDLOCK_FAILPOINTS=setting) == [-9, 0]
    story.assert_exact()


@pytest.mark.torture
def test_killed_at_every_failpoint(story: Story) -> None:
    story.produce(20_000)
    story.lives.run(most=40, POUNDLOCK_FAILPOINTS=failpoint_setting("kill", story.hit, times=3))
    assert {point.value for point in Failpoint} == {path.name for path in story.hit.iterdir()}
    story.assert_exact()


@pytest.mark.torture
def test_many_random_kills(story: Story) -> None:
    """The driver is killed at any moment behind the first few decisions of each life."""
    kills = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "50")) // 2
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or random.randrange(1_000_000))
    print(f"seed {seed}: {kills} kills")
    dice, killed = random.Random(seed), 0
    story.produce(2_000 * kills)
    for _ in range(kills):
        job, wanted = story.lives.start(), story.read() + 300 * dice.randrange(1, 4)
        while job.exit_code is None and story.read() < wanted:
            time.sleep(0.1)
        time.sleep(dice.uniform(0.0, 1.0))
        killed += job.kill()
        assert job.exit_code in (-9, 0), job.log_tail()
    assert story.lives.run() == [0]
    assert killed > kills // 2
    story.assert_exact()
