"""Spark's own connector reads what KafkaSource tells it to, from a real broker."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock.connectors.kafka.source import KafkaSource
from poundlock.errors import SourceGoneError
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = [pytest.mark.services, pytest.mark.engine]


class Spark:
    """The other end of kafka_spark_child.py."""

    def __init__(self, log: Path) -> None:
        self.log = log
        child = Path(__file__).with_name("kafka_spark_child.py")
        with log.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err
            )

    def __call__(self, method: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(base64.b64encode(pickle.dumps((method, arguments))) + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.log.read_text()[-3000:]
        answer = pickle.loads(base64.b64decode(line))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait_for_rows(self, name: str, count: int) -> list[dict[str, Any]]:
        """Return all rows of a running query as soon as there are so many."""
        end = time.monotonic() + 180
        while True:
            rows = [row for batch in self("rows", name) for row in batch]
            if len(rows) >= count or time.monotonic() > end:
                return rows
            time.sleep(0.1)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    spark = Spark(tmp_path_factory.mktemp("spark") / "log")
    yield spark
    assert spark.process.stdin is not None
    spark.process.stdin.close()
    spark.process.wait(60)


@pytest.fixture
def source(kafka_broker: EmbeddedKafka) -> Callable[..., KafkaSource]:
    return lambda **given: KafkaSource(**{"bootstrap_servers": kafka_broker.bootstrap_servers} | given)


def test_all_kinds_of_records_once(
    kafka_broker: EmbeddedKafka,
    spark: Spark,
    source: Callable[..., KafkaSource],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    records = [Record(f"v{i}", key=f"k{i}", partition=i % 2, timestamp_ms=1545184226432 + i) for i in range(20)]
    records += [Record(None, key="gone", partition=0), Record(b"", partition=1)]
    records += [Record(b"\xff\x00", partition=1, headers=[("h", b"1"), ("n", None)])]
    kafka_broker.produce(topic, records, compression_type="lz4")
    producer = kafka_broker.producer(transactional_id=f"x-{topic}")
    producer.init_transactions(30)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        end(30)
    reading = source(
        topics=topic, include_headers=True, metadata={"kafka_time": "timestamp"}, max_records_per_checkpoint=8
    ).bind(job="j", name="n")
    spark("start", "all", reading.spark_read(None), str(tmp_path / "ck"), True)
    assert spark("wait", "all") is None
    batches = spark("rows", "all")
    assert len(batches) >= 4  # the limit was kept
    rows = sorted((row for batch in batches for row in batch), key=lambda r: (r["partition"], r["offset"]))
    expected = sorted((r for r in records), key=lambda r: r.partition or 0)
    values = [r.value.encode() if isinstance(r.value, str) else r.value for r in expected]
    values.insert(11, b"committed")
    assert [row["value"] for row in rows] == values
    assert {row["topic"] for row in rows} == {topic}
    assert rows[0]["key"] == b"k0"
    assert rows[0]["timestamp_type"] == "CreateTime"
    assert rows[0]["timestamp"].isoformat() == rows[0]["kafka_time"].isoformat() == "2018-12-19T01:50:26.432000"
    assert rows[0]["headers"] is None
    assert rows[-1]["headers"] == [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    position = spark("position", "all")
    assert position == {topic: {"0": kafka_broker.end_offsets(topic)[0], "1": 12}}
    end = time.monotonic() + 300
    while (lag := reading.lag(position)) is None and time.monotonic() < end:
        time.sleep(0.1)  # on a busy machine the first answer may not come within the 2 s that lag gives it
    assert lag == 0
    reading.close()


def test_new_partitions_while_running_and_going_on_without_sparks_checkpoint(
    kafka_broker: EmbeddedKafka,
    spark: Spark,
    source: Callable[..., KafkaSource],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["old"])
    reading = source(topics=topic, start="latest").bind(job="j", name="n")
    spark("start", "grow", reading.spark_read(None), str(tmp_path / "1"), False)
    kafka_broker.produce(topic, ["a"])
    assert [r["value"] for r in spark.wait_for_rows("grow", 1)] == [b"a"]
    kafka_broker.add_partitions(topic, 2)
    kafka_broker.produce(topic, [Record("b", partition=1), Record("c", partition=0)])
    assert sorted(r["value"] for r in spark.wait_for_rows("grow", 3)) == [b"a", b"b", b"c"]
    spark("stop", "grow")
    kafka_broker.produce(topic, [Record("d", partition=1)])
    kafka_broker.add_partitions(topic, 3)
    kafka_broker.produce(topic, [Record("e", partition=2)])
    restored = {topic: {"0": 3, "1": 1}}
    spark("start", "again", reading.spark_read(restored), str(tmp_path / "2"), True)
    assert spark("wait", "again") is None
    assert sorted(r["value"] for batch in spark("rows", "again") for r in batch) == [b"d", b"e"]
    reading.close()


def test_a_bounded_source_reads_to_its_end_only(
    kafka_broker: EmbeddedKafka,
    spark: Spark,
    source: Callable[..., KafkaSource],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    kafka_broker.produce(topic, [Record(str(i), partition=i % 2) for i in range(10)])
    reading = source(topics=topic, start={f"{topic}:0": 1}, end="latest").bind(job="j", name="n")
    read = reading.spark_read(None)
    kafka_broker.add_partitions(topic, 3)
    kafka_broker.produce(topic, [Record("late", partition=p) for p in range(3)])
    # Partition 2 came between the look-up and the start of the query; the job's next start names it.
    spark("start", "early", read, str(tmp_path / "0"), True)
    failed = spark("wait", "early")
    assert failed is not None
    assert "partitions were added" in str(reading.explain_error(failed))
    reading = source(
        topics=topic, start={f"{topic}:0": 1}, end={f"{topic}:0": 5, f"{topic}:1": 5, f"{topic}:2": 0}
    ).bind(job="j", name="n")
    spark("start", "bounded", reading.spark_read(None), str(tmp_path / "1"), True)
    assert spark("wait", "bounded") is None
    values = sorted(int(r["value"]) for batch in spark("rows", "bounded") for r in batch)
    assert values == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert reading.finished(spark("position", "bounded"))
    reading.close()


def test_expired_records_fail_the_query_and_are_explained(
    kafka_broker: EmbeddedKafka,
    spark: Spark,
    source: Callable[..., KafkaSource],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a", "b"])
    reading = source(topics=topic).bind(job="j", name="n")
    read = reading.spark_read(None)
    spark("start", "first", read, str(tmp_path / "ck"), True)
    assert spark("wait", "first") is None
    kafka_broker.produce(topic, ["c", "d", "e"])
    kafka_broker.delete_records(topic, {0: 4})
    spark("start", "second", read, str(tmp_path / "ck"), True)
    error = reading.explain_error(spark("wait", "second"))
    assert isinstance(error, SourceGoneError)
    assert f"topic '{topic}' partition 0: offsets 2 to 5 were not read yet and are gone" in error.what
    assert error.participant == "n"
    assert spark("rows", "second") == []
    reading.close()
