"""The upgrade of Flink's article on Kafka to HDFS: run, cancel -s, change the code, run -s, stop --drain; every event once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = pytest.mark.services

JOB = """
from poundlock import EventTimeBucketAssigner, FileSink, Job, KafkaSink, KafkaSource, RollingPolicy

job = Job("etl", checkpoint_interval="200 ms", checkpoint_dir={checkpoints!r})
events = job.from_source(KafkaSource(bootstrap_servers={servers!r}, topics="article"), name="events"){more}
events.sink_to(KafkaSink({servers!r}, "upgraded"), name="copies")
events.sink_to(
    FileSink(
        {output!r},
        row="value",
        bucket=EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone={zone!r}),
        rolling=RollingPolicy(every="1 h", size="100 MB"),
    ),
    name="event_log",
)
"""
START_MS = 1_545_184_226_000


class Scene:
    """A job file that changes, and the command line."""

    def __init__(self, folder: Path, kafka: EmbeddedKafka) -> None:
        self.folder, self.kafka = folder, kafka
        self.output = folder / "out"
        self.produced: list[bytes] = []
        kafka.create_topic("article", 2)
        kafka.create_topic("upgraded", 2)

    def write(self, zone: str, more: str = "") -> None:
        (self.folder / "job.py").write_text(
            JOB.format(
                checkpoints=str(self.folder / "checkpoint"), servers=self.kafka.bootstrap_servers,
                output=str(self.output), zone=zone, more=more,
            )
        )  # fmt: skip

    def produce(self, count: int) -> None:
        first = len(self.produced)
        made = [
            json.dumps(
                {"timestamp": (START_MS + i * 1000) / 1000, "event": "odd" if i % 2 else "even", "n": i}
            ).encode()
            for i in range(first, first + count)
        ]
        self.produced += made
        self.kafka.produce("article", [Record(value, partition=i % 2) for i, value in enumerate(made)])

    def cli(self, *arguments: str, code: int = 0) -> str:
        done = self._done(*arguments, code=code)
        return done.stdout + done.stderr

    def _done(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "POUNDLOCK_STATE_DIR": str(self.folder / "state")}
        done = subprocess.run(
            [sys.executable, "-m", "poundlock", *arguments], cwd=self.folder, env=environment, capture_output=True,
            text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *arguments: str) -> str:
        said = self.cli("run", "-d", "job.py", *arguments)
        if "-s" in arguments:
            assert "Restored from savepoint" in said, "whoever starts it is told, not the log alone"
        return re.findall(r"JobID (\w+)", said)[-1]

    def await_rows(self, job: str, rows: int) -> None:
        deadline = time.monotonic() + 400
        # Where the job does not answer soon, what to do about it is on the other stream.
        while json.loads(self._done("info", job, "--json").stdout)["progress"]["rows_written"] < rows:
            assert time.monotonic() < deadline, self.cli("info", job)
            time.sleep(0.2)

    def seen(self) -> Counter[bytes]:
        files = (
            p
            for p in self.output.rglob("*")
            if p.is_file() and not any(x.startswith((".", "_")) for x in p.relative_to(self.output).parts)
        )
        return Counter(line for path in files for line in path.read_bytes().splitlines())

    def copied(self) -> Counter[bytes | None]:
        return Counter(record.value for record in self.kafka.read("upgraded"))


def saved(said: str) -> str:
    """Return the path of the savepoint that a command took."""
    assert "Savepoint completed. Path: " in said
    return said.partition("Savepoint completed. Path: ")[2].splitlines()[0]


@pytest.fixture
def scene(tmp_path: Path, kafka_broker: EmbeddedKafka) -> Iterator[Scene]:
    made = Scene(tmp_path, kafka_broker)
    yield made
    for job in json.loads(made.cli("list", "--json")):
        made.cli("cancel", job["jid"])


@pytest.mark.torture  # make test runs the same walk as it is told in examples/upgrade.md
def test_every_event_once_over_an_upgrade(scene: Scene) -> None:
    scene.write("UTC")
    scene.produce(1000)
    first = scene.start()
    scene.await_rows(first, 1000)
    side = saved(scene.cli("savepoint", "etl", "sp"))  # the job goes on
    scene.produce(500)
    scene.await_rows(first, 1500)
    path = saved(scene.cli("cancel", "-s", "sp", first[:8]))
    assert Path(path).name.startswith(f"savepoint-{first[:6]}-")
    assert scene.seen().total() == 0  # nothing was due, and what waited hidden is in the savepoint
    assert not [p for p in scene.output.rglob("*") if p.is_file()]

    assert f"{path}, with which it ended" in scene.cli("info", first)

    refused = scene.cli("run", "job.py", code=2)
    assert f"ended with the savepoint {path}" in refused

    scene.write("Asia/Shanghai", ".where(\"get_json_object(cast(value AS string), '$.event') = 'even'\")")
    second = scene.start("-s", path)
    assert second != first
    scene.produce(1000)
    scene.await_rows(second, 500)
    said = scene.cli("stop", "--drain", "--savepoint-path", "sp2", second)
    assert "Savepoint completed. Path: " in said
    log = scene.cli("logs", second)
    assert "Restored from savepoint" in log
    assert "completed checkpoint" in log
    assert f"{path}, with which it ended" not in scene.cli("info", first), "its folder is the next job's by now"
    assert "article-0" in log or "offset" in log
    even = [value for i, value in enumerate(scene.produced) if i < 1500 or b'"even"' in value]
    assert scene.seen() == Counter(even)
    assert not [p for p in scene.output.rglob(".*") if p.is_file()]
    assert scene.copied() == Counter(even)

    # The first savepoint is older than what is in the topic, and a topic cannot be cut.
    for way in ("refuse", "retract"):
        said = scene.cli("run", "job.py", "-s", side, "--on-newer-output", way, "-D", "checkpoint_dir=other", code=2)
        what, next = said.splitlines()
        assert "sink 'copies' has 1,000 records in topic 'upgraded' behind offset" in what
        assert next.startswith("Next: say --on-newer-output=keep")
    assert not (scene.folder / "other").exists()
    assert scene.copied() == Counter(even)
