"""What the driver plans on a real Kafka: preflight, starts and ends, topic ids, group offsets, lag, data that is gone."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from poundlock.connectors.base import (
    ClosableEnumerator,
    IdentifyingEnumerator,
    LagReportingEnumerator,
    MeasuringEnumerator,
    PartitionedEnumerator,
    PartitionRead,
    RangeCheckingEnumerator,
)
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.source.enumerator import KafkaEnumerator
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets
from poundlock.connectors.kafka.wire.connection import BrokerConnection
from poundlock.errors import DefinitionError, SourceGoneError, TransientError
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import EmbeddedKafka, Record

pytestmark = pytest.mark.services

T0 = 1545184226000
Plan = Callable[..., KafkaEnumerator]


@pytest.fixture
def plan(kafka_broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Plan]:
    """A function that makes a source and its enumerator; what it made is closed. `workspace` is kept over starts of one job."""
    made: list[KafkaEnumerator] = []

    def make(
        previous: dict[str, Any] | None = None, job: str = "job", workspace: str | None = None, **given: Any
    ) -> KafkaEnumerator:
        source = KafkaSource(**{"bootstrap_servers": kafka_broker.bootstrap_servers} | given)
        folder = LocalStorage(str(tmp_path / (workspace or uuid.uuid4().hex)))
        made.append(source.bind(job=job, name="events", previous=previous).enumerator(folder))
        return made[-1]

    yield make
    for enumerator in made:
        enumerator.close()


@pytest.fixture
def topic(kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> str:
    """A topic of two partitions: ten records a second apart in the first, none in the second."""
    name = new_topic(2)
    kafka_broker.produce(name, [Record(str(i), partition=0, timestamp_ms=T0 + 1000 * i) for i in range(10)])
    return name


def lag(enumerator: KafkaEnumerator, position: dict[str, Any]) -> int | None:
    """Ask until there is an answer: a busy machine may not connect within the 2 s that one question is given."""
    end = time.monotonic() + 300
    while (told := enumerator.lag(position)) is None and time.monotonic() < end:
        time.sleep(0.1)
    return told


def until(look: Callable[[], Any], wanted: Any) -> Any:
    """Return what is seen once it is what is wanted, or after a minute."""
    end = time.monotonic() + 60
    while (found := look()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    return found


# -- preflight ---------------------------------------------------------------------------------------------------------


def test_preflight_passes(kafka_broker: EmbeddedKafka, topic: str) -> None:
    for given in ({"topics": topic}, {"pattern": f"{topic[:-1]}."}, {"partitions": {topic: [1]}}):
        KafkaSource(bootstrap_servers=kafka_broker.bootstrap_servers, **given).preflight()  # type: ignore[arg-type]


def test_preflight_names_near_topics(kafka_broker: EmbeddedKafka, topic: str) -> None:
    def check(**given: Any) -> None:
        KafkaSource(bootstrap_servers=kafka_broker.bootstrap_servers, **given).preflight()

    with pytest.raises(DefinitionError, match=f"topic '{topic}x' is not in Kafka") as caught:
        check(topics=[topic, topic + "x"])
    assert f"did you mean '{topic}'" in caught.value.next
    with pytest.raises(DefinitionError, match="has 2 partitions, none with number 2"):
        check(partitions={topic: [0, 2]})
    with pytest.raises(DefinitionError, match="matches pattern"):
        check(pattern="no-such-.*")


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
        ("earliest", [0, 0]),
        ("latest", [10, 0]),
        (T0 + 3500, [4, 0]),
        (T0 + 999_999, [10, 0]),  # beyond the end
        ("2018-12-19T01:50:29Z", [3, 0]),
        (StartingOffsets.committed(otherwise="latest"), [10, 0]),
    ],
)
def test_start(plan: Plan, topic: str, start: Any, expected: list[int]) -> None:
    assert plan(topics=topic, start=start).initial() == {topic: {"0": expected[0], "1": expected[1]}}


def test_start_at_offsets_fills_in_the_others(plan: Plan, topic: str) -> None:
    assert plan(topics=topic, start={f"{topic}:0": 7}).initial() == {topic: {"0": 7, "1": 0}}
    with pytest.raises(DefinitionError, match=f"cannot start at offset 99: {topic}-0 holds offsets 0 to 10"):
        plan(topics=topic, start={f"{topic}:0": 99}).initial()


def test_start_where_the_group_is(plan: Plan, topic: str) -> None:
    group = f"g-{topic}"
    plan(topics=topic)._cluster._group(group).commit_now({(topic, 0): 6})
    assert plan(topics=topic, start="committed", group_id=group).initial() == {topic: {"0": 6, "1": 0}}
    elsewhere = StartingOffsets.committed(group, otherwise="latest")
    assert plan(topics=topic, start=elsewhere).initial() == {topic: {"0": 6, "1": 0}}


def test_latest_means_the_first_start_until_something_was_decided(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str
) -> None:
    """A job that dies before its first checkpoint must not skip what came meanwhile."""
    assert plan(topics=topic, start="latest", workspace="w").initial()[topic]["0"] == 10
    kafka_broker.produce(topic, [Record("meanwhile", partition=0)])
    again = plan(topics=topic, start="latest", workspace="w")
    assert again.initial()[topic]["0"] == 10
    assert again.latest(again.initial())[topic]["0"] == 11
    assert plan(topics=topic, start={f"{topic}:0": 2}, workspace="w").initial()[topic]["0"] == 2  # said otherwise since
    assert plan(topics=topic, start="latest", workspace="w").initial()[topic]["0"] == 11


def test_earliest_is_what_is_there_until_something_was_decided(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str
) -> None:
    assert plan(topics=topic, workspace="w").initial()[topic]["0"] == 0
    kafka_broker.delete_records(topic, {0: 7})
    again = plan(topics=topic, workspace="w")
    assert again.latest(again.initial()) == {topic: {"0": 10, "1": 0}}
    assert again.initial()[topic]["0"] == 7


def test_the_end_is_before_open_transactions(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    producer = kafka_broker.producer(transactional_id=f"x-{topic}")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    begin = {topic: {"0": 0, "1": 0}}
    assert plan({}, topics=topic).latest(begin)[topic]["0"] == 10
    assert plan({}, topics=topic, isolation="read_uncommitted").latest(begin)[topic]["0"] == 11
    producer.abort_transaction(30)


# -- planning ----------------------------------------------------------------------------------------------------------


def test_what_it_offers(plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic)
    for offered in (
        PartitionedEnumerator,
        IdentifyingEnumerator,
        LagReportingEnumerator,
        MeasuringEnumerator,
        ClosableEnumerator,
    ):
        assert isinstance(enumerator, offered)


def test_nothing_new_is_the_same_position(plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic)
    end = enumerator.latest(enumerator.initial())
    assert enumerator.latest(end) == end
    assert enumerator.splits(end, end) == []


def test_a_plan_asks_once(plan: Plan, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    enumerator = plan(topics=topic)
    end = enumerator.latest(enumerator.initial())
    asked: list[str] = []
    admin = enumerator._cluster.admin()

    class Counting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(admin, name)

    send = BrokerConnection.send
    monkeypatch.setattr(BrokerConnection, "send", lambda self, frame: asked.append("ListOffsets") or send(self, frame))
    monkeypatch.setattr(enumerator._cluster, "_client", Counting())
    monkeypatch.setattr(enumerator._discovery, "_looked", time.monotonic() + 3600)
    assert enumerator.latest(end) == end
    assert asked == ["ListOffsets"]


def test_offsets_are_the_same_by_our_own_connections_and_by_confluent_kafkas(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str
) -> None:
    """With an open transaction: what is committed ends before it."""
    client_options = {"client.id": "another"}  # settings of confluent-kafka are for it alone
    own, other = (plan(topics=topic, **more)._cluster for more in ({}, {"client_options": client_options}))
    assert own._own is not None
    assert other._own is None
    places = [(topic, 0), (topic, 1)]
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    questions: list[Callable[[Cluster], Any]] = [
        lambda cluster: cluster.begin(places),
        lambda cluster: cluster.end(places),
        lambda cluster: cluster.end(places, committed=False),
        lambda cluster: cluster.at(places, T0 + 3500),
        lambda cluster: cluster.at(places, T0 + 1_000_000_000),
    ]
    try:
        assert [ask(own) for ask in questions] == [ask(other) for ask in questions]
        assert (own.end(places)[topic, 0], own.end(places, committed=False)[topic, 0]) == (10, 11)
    finally:
        producer.abort_transaction(30)
    for cluster in (own, other):
        with pytest.raises(TransientError, match="offsets cannot be looked up"):
            cluster.end([*places, (topic, 99)], timeout=0.5)


def test_a_limit_is_shared(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    kafka_broker.produce(topic, [Record("x", partition=1) for _ in range(90)])
    enumerator = plan(topics=topic, max_records_per_checkpoint=20)
    position, seen = enumerator.initial(), []
    while (end := enumerator.latest(position)) != position:
        seen.append(sum(split.weight for split in enumerator.splits(position, end)))
        assert end[topic]["0"] > position[topic]["0"] or position[topic]["0"] == 10
        position = end
    assert position == {topic: {"0": 10, "1": 90}}
    assert seen == [20] * 5


def test_a_partition_is_held_back(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    kafka_broker.produce(topic, [Record("x", partition=1) for _ in range(5)])
    enumerator = plan(topics=topic)
    position = enumerator.initial()
    assert enumerator.partitions(position) == [f"{topic}-0", f"{topic}-1"]
    assert enumerator.latest(position, [f"{topic}-0"]) == {topic: {"0": 0, "1": 5}}
    assert enumerator.latest(position, {f"{topic}-0", f"{topic}-1"}) == position
    assert enumerator.latest(position, ["another"]) == {topic: {"0": 10, "1": 5}}


def test_splits_follow_from_positions_alone(plan: Plan, topic: str) -> None:
    identity = {"topics": {topic: "AbCdEfGhIjKlMnOpQrStUv"}}
    start, end = {topic: {"0": 2, "1": 4}}, {topic: {"0": 10, "1": 4, "2": 5}}
    (split,) = plan(identity, topics=topic).splits(start, end)
    assert split.name == f"{topic}-0"
    assert split.payload == {
        "topic": topic, "partition": 0, "from": 2, "to": 10, "topic_id": "AbCdEfGhIjKlMnOpQrStUv"
    }  # fmt: skip
    cut = plan(identity, topics=topic, min_partitions=3).splits(start, end)
    assert [(s.payload["from"], s.payload["to"], s.name) for s in cut] == [
        (2, 4, f"{topic}-0"), (4, 6, f"{topic}-0"), (6, 8, f"{topic}-0"), (8, 10, f"{topic}-0")
    ]  # fmt: skip
    assert len({s.id for s in cut}) == 4
    backlog = plan(identity, topics=topic).splits(start, {topic: {"0": 1_000_002, "1": 4}})
    assert [s.weight for s in backlog] == [250_000] * 4
    asked = plan(identity, topics=topic, options={"maxRecordsPerPartition": 5}).splits(start, end)
    assert [s.weight for s in asked] == [4, 4]


# -- going on ----------------------------------------------------------------------------------------------------------


def test_new_partitions_are_read_from_their_first_record(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic, start="latest")
    position = enumerator.latest(enumerator.initial())
    kafka_broker.add_partitions(topic, 3)
    kafka_broker.produce(topic, [Record("a", partition=2) for _ in range(4)])
    entered = until(lambda: enumerator.latest(position), {topic: {"0": 10, "1": 0, "2": 0}})
    assert entered == {topic: {"0": 10, "1": 0, "2": 0}}
    assert enumerator.splits(position, entered) == []
    end = enumerator.latest(entered)
    assert end[topic]["2"] == 4
    (split,) = enumerator.splits(entered, end)
    assert (split.payload["from"], split.payload["to"]) == (0, 4)


def test_an_added_topic_is_read_from_its_begin_whatever_that_is(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str, new_topic: Callable[..., str]
) -> None:
    added = new_topic()
    kafka_broker.produce(added, ["a", "b", "c"])
    kafka_broker.delete_records(added, {0: 2})
    restored = {topic: {"0": 10, "1": 0}}
    enumerator = plan({}, topics=[topic, added])
    entered = enumerator.latest(restored)
    assert entered == {topic: {"0": 10, "1": 0}, added: {"0": 2}}
    end = enumerator.latest(entered)
    assert end[added] == {"0": 3}
    assert added in enumerator.identity(entered, end, {})["topics"]


def test_a_new_topic_of_a_pattern(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str, new_topic: Callable[..., str]
) -> None:
    enumerator = plan(pattern=f"({topic}|{topic}-more)")
    position = enumerator.latest(enumerator.initial())
    kafka_broker.create_topic(f"{topic}-more", 1)
    kafka_broker.produce(f"{topic}-more", ["a"])
    assert until(lambda: enumerator.latest(position).get(f"{topic}-more"), {"0": 0}) == {"0": 0}


def test_a_topic_taken_off_the_list_and_put_back_on(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str, new_topic: Callable[..., str]
) -> None:
    other = new_topic()
    kafka_broker.produce(other, ["a", "b", "c"])
    restored = {topic: {"0": 4, "1": 0}, other: {"0": 1}}
    identity = {"topics": {topic: kafka_broker.topic_id(topic), other: kafka_broker.topic_id(other)}}
    without = plan(identity, topics=topic)
    end = without.latest(restored)
    assert end == {topic: {"0": 10, "1": 0}, other: {"0": 1}}
    assert without.partitions(end) == [f"{topic}-0", f"{topic}-1"]
    assert without.identity(restored, end, identity) == identity
    assert lag(without, end) == 0
    back = plan(identity, topics=[topic, other])
    assert back.latest(end)[other] == {"0": 3}


def test_a_topic_that_was_made_anew_while_it_was_off_the_list(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str, new_topic: Callable[..., str]
) -> None:
    other = new_topic()
    identity = {"topics": {topic: kafka_broker.topic_id(topic), other: kafka_broker.topic_id(other)}}
    kafka_broker.delete_topic(other)
    position = {topic: {"0": 10, "1": 0}, other: {"0": 0}}
    assert plan(identity, topics=topic).latest(position) == position
    kafka_broker.create_topic(other)
    with pytest.raises(SourceGoneError, match=f"topic '{other}' is not the one this job has read.*its id was"):
        plan(identity, topics=[topic, other]).latest(position)


def test_a_named_topic_that_is_not_there_is_told_on_a_restart(plan: Plan, topic: str) -> None:
    with pytest.raises(DefinitionError, match="topic 'no-such' is not in Kafka"):
        plan({}, topics=[topic, "no-such"]).latest({topic: {"0": 4, "1": 0}})


def test_expired_records_stop_a_restart(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    kafka_broker.delete_records(topic, {0: 7})
    with pytest.raises(SourceGoneError, match=f"'{topic}' partition 0: offsets 4 to 7 .* are gone"):
        plan({}, topics=topic).latest({topic: {"0": 4, "1": 0}})
    assert plan({}, topics=topic).latest({topic: {"0": 7, "1": 0}})[topic]["0"] == 10


def test_a_deleted_topic_stops_a_restart(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    kafka_broker.delete_topic(topic)
    with pytest.raises(
        SourceGoneError, match=f"topic '{topic}' is gone from Kafka: partition 0 was read up to offset 4"
    ):
        plan({}, topics=topic).latest({topic: {"0": 4, "1": 0}})


def test_a_topic_deleted_while_it_is_read(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic)
    position = enumerator.latest(enumerator.initial())
    kafka_broker.delete_topic(topic)
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is gone from Kafka"):
        enumerator.latest(position)


@pytest.mark.parametrize("records", [3, 20])
def test_a_recreated_topic_stops_a_restart(kafka_broker: EmbeddedKafka, plan: Plan, topic: str, records: int) -> None:
    """With more records than before nothing but the id tells it."""
    position = {topic: {"0": 10, "1": 0}}
    identity = plan(topics=topic).identity({}, position, {})
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    kafka_broker.produce(topic, [Record(str(i), partition=0) for i in range(records)])
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is not the one this job has read"):
        plan(identity, topics=topic).latest(position)


def test_a_topic_that_became_shorter_while_it_is_read(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic)
    position = enumerator.latest(enumerator.initial())
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is not the one this job has read"):
        enumerator.latest(position)


# -- at each checkpoint ------------------------------------------------------------------------------------------------


def test_identity_is_the_topics_ids(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic)
    position = {topic: {"0": 5, "1": 0}}
    identity = enumerator.identity({}, position, {})
    assert identity == {"topics": {topic: kafka_broker.topic_id(topic)}}
    assert enumerator.identity(position, {topic: {"0": 9, "1": 0}}, identity) == identity
    with pytest.raises(SourceGoneError, match="partition 0 went back from offset 5 to 3"):
        enumerator.identity(position, {topic: {"0": 3, "1": 0}}, identity)
    kafka_broker.delete_topic(topic)
    with pytest.raises(SourceGoneError, match=f"topic '{topic}' is gone from Kafka"):
        enumerator.identity(position, {topic: {"0": 9, "1": 0}}, identity)
    kafka_broker.create_topic(topic, 2)
    with pytest.raises(SourceGoneError, match="its id was"):
        enumerator.identity(position, {topic: {"0": 9, "1": 0}}, identity)


def test_a_topic_recreated_before_the_first_checkpoint(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic)
    start = enumerator.initial()
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    with pytest.raises(SourceGoneError, match="its id was"):
        enumerator.identity(start, {topic: {"0": 0, "1": 0}}, {})


def test_group_offsets_and_lag(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic, job=f"job-{topic}")
    enumerator.committed({topic: {"0": 4, "1": 0}})
    assert lag(enumerator, {topic: {"0": 4, "1": 0}}) == 6
    assert enumerator.partition_lags({topic: {"0": 4, "1": 0}}) == {f"{topic}-0": 6, f"{topic}-1": 0}
    assert lag(enumerator, {topic: {"0": 10, "1": 0}}) == 0
    other = Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": f"poundlock-job-{topic}"})
    told = until(lambda: other.committed([TopicPartition(topic, 0)], timeout=10)[0].offset, 4)
    other.close()
    assert told == 4


def test_no_group_commits_nothing(plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic, group_id="", job=f"none-{topic}")
    enumerator.committed({topic: {"0": 4, "1": 0}})
    assert enumerator._cluster.committed([(topic, 0)], f"poundlock-none-{topic}") == {}


def test_a_decided_range_is_checked_before_it_is_read_again(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str
) -> None:
    enumerator = plan(topics=topic)
    assert isinstance(enumerator, RangeCheckingEnumerator)
    start, end = {topic: {"0": 2}}, {topic: {"0": 8, "1": 0}}
    identity = enumerator.identity(start, end, {})
    enumerator.check_range(start, end, identity)
    with pytest.raises(SourceGoneError, match=f"'{topic}' partition 0 ends at 10, and this checkpoint read up to 12"):
        enumerator.check_range(start, {topic: {"0": 12}}, identity)
    kafka_broker.delete_records(topic, {0: 4})
    words = f"'{topic}' partition 0: offsets 2 to 4 of this checkpoint have expired"
    with pytest.raises(SourceGoneError, match=words):
        enumerator.check_range(start, end, identity)
    enumerator.check_range({topic: {"0": 4}}, end, identity)
    kafka_broker.delete_topic(topic)
    with pytest.raises(SourceGoneError, match=f"'{topic}' partition 0 is gone from Kafka"):
        enumerator.check_range(start, end, identity)
    kafka_broker.create_topic(topic, 2)
    with pytest.raises(SourceGoneError, match=f"'{topic}' is not the one this checkpoint has read: its id was"):
        enumerator.check_range(start, end, identity)


# -- bounded -----------------------------------------------------------------------------------------------------------


def test_a_bounded_end_stays_over_a_restart(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    first = plan(topics=topic, end="latest")
    start = first.initial()
    assert not first.finished(start)
    position = {topic: {"0": 4, "1": 0}}
    assert not first.finished(position)
    identity = first.identity(start, position, {})
    assert identity["until"] == {topic: {"0": 10, "1": 0}}
    kafka_broker.produce(topic, [Record("late", partition=0), Record("late", partition=1)])
    kafka_broker.add_partitions(topic, 3)
    second = plan(identity, topics=topic, end="latest")
    assert lag(second, position) == 6
    end = second.latest(position)
    assert end == {topic: {"0": 10, "1": 0}}
    assert second.finished(end)
    assert second.latest(end) == end
    assert second.identity(position, end, identity) == identity


def test_a_bounded_end_stays_over_a_start_without_a_checkpoint(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str
) -> None:
    plan(topics=topic, end="latest", workspace="w").initial()
    kafka_broker.produce(topic, [Record("late", partition=1)])
    again = plan(topics=topic, end="latest", workspace="w")
    assert again.latest(again.initial()) == {topic: {"0": 10, "1": 0}}


def test_what_a_decision_does_not_say_is_known_from_the_first_start(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str
) -> None:
    plan(topics=topic, end="latest", workspace="w").initial()
    kafka_broker.produce(topic, [Record("late", partition=0)])
    position = {topic: {"0": 4, "1": 0}}
    assert plan({}, topics=topic, end="latest", workspace="w").latest(position)[topic]["0"] == 10
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    kafka_broker.produce(topic, [Record(str(i), partition=0) for i in range(20)])
    with pytest.raises(SourceGoneError, match=f"'{topic}' is not the one this job has read"):
        plan({}, topics=topic, end="latest", workspace="w").latest(position)


def test_an_end_given_to_a_job_that_had_none(plan: Plan, topic: str) -> None:
    enumerator = plan({"topics": {}}, topics=topic, end="latest")
    assert not enumerator.finished({topic: {"0": 4}})
    entered = enumerator.latest({topic: {"0": 4}})
    assert entered == {topic: {"0": 10, "1": 0}}
    assert enumerator.finished(entered)


def test_an_end_that_is_not_there_yet(kafka_broker: EmbeddedKafka, plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic, end={f"{topic}:0": 12, f"{topic}:1": 0})
    position = enumerator.latest(enumerator.initial())
    assert position[topic]["0"] == 10
    assert not enumerator.finished(position)
    kafka_broker.produce(topic, [Record("x", partition=0) for _ in range(5)])
    position = enumerator.latest(position)
    assert position[topic]["0"] == 12
    assert enumerator.finished(position)


def test_an_empty_bounded_input_is_finished_at_once(plan: Plan, topic: str) -> None:
    enumerator = plan(topics=topic, start="latest", end="latest")
    assert enumerator.finished(enumerator.initial())


def test_an_unbounded_source_never_finishes(plan: Plan, topic: str) -> None:
    assert not plan(topics=topic).finished({topic: {"0": 10, "1": 0}})


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_a_broker_that_goes_away(
    own_kafka_broker: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = own_kafka_broker
    broker.create_topic("t")
    broker.produce("t", ["a"])
    source = KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics="t").bind(job="j", name="n")
    enumerator = source.enumerator(LocalStorage(str(tmp_path)))
    position = {"t": {"0": 1}}
    assert enumerator.latest(enumerator.initial()) == position
    assert lag(enumerator, position) == 0
    broker.kill()
    enumerator._ends = None  # what a plan asked for counts for two seconds
    assert enumerator.lag(position) is None
    enumerator.committed(position)  # only warns
    with pytest.raises(TransientError, match="Kafka at"):
        enumerator.identity(position, position, {})
    with pytest.raises(TransientError, match="Kafka"):
        enumerator.latest(position)
    broker.start()
    assert lag(enumerator, position) == 0
    assert enumerator.identity(position, position, {})["topics"]["t"]
    assert enumerator.latest(position) == position
    enumerator.close()


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


def test_login(guarded_broker: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PW", "a")
    security = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="admin", password="env:KAFKA_PW")
    source = KafkaSource(bootstrap_servers=guarded_broker.bootstrap_servers, topics="t", security=security)
    source.preflight()
    enumerator = source.bind(job="j", name="n").enumerator(LocalStorage(str(tmp_path)))
    enumerator._cluster._group("poundlock-j").commit_now({("t", 0): 1})
    assert enumerator._cluster.committed([("t", 0)], "poundlock-j") == {("t", 0): 1}
    assert lag(enumerator, {"t": {"0": 0}}) == 1
    enumerator.close()


def test_a_refused_login_is_told_apart(guarded_broker: EmbeddedKafka) -> None:
    security = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="admin", password="wrong")
    source = KafkaSource(bootstrap_servers=guarded_broker.bootstrap_servers, topics="t", security=security)
    with pytest.raises(DefinitionError, match="refuses this user") as caught:
        source.preflight()
    assert "wrong" not in str(caught.value)
    assert "KafkaSecurity" in caught.value.next


# -- bytes of a checkpoint -----------------------------------------------------------------------------------------------


def wide(broker: EmbeddedKafka, topic: str, count: int, size: int, codec: str = "none") -> None:
    """Produce records of so many bytes to the first partition, some to a batch; a transaction, so that a marker stands last."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": uuid.uuid4().hex,
            "compression.type": codec,
            "linger.ms": 100,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, (b"%06d" % number).ljust(size, b"x"), partition=0)
    producer.commit_transaction(30)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_wide_records_are_planned_by_bytes(
    kafka_broker: EmbeddedKafka, plan: Plan, new_topic: Callable[..., str], codec: str
) -> None:
    topic, size = new_topic(2), 20_000
    wide(kafka_broker, topic, 500, size, codec)
    kafka_broker.produce(topic, [Record("narrow", partition=1) for _ in range(50)])

    def offsets(**given: Any) -> int:
        enumerator = plan(topics=topic, **given)
        end = enumerator.latest(enumerator.initial())
        return int(end[topic]["0"])

    assert offsets(max_bytes_per_checkpoint=None) == 501
    assert offsets() == 501
    assert 20 <= offsets(max_bytes_per_checkpoint=100 * size) <= 110


def test_what_was_read_tells_how_much_is_read_next(
    kafka_broker: EmbeddedKafka, plan: Plan, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    wide(kafka_broker, topic, 1_000, 100)
    enumerator = plan(topics=topic, max_bytes_per_checkpoint="10 KB", max_records_per_checkpoint=400)
    position = enumerator.initial()
    end = enumerator.latest(position)
    assert 90 <= end[topic]["0"] <= 110
    enumerator.splits(position, end)
    enumerator.measured({f"{topic}-0": PartitionRead(100, 100_000), "another-0": PartitionRead(1, 1 << 40)})
    again = enumerator.latest(end)
    assert again[topic]["0"] - end[topic]["0"] == 10


def test_a_broker_that_cannot_be_looked_at_holds_nothing_up(
    kafka_broker: EmbeddedKafka, plan: Plan, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enumerator = plan(topics=topic, max_bytes_per_checkpoint="2 MB")
    position = enumerator.initial()

    def refuse(*_: Any) -> Iterator[Any]:
        raise TransientError("no broker answers")

    monkeypatch.setattr("poundlock.connectors.kafka.source.enumerator.fetch_sizes", refuse)
    assert enumerator.latest(position) == {topic: {"0": 2, "1": 0}}, "as if records had a megabyte"
