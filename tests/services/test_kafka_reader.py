"""The tasks' half of KafkaSource reads a real broker, range by range, as the driver planned it: every record once or an error."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.connectors.base import MeteredReader, ReaderContext, Split
from poundlock.connectors.kafka.offsets import from_json
from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.connectors.kafka.wire import fetch_protocol
from poundlock.connectors.kafka.wire.fetch_client import FetchClient
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_range, parse_kafka_id
from poundlock.errors import SourceGoneError, TerminalError, TransientError
from poundlock.formats.chunk import Batch, Chunk, Lines, Records
from poundlock.formats.reject import Reject
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = pytest.mark.services

T0 = 1545184226000
NewTopic = Callable[..., str]


class Reading:
    """A source read on without a checkpoint: what each call of `read` gives is what came since the last."""

    def __init__(self, folder: Path, broker: EmbeddedKafka, **given: Any) -> None:
        self.source = KafkaSource(**{"bootstrap_servers": broker.bootstrap_servers} | given)
        self.bound = self.source.bind(job="j", name="n")
        self.enumerator = self.bound.enumerator(LocalStorage(str(folder)))
        self.position = self.enumerator.initial()
        self.rejects: list[Reject] = []

    def splits(self) -> Sequence[Split]:
        end = self.enumerator.latest(self.position)
        splits = self.enumerator.splits(self.position, end)
        self.position = end
        return splits

    def chunks(self, splits: Sequence[Split] | None = None, **context: Any) -> list[Chunk]:
        reader = self.bound.reader(ReaderContext(reject=self.rejects.append, **context))
        return [chunk for split in (self.splits() if splits is None else splits) for chunk in reader.read(split)]

    def rows(self, splits: Sequence[Split] | None = None, **context: Any) -> list[dict[str, Any]]:
        return [row for chunk in self.chunks(splits, **context) for row in rows_of(chunk)]

    def values(self, splits: Sequence[Split] | None = None) -> list[Any]:
        return [row["value"] for row in self.rows(splits, columns=["value"])]


def rows_of(chunk: Chunk) -> list[dict[str, Any]]:
    if isinstance(chunk, Lines):
        return [{"value": chunk.row(i)} for i in range(len(chunk))]
    if isinstance(chunk, Records):
        return list(chunk.rows)
    chunk.batch.validate(full=True)
    return list(chunk.batch.to_pylist())


@pytest.fixture
def reading(kafka_broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def make(**given: Any) -> Reading:
        made.append(Reading(tmp_path / str(len(made)), kafka_broker, **given))
        return made[-1]

    yield make
    for one in made:
        one.enumerator.close()


Make = Callable[..., Reading]


# -- what records hold -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_kinds_of_records(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(2)
    records = [Record(f"v{i}", key=f"k{i}", partition=i % 2, timestamp_ms=T0 + i) for i in range(2000)]
    records += [Record(None, key="gone", partition=0), Record(b"", key=b"", partition=1)]
    records += [Record(b"\xff\x00", partition=1, headers=[("h", b"1"), ("n", None)])]
    kafka_broker.produce(topic, records, compression_type=codec)
    source = reading(topics=topic, include_headers=True, metadata={"kafka_time": "timestamp"})
    chunks = source.chunks()
    assert {chunk.batch.schema for chunk in chunks if isinstance(chunk, Batch)} == {source.source.schema()}
    rows = [row for chunk in chunks for row in rows_of(chunk)]
    expected = kafka_broker.read(topic)
    assert [(r["partition"], r["offset"], r["key"], r["value"]) for r in rows] == [
        (r.partition, r.offset, r.key, r.value) for r in expected
    ]
    assert {row["topic"] for row in rows} == {topic}
    assert {row["timestamp_type"] for row in rows} == {"CreateTime"}
    assert rows[0]["timestamp"].isoformat() == rows[0]["kafka_time"].isoformat() == "2018-12-19T01:50:26+00:00"
    assert [row["headers"] for row in rows if row["headers"]] == [
        [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    ]


def test_log_append_time(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1, message_timestamp_type="LogAppendTime")
    before = time.time()
    kafka_broker.produce(topic, [Record("a", timestamp_ms=T0), Record("b", timestamp_ms=T0)])
    rows = reading(topics=topic).rows()
    assert {row["timestamp_type"] for row in rows} == {"LogAppendTime"}
    assert all(before - 5 < row["timestamp"].timestamp() < time.time() + 5 for row in rows)


def test_lines_where_only_values_are_wanted(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, [Record(b"line %d" % i, key="k", headers=[("h", b"x")]) for i in range(3000)])
    source = reading(topics=topic)
    chunks = source.chunks(columns=["value"])
    assert {type(chunk) for chunk in chunks} == {Lines}
    assert [row["value"] for chunk in chunks for row in rows_of(chunk)] == [b"line %d" % i for i in range(3000)]
    assert chunks[-1].origin.at(len(chunks[-1]) - 1) == {"topic": topic, "partition": 0, "offset": 2999}
    kafka_broker.produce(topic, [Record(b"a\nb"), Record(None)])
    assert source.values() == [b"a\nb", None]


def test_the_bytes_of_values_are_counted(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(
        topic, [Record("abc", key="k"), Record(None), Record("{bad"), Record("de", headers=[("h", b"x")])]
    )
    source = reading(topics=topic, format="json", schema="a int")
    reader = source.bound.reader(ReaderContext(reject=source.rejects.append))
    assert isinstance(reader, MeteredReader)
    for split in source.splits():
        list(reader.read(split))
    assert reader.bytes_read == 9


def test_columns_that_are_wanted(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, [Record("v", key="k", timestamp_ms=T0)])
    (chunk,) = reading(topics=topic).chunks(columns=["offset", "key"])
    assert rows_of(chunk) == [{"key": b"k", "offset": 0}]


@pytest.mark.parametrize("want", ["batch", "records"])
def test_json_with_bad_records_and_metadata(
    kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic, want: str
) -> None:
    topic = new_topic(1)
    good = [Record(f'{{"user":"u{i}","n":{i}}}', key=f"k{i}") for i in range(5)]
    kafka_broker.produce(topic, [*good[:3], Record("{oops", key="bad"), *good[3:], Record(None, key="null")])
    more = {"format": "json", "schema": "user string, n bigint"}
    plain = reading(topics=topic, **more)
    assert plain.rows(want=want) == [{"user": f"u{i}", "n": i} for i in range(5)]
    assert [(r.value, r.where) for r in plain.rejects] == [
        (b"{oops", {"topic": topic, "partition": 0, "offset": 3}), (b"", {"topic": topic, "partition": 0, "offset": 6})
    ]  # fmt: skip
    beside = reading(topics=topic, metadata={"key": "key", "at": "offset"}, include_headers=True, **more)
    rows = beside.rows(want=want)
    assert rows[3] == {"user": "u3", "n": 3, "key": b"k3", "at": 4, "headers": None}
    assert list(rows[0]) == beside.source.schema().names
    assert [r.where["offset"] for r in beside.rejects] == [3, 6]


def test_csv_and_avro(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    csv, avro = new_topic(1), new_topic(1)
    kafka_broker.produce(csv, ["a;1", "b;2"])
    rows = reading(topics=csv, format="csv", schema="s string, n int", format_options={"delimiter": ";"}).rows()
    assert rows == [{"s": "a", "n": 1}, {"s": "b", "n": 2}]
    kafka_broker.produce(avro, [b"\x02a\x04", b"\x02b\x06"])
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}, {"name": "n", "type": "int"}]}
    rows = reading(topics=avro, format="avro", format_options={"avro_schema": schema}).rows()
    assert rows == [{"s": "a", "n": 2}, {"s": "b", "n": 3}]


# -- transactions and gaps ---------------------------------------------------------------------------------------------


def transact(broker: EmbeddedKafka, topic: str, values: Sequence[bytes], *, commit: bool | None, id: str) -> Any:
    """Write values in a transaction; `commit` None leaves it open."""
    producer = broker.producer(transactional_id=id)
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return producer


def test_transactions(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["first"])
    transact(kafka_broker, topic, [b"aborted"] * 50, commit=False, id=f"a-{topic}")
    transact(kafka_broker, topic, [b"committed"], commit=True, id=f"a-{topic}")
    aborted = transact(kafka_broker, topic, [b"aborted later"], commit=None, id=f"b-{topic}")
    transact(kafka_broker, topic, [b"within"], commit=True, id=f"a-{topic}")
    aborted.abort_transaction(30)
    opened = transact(kafka_broker, topic, [b"open"], commit=None, id=f"c-{topic}")
    kafka_broker.produce(topic, ["behind the open one"])
    committed = reading(topics=topic, min_partitions=20)
    assert committed.values() == [b"first", b"committed", b"within"]
    everything = reading(topics=topic, isolation="read_uncommitted").values()
    assert everything.count(b"aborted") == 50
    assert everything[-2:] == [b"open", b"behind the open one"]
    assert committed.values() == []
    opened.commit_transaction(30)
    found, end = [], time.monotonic() + 30
    while len(found) < 2 and time.monotonic() < end:  # the marker is written after the answer to the commit
        found += committed.values()
    assert found == [b"open", b"behind the open one"]


def test_ranges_that_hold_no_record(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    transact(kafka_broker, topic, [b"aborted"] * 10, commit=False, id=f"a-{topic}")
    source = reading(topics=topic, max_records_per_checkpoint=3)
    sizes = []
    while splits := source.splits():
        sizes.append(sum(split.weight for split in splits))
        assert source.rows(splits) == []
    assert sizes == [3, 3, 3, 2]  # the marker is an offset too


def test_a_range_that_ends_before_an_open_transaction_and_one_that_does_not(
    kafka_broker: EmbeddedKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a", "b"])
    opened = transact(kafka_broker, topic, [b"open"], commit=None, id=f"a-{topic}")
    client = FetchClient(kafka_broker.bootstrap_servers, _plain(), FetchSettings(patience_s=1.5))
    assert sum(len(r) for r in fetch_range(client, OffsetRange(topic, 0, 0, 2), committed=True)) == 2
    with pytest.raises(
        TransientError, match=f"'{topic}' partition 0: offsets 2 to 3 cannot be read: it can be read up to"
    ):
        list(fetch_range(client, OffsetRange(topic, 0, 0, 3), committed=True))
    opened.abort_transaction(30)


def _plain() -> Any:
    from poundlock.connectors.kafka.login import login
    from poundlock.connectors.kafka.security import KafkaSecurity

    return login(KafkaSecurity())


COMPACTED = {
    "cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.001, "delete.retention.ms": 1,
    "min.compaction.lag.ms": 0, "max.compaction.lag.ms": 100, "file.delete.delay.ms": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def cleaning_broker() -> Iterator[EmbeddedKafka]:
    """A broker whose log cleaner does not wait."""
    with EmbeddedKafka(properties={"log.cleaner.backoff.ms": 200}) as broker:
        yield broker


def compacted(broker: EmbeddedKafka, topic: str, keep: int) -> None:
    """Wait until compaction has left so many records."""
    end = time.monotonic() + 90
    while len(broker.read(topic, isolation="read_uncommitted")) > keep:
        assert time.monotonic() < end, "the broker does not compact"
        time.sleep(0.5)


def test_a_compacted_topic(cleaning_broker: EmbeddedKafka, tmp_path: Path) -> None:
    cleaning_broker.create_topic("c", 1, COMPACTED)
    for turn in range(30):
        cleaning_broker.produce("c", [Record(f"{turn}-{i}", key=f"k{i % 5}") for i in range(10)])
    time.sleep(0.3)
    cleaning_broker.produce("c", [Record("last", key="last")])
    compacted(cleaning_broker, "c", 20)
    expected = cleaning_broker.read("c")
    source = Reading(tmp_path / "a", cleaning_broker, topics="c", min_partitions=60)
    splits = source.splits()
    assert len(splits) > 50  # most of them within the gap
    assert source.values(splits) == [record.value for record in expected]
    whole = Reading(tmp_path / "b", cleaning_broker, topics="c")
    assert [row["offset"] for row in whole.rows()] == [record.offset for record in expected]
    source.enumerator.close()
    whole.enumerator.close()


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_records_larger_than_an_answer(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1, max_message_bytes="20000000")
    values = [b"a" * 3_000_000, b"b", b"c" * 2_500_000, b"d"]
    kafka_broker.produce(topic, values, message_max_bytes=20_000_000)
    small = reading(topics=topic, options={"kafka.max.partition.fetch.bytes": "4096"})
    assert small.values() == values
    assert reading(topics=topic).values() == values


@pytest.mark.parametrize("version", [11, 12, 13])
def test_each_version_of_fetch(
    kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_protocol, "_HIGHEST", version)
    topic = new_topic(2)
    kafka_broker.produce(topic, [Record(str(i), partition=i % 2) for i in range(500)])
    transact(kafka_broker, topic, [b"aborted"], commit=False, id=f"a-{topic}")
    transact(kafka_broker, topic, [b"z"], commit=True, id=f"a-{topic}")
    asked = []
    encode = fetch_protocol.encode_request
    monkeypatch.setattr(
        "poundlock.connectors.kafka.wire.range_fetch.encode_request",
        lambda request, v, *rest: asked.append(v) or encode(request, v, *rest),
    )
    source = reading(topics=topic, options={"kafka.max.partition.fetch.bytes": "1000"})
    assert sorted(source.values()) == sorted([b"%d" % i for i in range(500)] + [b"z"])
    assert set(asked) == {version}


def test_many_splits_in_turn_and_at_once(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    kafka_broker.produce(topic, [Record(b"%d" % i, partition=i % 3) for i in range(3000)])
    source = reading(topics=topic, min_partitions=12, options={"kafka.max.partition.fetch.bytes": "2000"})
    splits = source.splits()
    assert sorted(source.values(splits), key=int) == [b"%d" % i for i in range(3000)]
    reader = source.bound.reader(ReaderContext(reject=print, columns=["value"]))
    open_at_once = [reader.read(split) for split in splits]
    found: list[Any] = []
    while open_at_once:
        for one in list(open_at_once):
            chunk = next(one, None)
            if chunk is None:
                open_at_once.remove(one)
            else:
                found += [row["value"] for row in rows_of(chunk)]
    assert sorted(found, key=int) == [b"%d" % i for i in range(3000)]
    given_up = reader.read(splits[0])
    next(given_up)
    given_up.close()  # its connection still awaits an answer and must not be used again
    assert sorted(source.values(splits), key=int) == [b"%d" % i for i in range(3000)]


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_a_broker_killed_in_mid_read(own_kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    broker = own_kafka_broker
    broker.create_topic("t", 2)
    broker.produce("t", [Record(b"%06d" % i, partition=i % 2) for i in range(40_000)])
    source = Reading(tmp_path, broker, topics="t", options={"kafka.max.partition.fetch.bytes": "20000"})
    reader = source.bound.reader(ReaderContext(reject=print, columns=["value"]))
    found: list[Any] = []
    restarted: list[threading.Thread] = []
    for split in source.splits():
        for n, chunk in enumerate(reader.read(split)):
            found += [row["value"] for row in rows_of(chunk)]
            if n >= 1 and not restarted:  # chunks are few and large where the machine is busy
                broker.kill()
                restarted.append(threading.Thread(target=broker.start))
                restarted[0].start()
    restarted[0].join()
    assert sorted(found) == [b"%06d" % i for i in range(40_000)]
    source.enumerator.close()


@pytest.mark.parametrize("field", ["a value", "a first offset"])
def test_a_byte_that_was_changed_on_the_brokers_disk(
    own_kafka_broker: EmbeddedKafka, tmp_path: Path, field: str
) -> None:
    broker = own_kafka_broker
    broker.create_topic("big")
    for n in range(3):
        broker.produce("big", [b"%d/%d" % (n, i) for i in range(10)])
    source = Reading(tmp_path, broker, topics="big")
    splits = source.splits()
    broker.stop()
    (segment,) = (broker.home / "data" / "big-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    assert int.from_bytes(data[second : second + 8], "big") == 10
    data[data.index(b"1/5") if field == "a value" else second + 6] ^= 1
    segment.write_bytes(data)
    broker.start()
    # Of a wrong first offset the batch behind it is the proof: it begins before the one in front of it ends.
    offset, why = (10, r"its checksum") if field == "a value" else (20, "behind an earlier offset")
    with pytest.raises(TerminalError, match=f"topic 'big' partition 0 offset {offset}: the record batch there .*{why}"):
        source.values(splits)
    source.enumerator.close()


def test_a_broker_that_stays_away(own_kafka_broker: EmbeddedKafka, tmp_path: Path) -> None:
    broker = own_kafka_broker
    broker.create_topic("t")
    broker.produce("t", ["a"])
    source = Reading(tmp_path, broker, topics="t", options={"kafkaConsumer.pollTimeoutMs": 1500})
    splits = source.splits()
    broker.kill()
    with pytest.raises(
        TransientError, match="'t' partition 0: offsets 0 to 1 cannot be read: no Kafka server answers at"
    ):
        source.rows(splits)
    source.enumerator.close()


def test_a_server_that_says_nothing(new_topic: NewTopic) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = FetchSettings(connect_timeout_s=0.5, patience_s=1)
        client = FetchClient(f"127.0.0.1:{silent.getsockname()[1]}", _plain(), settings)
        with pytest.raises(TransientError, match="did not answer in time"):
            list(fetch_range(client, OffsetRange("t", 0, 0, 1), committed=True))


def test_expired_records(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a", "b", "c", "d"])
    source = reading(topics=topic)
    splits = source.splits()
    kafka_broker.delete_records(topic, {0: 3})
    with pytest.raises(
        SourceGoneError, match=f"topic '{topic}' partition 0: offsets 0 to 3 were not read yet and are gone"
    ):
        source.rows(splits)


def test_a_topic_recreated_between_plan_and_read(
    kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a", "b"])
    source = reading(topics=topic)
    splits = source.splits()
    assert source.values(splits) == [b"a", b"b"]
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic)
    kafka_broker.produce(topic, ["x", "y", "z"])
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is not the one this job has read.*its id was"):
        source.values(splits)


def test_a_topic_deleted_between_plan_and_read(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a", "b"])
    source = reading(topics=topic, options={"kafkaConsumer.pollTimeoutMs": 1500})
    splits = source.splits()
    kafka_broker.delete_topic(topic)
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is gone from Kafka: partition 0 was to be read from"):
        source.values(splits)


def test_a_range_behind_the_end(kafka_broker: EmbeddedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a", "b"])
    client = FetchClient(kafka_broker.bootstrap_servers, _plain(), FetchSettings(patience_s=1, max_wait_ms=100))
    with pytest.raises(SourceGoneError, match="partition 0 was read to 5 and ends at 2"):
        list(fetch_range(client, OffsetRange(topic, 0, 5, 6), committed=True))
    with pytest.raises(TransientError, match=r"offsets 2 to 4 cannot be read: .* ends at 2"):
        list(fetch_range(client, OffsetRange(topic, 0, 1, 4), committed=True))
    known = parse_kafka_id(kafka_broker.topic_id(topic))
    assert sum(len(r) for r in fetch_range(client, OffsetRange(topic, 0, 0, 2, known), committed=False)) == 2


def test_a_connection_that_the_broker_closed_meanwhile(kafka_broker: EmbeddedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a"])
    client = FetchClient(kafka_broker.bootstrap_servers, _plain(), FetchSettings())
    wanted = OffsetRange(topic, 0, 0, 1)
    assert sum(len(r) for r in fetch_range(client, wanted, committed=True)) == 1
    for kept in client._idle.values():
        for connection in kept:
            connection._socket.shutdown(socket.SHUT_RDWR)
    assert sum(len(r) for r in fetch_range(client, wanted, committed=True)) == 1
    client.close()


def test_new_partitions_while_reading(kafka_broker: EmbeddedKafka, reading: Make, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    kafka_broker.produce(topic, ["old"])
    source = reading(topics=topic, start="latest")
    kafka_broker.produce(topic, ["a"])
    assert source.values() == [b"a"]
    kafka_broker.add_partitions(topic, 2)
    kafka_broker.produce(topic, [Record("b", partition=1), Record("c", partition=0)])
    found: list[Any] = []
    end = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < end:
        found += source.values()
    assert sorted(found) == [b"b", b"c"]
    assert from_json(source.position) == {(topic, 0): 3, (topic, 1): 1}


def test_settings_of_sockets(kafka_broker: EmbeddedKafka, new_topic: NewTopic) -> None:
    settings = replace(FetchSettings(), receive_buffer=1 << 20, send_buffer=1 << 16)
    client = FetchClient(kafka_broker.bootstrap_servers, _plain(), settings)
    topic = new_topic(1)
    kafka_broker.produce(topic, ["a"])
    assert sum(len(r) for r in fetch_range(client, OffsetRange(topic, 0, 0, 1), committed=True)) == 1
    (kept, *_) = [c for connections in client._idle.values() for c in connections]
    assert kept._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 1 << 18
    client.close()


def test_no_partition_is_read_by_a_user_without_the_right(kafka_broker: EmbeddedKafka) -> None:
    """What a broker answers to a user who may not read; brokers of these tests let everybody read."""
    from poundlock.connectors.kafka.wire.fetch_protocol import FetchAnswer
    from poundlock.connectors.kafka.wire.range_fetch import _RangeFetch

    client = FetchClient(kafka_broker.bootstrap_servers, _plain(), FetchSettings())
    nothing = memoryview(b"")
    answer = FetchAnswer(29, -1, -1, -1, (), nothing, nothing)
    with pytest.raises(TerminalError, match="refuses this user: TopicAuthorizationFailedError when reading topic t"):
        _RangeFetch(client, OffsetRange("t", 0, 0, 1), True)._raise(answer, None)  # type: ignore[arg-type]


def test_no_pandas_is_imported_by_a_reader(kafka_broker: EmbeddedKafka, new_topic: NewTopic) -> None:
    """It costs a worker a second of CPU."""
    import subprocess
    import sys

    topic = new_topic(1)
    kafka_broker.produce(topic, [Record("a", key="k", headers=[("h", b"1")])])
    program = f"""
import sys
from poundlock.connectors.base import MeteredReader, ReaderContext, Split
from poundlock.connectors.kafka.source.source import KafkaSource
source = KafkaSource(bootstrap_servers={kafka_broker.bootstrap_servers!r}, topics={topic!r}, include_headers=True)
split = Split("a", {{"topic": {topic!r}, "partition": 0, "from": 0, "to": 1}})
for columns in (None, ["value"]):
    for chunk in source.reader(ReaderContext(reject=print, columns=columns)).read(split):
        print(len(chunk), "pandas" in sys.modules, "confluent_kafka" in sys.modules, "pyspark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["1 False False False"] * 2, done.stderr
    assert isinstance(pa.array([1]), pa.Array)
