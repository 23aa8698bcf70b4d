"""Jobs from a real broker through the whole of it: formats and placements, an idle stream, new partitions, a topic re-created."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poundlock import EventTimeBucketAssigner, FileSink, Job, KafkaSink, KafkaSource, RollingPolicy
from poundlock.checkpoint.identity import read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.interactive.replay import replay
from poundlock.driver.progress import Progress, StopRequest
from poundlock.errors import SourceGoneError
from poundlock.storage import open_storage
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = [pytest.mark.services, pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

TYPED: dict[str, Any] = {"format": "json", "schema": "n bigint, ts double"}


def settings(tmp_path: Path) -> Any:
    return load_settings([f"state_dir={tmp_path}/state", "master=local[2]", "driver_memory=1g"])


def event(n: int) -> bytes:
    return b'{"n":%d,"ts":%d.25}' % (n, 1545184226 + n)


def lines(folder: Path) -> list[bytes]:
    files = [p for p in folder.rglob("*") if p.is_file() and not any(x[0] == "." for x in p.relative_to(folder).parts)]
    return [line for path in sorted(files) for line in path.read_bytes().splitlines()]


def test_formats_and_placements(tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> None:
    one, two = new_topic(2), new_topic()
    kafka_broker.produce(one, [Record(event(n), key=b"k%d" % n, partition=n % 2) for n in range(100)])
    kafka_broker.produce(one, [Record(None, key=b"gone", partition=0), Record(b'{"n":1,\n"ts":7e8}', partition=1)])
    kafka_broker.produce(two, [event(1000), b"broken", b'{"n":"x","ts":1}'])

    def source(topics: Any, **more: Any) -> KafkaSource:
        return KafkaSource(bootstrap_servers=kafka_broker.bootstrap_servers, topics=topics, end="latest", **more)

    job = Job("formats", checkpoint_interval="0 s", dead_letters=f"{tmp_path}/dead")
    raw = job.from_source(source([one, two]), name="raw")
    day = EventTimeBucketAssigner("ts", zone="UTC", earliest="1990-01-01")
    raw.sink_to(FileSink(f"{tmp_path}/raw", row="value", bucket=day), name="raw-files")
    typed = job.from_source(source(one, metadata={"key": "key", "at": "offset"}, **TYPED), name="typed")
    mapped = typed.map(
        lambda r: {"n": r["n"], "key": r["key"].decode(), "at": r["at"]} if r["key"] else {},
        schema="n bigint, key string, at bigint",
    )
    mapped.sink_to(FileSink(f"{tmp_path}/typed", format="json"), name="typed-files")
    to = new_topic(2)
    mapped.sink_to(
        KafkaSink(
            kafka_broker.bootstrap_servers, to, format="json", key="key", client_options={"message.max.bytes": 1000}
        ),
        name="messages",
    )
    spread = job.from_source(source([one, two], metadata={"topic": "topic"}, **TYPED), name="spread")
    spread.where("n >= 90").select("n", "topic").sink_to(
        FileSink(f"{tmp_path}/spread", format="json"), name="spread-files"
    )

    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    # of raw JSON a line break between tokens becomes a space
    expected = Counter([*(event(n) for n in [*range(100), 1000]), b'{"n":1, "ts":7e8}'])
    assert Counter(lines(tmp_path / "raw")) == expected
    assert {p.name for p in (tmp_path / "raw").iterdir() if p.is_dir()} == {"dt=19920307", "dt=20181219"}
    found = [json.loads(line) for line in lines(tmp_path / "typed")]
    assert [r for r in found if r["n"] is not None] != []
    assert {(r["n"], r["key"], r["at"]) for r in found if r["n"] is not None} == {
        (n, f"k{n}", n // 2) for n in range(100)
    }
    rows = [json.loads(line) for line in lines(tmp_path / "spread")]
    assert sorted((r["n"], r["topic"]) for r in rows) == [*((n, one) for n in range(90, 100)), (1000, two)]

    dead = [json.loads(line) for line in lines(tmp_path / "dead")]
    places = Counter((letter["source"], letter["topic"], letter["partition"], letter["offset"]) for letter in dead)
    tombstone, broken, text = (one, 0, 50), (two, 0, 1), (two, 0, 2)
    assert set(places.values()) == {1}
    assert {p[1:] for p in places if p[0] == "raw"} == {tombstone, broken, text}
    assert {p[1:] for p in places if p[0] == "typed"} == {tombstone}
    assert {p[1:] for p in places if p[0] == "spread"} == {tombstone, broken, text}

    ends = kafka_broker.end_offsets(to)
    identity = read_identity(open_storage(f"{tmp_path}/state/checkpoints/formats"))
    assert identity is not None
    report = replay(job, identity, 0, settings=settings(tmp_path), show=1)
    assert report.differences == []
    messages = report.sinks["messages"]
    assert messages.now == messages.committed
    assert messages.now.wrote is not None
    assert messages.now.wrote.rows == messages.now.counts.written == 101
    assert "key" in json.loads(messages.shown[0])
    assert report.rows_read == {"raw": (105, 105), "typed": (102, 102), "spread": (105, 105)}
    assert kafka_broker.end_offsets(to) == ends, "nothing is sent"

    kafka_broker.delete_records(one, {1: 4})
    with pytest.raises(SourceGoneError, match=f"'{one}' partition 1: offsets 0 to 4 "):
        replay(job, identity, 0, settings=settings(tmp_path))
    kafka_broker.delete_topic(one)
    kafka_broker.create_topic(one, 2)
    kafka_broker.produce(one, [Record(event(n), partition=n % 2) for n in range(200)])
    with pytest.raises(SourceGoneError, match=f"'{one}' is not the one this checkpoint has read"):
        replay(job, identity, 0, settings=settings(tmp_path))


def test_an_idle_stream_new_partitions_and_a_topic_that_was_recreated(
    tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    kafka_broker.produce(topic, [event(n) for n in range(50)])
    out = tmp_path / "out"

    def job() -> Job:
        job = Job("idle", checkpoint_interval="0 s", on_error="skip")
        rows = job.from_source(
            KafkaSource(bootstrap_servers=kafka_broker.bootstrap_servers, topics=topic), name="events"
        )
        rolling = RollingPolicy(every="1 s", size="1 GB", inactivity="1 h")
        rows.sink_to(FileSink(str(out), row="value", rolling=rolling), name="files")
        return job

    stop, added = StopRequest(), []

    def watch(progress: Progress) -> None:
        if not added and len(lines(out)) == 50:  # no record came after these, and no checkpoint either
            added.append(progress.checkpoint)
            kafka_broker.add_partitions(topic, 2)
            kafka_broker.produce(topic, [Record(event(n), partition=1) for n in range(50, 60)])
        if len(lines(out)) == 60:
            stop.stop()

    ended = run(job(), settings=settings(tmp_path), on_progress=watch, stop=stop)
    assert ended.state == "FINISHED"
    assert sorted(lines(out)) == sorted(event(n) for n in range(60))

    kafka_broker.produce(topic, [Record(event(60), partition=1)])
    said: list[str] = []
    again = StopRequest()

    def until_read(progress: Progress) -> None:
        said.append(progress.message)
        if progress.rows_read:
            again.stop()

    assert run(job(), settings=settings(tmp_path), on_progress=until_read, stop=again).state == "FINISHED"
    assert sorted(lines(out)) == sorted(event(n) for n in range(61))
    restored = next(text for text in said if "restored state" in text)
    assert f"KafkaTopicPartition{{topic='{topic}', partition=0}}=50" in restored
    assert f"KafkaTopicPartition{{topic='{topic}', partition=1}}=10" in restored

    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    kafka_broker.produce(topic, [Record(event(n), partition=n % 2) for n in range(200)])
    with pytest.raises(SourceGoneError, match=topic):
        run(job(), settings=settings(tmp_path))
    assert len(lines(out)) == 61


@pytest.mark.parametrize("limit", ["400 KB", None])
def test_checkpoints_of_wide_records_are_bounded_by_bytes(
    tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: Callable[..., str], limit: str | None
) -> None:
    """Narrow records, then wide ones, by key through an exchange; without the limit one checkpoint has all of them."""
    topic, narrow, wide = new_topic(2), 2_000, 100
    texts = [str(n).encode() for n in range(narrow)] + [
        (b"%d" % n).ljust(20_000, b".") for n in range(narrow, narrow + wide)
    ]
    kafka_broker.produce(topic, [Record(text, partition=n % 2) for n, text in enumerate(texts)], compression_type="lz4")
    job = Job("wide", checkpoint_interval="0 s")
    source = KafkaSource(
        bootstrap_servers=kafka_broker.bootstrap_servers, topics=topic, end="latest", max_bytes_per_checkpoint=limit
    )
    rows = job.from_source(source, name="events").rebalance()
    rows.sink_to(FileSink(f"{tmp_path}/out", row="value"), name="files")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    assert Counter(lines(tmp_path / "out")) == Counter(texts)

    storage = open_storage(f"{tmp_path}/state/checkpoints/wide")
    read = [decision.sources["events"] for decision in Ledger(storage) if decision.occasion == "checkpoint"]
    sizes = [span.bytes or 0 for span in read]
    assert sum(sizes) == sum(map(len, texts))
    if limit is None:
        assert len(sizes) == 1
        return
    assert 5 <= len(sizes) <= 20
    assert max(sizes) <= 500_000
    identity = read_identity(storage)
    assert identity is not None
    report = replay(job, identity, 1, settings=settings(tmp_path))
    assert report.differences == []
    assert report.rows_read["events"][0] == read[1].rows
