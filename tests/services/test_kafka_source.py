"""What the driver asks a real Kafka: preflight, starts and ends, topic ids, group offsets, lag, data that is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from poundlock.connectors.kafka.reading import KafkaReading
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.source import KafkaSource
from poundlock.connectors.kafka.start import StartingOffsets
from poundlock.errors import DefinitionError, SourceGoneError, TransientError
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = pytest.mark.services

T0 = 1545184226000
Bind = Callable[..., KafkaReading]


@pytest.fixture
def bind(kafka_broker: EmbeddedKafka) -> Iterator[Bind]:
    """A function that makes a source and binds it; what it made is closed."""
    made: list[KafkaReading] = []

    def make(previous: dict[str, Any] | None = None, job: str = "job", **given: Any) -> KafkaReading:
        source = KafkaSource(**{"bootstrap_servers": kafka_broker.bootstrap_servers} | given)
        made.append(source.bind(job=job, name="events", previous=previous))
        return made[-1]

    yield make
    for reading in made:
        reading.close()


@pytest.fixture
def topic(kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> str:
    """A topic of two partitions: ten records a second apart in the first, none in the second."""
    name = new_topic(2)
    kafka_broker.produce(name, [Record(str(i), partition=0, timestamp_ms=T0 + 1000 * i) for i in range(10)])
    return name


def starting(reading: KafkaReading, restored: dict[str, Any] | None = None) -> Any:
    told = reading.spark_read(restored).options["startingOffsets"]
    return json.loads(told) if told.startswith("{") else told


def lag(reading: KafkaReading, position: dict[str, Any]) -> int | None:
    """Ask until there is an answer: a busy machine may not connect within the 2 s that one question is given."""
    end = time.monotonic() + 300
    while (told := reading.lag(position)) is None and time.monotonic() < end:
        time.sleep(0.1)
    return told


# -- preflight ---------------------------------------------------------------------------------------------------------


def test_preflight_passes(bind: Bind, topic: str) -> None:
    bind(topics=topic).preflight()
    bind(pattern=f"{topic[:-1]}.").preflight()
    bind(partitions={topic: [1]}).preflight()
    bind(topics=topic)._source.preflight()


def test_preflight_names_near_topics(bind: Bind, topic: str) -> None:
    with pytest.raises(DefinitionError, match=f"topic '{topic}x' is not in Kafka") as caught:
        bind(topics=[topic, topic + "x"]).preflight()
    assert f"did you mean '{topic}'" in caught.value.next
    with pytest.raises(DefinitionError, match="has 2 partitions, none with number 2"):
        bind(partitions={topic: [0, 2]}).preflight()
    with pytest.raises(DefinitionError, match="matches pattern"):
        bind(pattern="no-such-.*").preflight()


def test_preflight_names_unreachable_servers() -> None:
    source = KafkaSource(bootstrap_servers="127.0.0.1:1,127.0.0.1:2", topics="t")
    with pytest.raises(TransientError) as caught:
        source.preflight()
    assert "127.0.0.1:1" in caught.value.what
    assert "127.0.0.1:2" in caught.value.what
    assert "refused" in caught.value.what
    assert "bootstrap_servers" in caught.value.next
    assert len(str(caught.value).splitlines()) == 2


def test_preflight_names_a_host_that_is_unknown() -> None:
    with pytest.raises(TransientError, match=r"resolve 'no-such-host\.invalid:9092'"):
        KafkaSource(bootstrap_servers="no-such-host.invalid:9092", topics="t").preflight()


# -- where to begin ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest", [10, 0]),
        (T0 + 3500, [4, 0]),
        (T0 + 999_999, [10, 0]),  # beyond the end
        ("2018-12-19T01:50:29Z", [3, 0]),
        (StartingOffsets.committed(otherwise="latest"), [10, 0]),
    ],
)
def test_start(bind: Bind, topic: str, start: Any, expected: list[int]) -> None:
    told = starting(bind(topics=topic, start=start))
    assert told == {topic: {"0": expected[0], "1": expected[1]}}  # every partition, as Spark wants it


def test_start_at_offsets_fills_in_the_others(bind: Bind, topic: str) -> None:
    assert starting(bind(topics=topic, start={f"{topic}:0": 7})) == {topic: {"0": 7, "1": 0}}
    assert starting(bind(topics=topic)) == "earliest"
    with pytest.raises(DefinitionError, match=f"cannot start at offset 99: {topic}-0 holds offsets 0 to 10"):
        bind(topics=topic, start={f"{topic}:0": 99}).spark_read(None)


def test_start_where_the_group_is(bind: Bind, topic: str) -> None:
    group = f"g-{topic}"
    first = bind(topics=topic, group_id=group)
    first._cluster.commit({(topic, 0): 6}, group, wait=True)
    assert starting(bind(topics=topic, start="committed", group_id=group)) == {topic: {"0": 6, "1": 0}}
    elsewhere = StartingOffsets.committed(group, otherwise="latest")
    assert starting(bind(topics=topic, start=elsewhere)) == {topic: {"0": 6, "1": 0}}


def test_the_end_is_before_open_transactions(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    producer = kafka_broker.producer(transactional_id=f"x-{topic}")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    assert starting(bind(topics=topic, start="latest"))[topic]["0"] == 10
    assert starting(bind(topics=topic, start="latest", isolation="read_uncommitted"))[topic]["0"] == 11
    producer.abort_transaction(30)


# -- going on ----------------------------------------------------------------------------------------------------------


def test_restored_positions_and_new_partitions(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    kafka_broker.add_partitions(topic, 3)
    restored = {topic: {"0": 4, "1": 0}}
    assert starting(bind(topics=topic, start="latest"), restored) == {topic: {"0": 4, "1": 0, "2": -2}}


def test_an_added_topic_is_read_from_its_begin(
    kafka_broker: EmbeddedKafka, bind: Bind, topic: str, new_topic: Callable[..., str]
) -> None:
    added = new_topic()
    restored = {topic: {"0": 4, "1": 0}}
    assert starting(bind(topics=[topic, added]), restored)[added] == {"0": -2}
    kafka_broker.produce(added, ["a", "b"])
    kafka_broker.delete_records(added, {0: 1})
    with pytest.raises(DefinitionError, match=f"topic '{added}' was added .* begins at offset 1"):
        bind(topics=[topic, added]).spark_read(restored)


def test_a_topic_left_out_is_told(bind: Bind, topic: str, new_topic: Callable[..., str]) -> None:
    other = new_topic()
    with pytest.raises(DefinitionError, match=f"the checkpoint has read topic '{other}', which .* no longer names"):
        bind(topics=topic).spark_read({topic: {"0": 4, "1": 0}, other: {"0": 0}})


def test_expired_records_stop_a_restart(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    kafka_broker.delete_records(topic, {0: 7})
    with pytest.raises(SourceGoneError, match=f"'{topic}' partition 0: offsets 4 to 7 .* are gone"):
        bind(topics=topic).spark_read({topic: {"0": 4, "1": 0}})
    assert starting(bind(topics=topic), {topic: {"0": 7, "1": 0}})[topic]["0"] == 7


def test_a_deleted_topic_stops_a_restart(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    kafka_broker.delete_topic(topic)
    with pytest.raises(
        SourceGoneError, match=f"topic '{topic}' is gone from Kafka: partition 0 was read up to offset 4"
    ):
        bind(topics=topic).spark_read({topic: {"0": 4, "1": 0}})


@pytest.mark.parametrize("records", [3, 20])
def test_a_recreated_topic_stops_a_restart(kafka_broker: EmbeddedKafka, bind: Bind, topic: str, records: int) -> None:
    """With more records than before Spark itself would skip rows without a word."""
    position = {topic: {"0": 10, "1": 0}}
    identity = bind(topics=topic).identity(None, position, {})
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    kafka_broker.produce(topic, [Record(str(i), partition=0) for i in range(records)])
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is not the one this job has read"):
        bind(identity, topics=topic).spark_read(position)


# -- at each checkpoint ------------------------------------------------------------------------------------------------


def test_identity_is_the_topics_ids(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    reading = bind(topics=topic)
    position = {topic: {"0": 5, "1": 0}}
    identity = reading.identity(None, position, {})
    assert identity == {"topics": {topic: kafka_broker.topic_id(topic)}}
    assert reading.identity(position, {topic: {"0": 9, "1": 0}}, identity) == identity
    with pytest.raises(SourceGoneError, match="partition 0 went back from offset 5 to 3"):
        reading.identity(position, {topic: {"0": 3, "1": 0}}, identity)
    kafka_broker.delete_topic(topic)
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is gone from Kafka"):
        reading.identity(position, {topic: {"0": 9, "1": 0}}, identity)
    kafka_broker.create_topic(topic, 2)
    with pytest.raises(SourceGoneError, match="its id was"):
        reading.identity(position, {topic: {"0": 9, "1": 0}}, identity)


def test_a_topic_recreated_before_the_first_checkpoint(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    reading = bind(topics=topic)
    reading.spark_read(None)
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    with pytest.raises(SourceGoneError, match="its id was"):
        reading.identity(None, {topic: {"0": 0, "1": 0}}, {})


def test_group_offsets_and_lag(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    reading = bind(topics=topic, job=f"job-{topic}")
    reading.committed({topic: {"0": 4, "1": 0}})
    assert lag(reading, {topic: {"0": 4, "1": 0}}) == 6
    assert lag(reading, {topic: {"0": 10, "1": 0}}) == 0
    other = Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": f"poundlock-job-{topic}"})
    end = time.monotonic() + 30
    while (told := other.committed([TopicPartition(topic, 0)], timeout=10)[0].offset) < 0 and time.monotonic() < end:
        time.sleep(0.05)
    other.close()
    assert told == 4


def test_no_group_commits_nothing(bind: Bind, topic: str) -> None:
    reading = bind(topics=topic, group_id="", job=f"none-{topic}")
    reading.committed({topic: {"0": 4, "1": 0}})
    assert reading._cluster.committed([(topic, 0)], f"poundlock-none-{topic}") == {}


# -- bounded -----------------------------------------------------------------------------------------------------------


def test_a_bounded_end_stays_over_a_restart(kafka_broker: EmbeddedKafka, bind: Bind, topic: str) -> None:
    first = bind(topics=topic, end="latest")
    assert first.bounded
    read = first.spark_read(None)
    assert read.where is not None
    assert not first.finished(None)
    position = {topic: {"0": 4, "1": 0}}
    assert not first.finished(position)
    identity = first.identity(None, position, {})
    assert identity["until"] == {topic: {"0": 10, "1": 0}}
    kafka_broker.produce(topic, [Record("late", partition=0), Record("late", partition=1)])
    second = bind(identity, topics=topic, end="latest")
    assert second.spark_read(position).where == read.where
    assert lag(second, position) == 6
    assert second.finished({topic: {"0": 11, "1": 1}})
    assert second.identity(position, {topic: {"0": 10, "1": 1}}, identity) == identity


def test_an_empty_bounded_input_is_finished_at_once(bind: Bind, topic: str) -> None:
    reading = bind(topics=topic, start="latest", end="latest")
    reading.spark_read(None)
    assert reading.finished(None)


def test_an_unbounded_source_never_finishes(bind: Bind, topic: str) -> None:
    assert not bind(topics=topic).finished({topic: {"0": 10, "1": 0}})


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_a_broker_that_goes_away(own_kafka_broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture) -> None:
    broker = own_kafka_broker
    broker.create_topic("t")
    broker.produce("t", ["a"])
    reading = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics="t").bind(job="j", name="n")
    position = {"t": {"0": 1}}
    assert lag(reading, position) == 0
    broker.kill()
    assert reading.lag(position) is None
    reading.committed(position)  # only warns
    with pytest.raises(TransientError, match="Kafka at"):
        reading.identity(position, position, {})
    broker.start()
    assert lag(reading, position) == 0
    assert reading.identity(position, position, {})["topics"]["t"]
    reading.close()


LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a" '


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[EmbeddedKafka]:
    """A broker that asks its clients for a name and a password."""
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": LOGIN + 'user_admin="a";',
    }
    admin = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    admin |= {"sasl.username": "admin", "sasl.password": "a"}
    with EmbeddedKafka(properties=properties, client_settings=admin) as broker:
        broker.create_topic("t")
        broker.produce("t", ["a"])
        yield broker


def test_login(guarded_broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PW", "a")
    security = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="admin", password="env:KAFKA_PW")
    source = KafkaSource(bootstrap_servers=guarded_broker.bootstrap_servers, topics="t", security=security)
    source.preflight()
    reading = source.bind(job="j", name="n")
    reading._cluster.commit({("t", 0): 1}, "poundlock-j", wait=True)
    assert reading._cluster.committed([("t", 0)], "poundlock-j") == {("t", 0): 1}
    assert lag(reading, {"t": {"0": 0}}) == 1
    reading.close()


def test_a_refused_login_is_told_apart(guarded_broker: EmbeddedKafka) -> None:
    security = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="admin", password="wrong")
    source = KafkaSource(bootstrap_servers=guarded_broker.bootstrap_servers, topics="t", security=security)
    with pytest.raises(DefinitionError, match="refuses this user") as caught:
        source.preflight()
    assert "wrong" not in str(caught.value)
    assert "KafkaSecurity" in caught.value.next
