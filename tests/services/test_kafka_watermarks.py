"""Watermarks per partition of a real topic: a slow partition loses nothing, a new one is waited for, an idle one is not.

Beside the job runs a query with Spark's own watermark, which loses what the slow partition brings.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from poundlock import FileSink, Job, KafkaSource, NoRestart, RollingPolicy, TumblingEventTimeWindows, WatermarkStrategy
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("shared_jvm")]

BASE = 1_545_184_220_000  # a multiple of the window
STRATEGY = WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at")


class Life:
    """One life of the job, in a thread of this process."""

    def __init__(self, folder: Path, source: KafkaSource, strategy: WatermarkStrategy) -> None:
        job = Job(
            "partitions",
            checkpoint_interval="0 s",
            on_error="fail",
            restart=NoRestart(),
            spark={"spark.sql.shuffle.partitions": "1"},
        )
        rows = job.from_source(source, strategy, name="clicks")
        counts = rows.window_all(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", name="counts")
        counts.select("unix_millis(window_start) as start", "n").sink_to(
            FileSink(str(folder / "out"), format="json", rolling=RollingPolicy(on_checkpoint=True)), name="out"
        )
        settings = load_settings([f"state_dir={folder}/state", f"checkpoint_dir={folder}/cp", "master=local[2]"])
        self._folder = folder
        self._stop = StopRequest()
        self.progress = Progress("INITIALIZING")
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(job, settings), daemon=True)
        self._thread.start()

    def _run(self, job: Job, settings: Any) -> None:
        def note(progress: Progress) -> None:
            self.progress = progress

        try:
            run(job, settings=settings, stop=self._stop, on_progress=note)
        except BaseException as error:
            self._failure = error

    def until(self, reached: Callable[[], bool], patience_s: float = 400) -> None:
        deadline = time.monotonic() + patience_s
        while not reached():
            assert self._failure is None, self._failure
            assert time.monotonic() < deadline, (self.progress, self.written())
            time.sleep(0.05)

    def written(self) -> Counter[int]:
        """Return window (s after BASE) -> rows in it."""
        found: Counter[int] = Counter()
        for path in (self._folder / "out").rglob("part-*"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                window = (row["start"] - BASE) // 1000
                assert window not in found, "a window is written once"
                found[window] = row["n"]
        return found

    def end(self, *, stop: bool = True) -> None:
        if stop:
            self._stop.stop()
        self._thread.join(400)
        assert not self._thread.is_alive(), self.progress
        assert self._failure is None, self._failure


def test_a_slow_partition_a_new_one_and_an_idle_one(
    kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    kafka, topic = kafka_broker, new_topic(2)
    sent: Counter[int] = Counter()

    def send(partition: int, *seconds: float) -> None:
        sent.update(int(s // 10) * 10 for s in seconds)
        values = [json.dumps({"at": BASE + round(s * 1000)}).encode() for s in seconds]
        kafka.produce(topic, [Record(value, partition=partition) for value in values])
        lines = tmp_path / "same" / f"{sent.total()}.jsonl"
        lines.parent.mkdir(exist_ok=True)
        lines.with_name(f".{lines.name}").write_bytes(b"\n".join(values))
        lines.with_name(f".{lines.name}").rename(lines)

    def reading(end: str | None = None) -> KafkaSource:
        return KafkaSource(
            bootstrap_servers=kafka.bootstrap_servers, topics=topic, format="json", schema="at bigint", end=end
        )

    send(0, *range(100))
    send(1, *range(21))
    life = Life(tmp_path, reading(), STRATEGY)
    life.until(lambda: life.progress.watermark == BASE + 18_999)
    assert life.progress.held_by == f"{topic}-1 of clicks"
    # Spark's own watermark, over the same rows at the same moments.
    assert SparkSession._instantiatedSession is not None
    spark = SparkSession._instantiatedSession.newSession()
    rows = spark.readStream.text(str(tmp_path / "same"))
    timed = rows.selectExpr("timestamp_millis(bigint(get_json_object(value, '$.at'))) as at")
    control = timed.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds").alias("w")).count()
    query = control.writeStream.format("memory").queryName("sparks_own").outputMode("append").start()
    query.processAllAvailable()

    send(1, *range(21, 95))  # all of it is behind the other partition
    life.until(lambda: life.progress.watermark == BASE + 92_999)
    query.processAllAvailable()
    life.until(lambda: len(life.written()) == 9)
    kept = {row["w"]["start"].timestamp(): row["count"] for row in spark.table("sparks_own").collect()}
    query.stop()
    assert life.written() == dict.fromkeys(range(0, 90, 10), 20), "nothing of the slow partition is late"
    assert sum(kept.values()) < sum(life.written().values()), "Spark's own watermark drops what it brings"

    kafka.add_partitions(topic, 3)
    send(2, 94.5)
    # Partitions are looked up every two seconds; from when one is seen, it is waited for.
    life.until(lambda: life.progress.rows_read == sent.total())
    send(0, *range(100, 140))
    send(1, *range(95, 140))
    life.until(lambda: life.progress.watermark == BASE + 93_499)
    assert life.progress.held_by == f"{topic}-2 of clicks"
    assert life.progress.restarts == 0
    life.end()

    # Started again, the job finds nothing to read; the partition that says nothing is given up after a second.
    again = Life(tmp_path, reading(), STRATEGY.with_idleness("1 s"))
    again.until(lambda: len(again.written()) == 13)
    again.end()
    assert again.progress.watermark == BASE + 137_999
    assert again.written() == {window: n for window, n in sent.items() if window < 130}

    # With an end the source is at it already: nothing is read, and the end fires the window that is open.
    last = Life(tmp_path, reading(end="latest"), STRATEGY)
    last.end(stop=False)
    assert last.written() == sent
    assert last.progress.state == "FINISHED"


def test_a_partition_that_is_ahead_waits_for_the_slow_one(
    kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """One leaps by minutes, the other goes on by ten seconds a record; the ledger says what each checkpoint read of them."""
    topic = new_topic(2)
    at = [0, *range(500_000, 590_000, 10_000)], [*range(0, 600_000, 10_000)]
    for partition in range(2):
        records = [Record(json.dumps({"at": BASE + ms}), partition=partition) for ms in at[partition]]
        kafka_broker.produce(topic, records)
    job = Job("aligned", checkpoint_interval="0 s", on_error="fail", restart=NoRestart())
    source = KafkaSource(
        bootstrap_servers=kafka_broker.bootstrap_servers, topics=topic, format="json", schema="at bigint", end="latest",
        max_records_per_checkpoint=4,
    )  # fmt: skip
    aligned = WatermarkStrategy.monotonous(timestamp="at").with_watermark_alignment("g", "30 s")
    rows = job.from_source(source, aligned, name="clicks")
    rows.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    settings = load_settings([f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/cp", "master=local[2]"])
    assert run(job, settings=settings).state == "FINISHED"

    read, waited = [0, 0], 0
    for record in Ledger(LocalStorage(str(tmp_path / "cp"))):
        span = record.sources.get("clicks")
        if span is None or span.start == span.end:
            continue
        now = [span.end[topic][str(p)] - (span.start or {}).get(topic, {}).get(str(p), 0) for p in range(2)]
        if all(read) and read[0] < len(at[0]):
            ahead = at[0][read[0] - 1] - at[1][read[1] - 1]
            assert ahead <= 30_000 or not now[0], (read, now)
            waited += ahead > 30_000
        read = [read[p] + now[p] for p in range(2)]
    assert read == [len(at[0]), len(at[1])]
    assert waited > 3
    written = [json.loads(line)["at"] for path in (tmp_path / "out").rglob("part-*") for line in path.open()]
    assert sorted(written) == sorted(BASE + ms for ms in (*at[0], *at[1]))


def test_a_partition_that_has_ended_holds_nobody_back(
    kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The first ends at 480 s, and the second leaps from 490 s to 590 s: further than it may be ahead, were there anybody to wait for."""
    topic = new_topic(2)
    for partition, times in enumerate(([*range(0, 490_000, 10_000)], [*range(0, 500_000, 10_000), 590_000, 600_000])):
        records = [Record(json.dumps({"at": BASE + ms}), partition=partition) for ms in times]
        kafka_broker.produce(topic, records)
    job = Job("ended", checkpoint_interval="0 s", on_error="fail", restart=NoRestart())
    source = KafkaSource(
        bootstrap_servers=kafka_broker.bootstrap_servers, topics=topic, format="json", schema="at bigint", end="latest",
        max_records_per_checkpoint=20,
    )  # fmt: skip
    aligned = WatermarkStrategy.monotonous(timestamp="at").with_watermark_alignment("g", "30 s")
    job.from_source(source, aligned, name="clicks").sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
    settings = load_settings([f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/cp", "master=local[2]"])
    assert run(job, settings=settings).state == "FINISHED"
    written = [json.loads(line)["at"] for path in (tmp_path / "out").rglob("part-*") for line in path.open()]
    assert len(written) == 49 + 52
