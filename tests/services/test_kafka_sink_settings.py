"""The Kafka sink on a real broker: what is written by which setting, and what is refused before anything starts."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, KafkaSecurity, KafkaSink, TerminalError, TopicExpression, TransientError
from poundlock.audit.read_back import AuditScope, Decided, ReadBack
from poundlock.checkpoint.participant import JSON, Prepared, Reject, WriterContext
from poundlock.connectors.kafka.sink.digest import Digest
from poundlock.connectors.kafka.sink.transaction_ids import TO_TOPIC
from poundlock.connectors.kafka.wire.byte_strings import of_list
from poundlock.errors import PoundlockError
from poundlock.formats.chunk import Batch, Records
from poundlock.testing.kafka import EmbeddedKafka

pytestmark = pytest.mark.services

JOB_ID = "5e" * 16
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def write(sink: KafkaSink, *chunks: Any, commit: bool = True) -> tuple[int, list[Reject], Sequence[JSON]]:
    """Write chunks by one task and commit what it prepared."""
    rejects: list[Reject] = []
    context = WriterContext(
        job_id=JOB_ID, sink="s", epoch=1, checkpoint=3, subtask=0, attempt="a", directive={}, reject=rejects.append,
        started_ms=0,
    )  # fmt: skip
    writer = sink.open_writer(context)
    count = sum(writer.write(chunk) for chunk in chunks)
    payloads = writer.prepare()
    assert sum(p["rows"] for p in payloads) == count
    for committable in sink.stage({}, [Prepared("s", 0, p) for p in payloads], None, 0).committables if commit else ():  # type: ignore[arg-type]
        sink.commit(committable)
    return count, rejects, payloads


def table(**columns: Any) -> Batch:
    return Batch(pa.record_batch(columns))


@pytest.fixture
def servers(kafka_broker: EmbeddedKafka, new_topic: Callable[..., str]) -> str:
    KafkaSink(kafka_broker.bootstrap_servers, new_topic()).preflight()  # makes the topic of the markers
    return kafka_broker.bootstrap_servers


def test_all_parts_of_messages_arrive(kafka_broker: EmbeddedKafka, servers: str, new_topic: Callable[..., str]) -> None:
    topic, when = new_topic(3), datetime(2018, 12, 19, tzinfo=UTC)
    sink = KafkaSink(
        servers, topic, key="k", headers={"h": "h"}, partition="p", timestamp="t", compression="zstd",
        transactional_id_prefix=topic,
    )  # fmt: skip
    sink.preflight()
    chunk = table(
        value=pa.array([b"a", b"", None]),
        k=pa.array(["x", None, "z"]),
        h=pa.array(["1", "2", None]),
        p=pa.array([2, 0, 1]),
        t=pa.array([when, when, when]),
    )
    assert write(sink, chunk)[:2] == (3, [])
    found = {r.partition: r for r in kafka_broker.read(topic)}
    # the client reads an empty value and a tombstone apart
    assert [found[p].value for p in (2, 0, 1)] == [b"a", b"", None]
    assert [found[p].key for p in (2, 0, 1)] == [b"x", None, b"z"]
    assert found[2].headers == (("h", b"1"),)
    assert found[1].headers == (("h", None),)
    assert {r.timestamp_ms for r in found.values()} == {int(when.timestamp() * 1000)}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read_by_others(
    kafka_broker: EmbeddedKafka, servers: str, new_topic: Callable[..., str], compression: Any
) -> None:
    """The broker unpacks and checks them, and so does librdkafka."""
    topic, values = new_topic(1), [b"%d" % i * 9 for i in range(20_000)]
    values[7] = random.Random(7).randbytes(300_000)
    sink = KafkaSink(servers, topic, headers={"h": "h"}, compression=compression, transactional_id_prefix=topic)
    write(sink, table(value=pa.array(values), h=pa.array([f"h{i}" for i in range(len(values))])))
    found = kafka_broker.read(topic)
    assert [r.value for r in found] == values
    assert [r.headers for r in found] == [(("h", b"h%d" % i),) for i in range(len(values))]


def test_keys_go_where_java_puts_them(kafka_broker: EmbeddedKafka, servers: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(5)
    keys = [f"key-{i}" for i in range(40)]
    write(
        KafkaSink(servers, topic, key="k", transactional_id_prefix=topic), table(value=pa.array(keys), k=pa.array(keys))
    )
    assert {r.value.decode(): r.partition for r in kafka_broker.read(topic) if isinstance(r.value, bytes)} == {
        key: (murmur2(key.encode()) & 0x7FFFFFFF) % 5 for key in keys
    }


def murmur2(data: bytes) -> int:
    """Return the hash of org.apache.kafka.common.utils.Utils, written from its definition."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


def test_topics_by_function_and_by_expression(
    kafka_broker: EmbeddedKafka, servers: str, new_topic: Callable[..., str]
) -> None:
    one, two = new_topic(), new_topic()
    rows = Records([{"value": b"1"}, {"value": b"2"}, {"value": b"3"}])
    by_function = KafkaSink(
        servers, lambda r: {b"1": one, b"2": two}.get(r["value"], "missing-topic"), transactional_id_prefix=one
    )
    count, rejects, _ = write(by_function, rows)
    assert (count, [r.reason for r in rejects]) == (2, ["topic missing-topic does not exist"])
    write(
        KafkaSink(servers, TopicExpression("x"), transactional_id_prefix=one),
        table(value=pa.array([b"4"]), **{TO_TOPIC: pa.array([two])}),
    )
    assert [r.value for r in kafka_broker.read(one)] == [b"1"]
    assert [r.value for r in kafka_broker.read(two)] == [b"2", b"4"]


def test_what_is_too_large_or_has_no_partition_is_rejected(
    kafka_broker: EmbeddedKafka, servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    sink = KafkaSink(servers, topic, partition="p", transactional_id_prefix=topic)
    chunk = table(value=pa.array([b"x" * 2_000_000, b"ok", b"far"]), p=pa.array([0, 0, 7]))
    count, rejects, _ = write(sink, chunk)
    assert count == 1
    assert [r.reason for r in rejects] == [
        "larger than a message may be: 2000000 bytes",
        f"topic {topic} has no partition 7",
    ]
    assert [r.value for r in kafka_broker.read(topic)] == [b"ok"]


def test_values_alone_pass_a_full_queue_and_leave_out_what_is_too_large(
    kafka_broker: EmbeddedKafka, servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    values: list[bytes | None] = [b"%d" % i for i in range(1200)]
    values[3], values[1100] = None, b"x" * 2_000_000
    sink = KafkaSink(
        servers, topic, client_options={"queue.buffering.max.messages": "300"}, transactional_id_prefix=topic
    )
    sink.preflight()
    count, rejects, (payload,) = write(sink, table(value=pa.array(values)))
    good = [value for value in values if value is None or len(value) < 10]
    digest = Digest()
    digest.add(of_list(good))
    assert (count, payload["rows"], payload["bytes"]) == (1199, 1199, digest.bytes)
    assert payload["digest"] == digest.text
    assert [(r.reason, r.value) for r in rejects] == [("larger than a message may be: 2000000 bytes", values[1100])]
    assert [r.value for r in kafka_broker.read(topic)] == good


@pytest.mark.parametrize("fault", ["size", "timestamp"])
def test_a_message_that_the_broker_refuses_for_what_it_is_is_the_jobs_failure_and_not_repeated_for_ever(
    servers: str, new_topic: Callable[..., str], fault: str
) -> None:
    topic, now = new_topic(max_message_bytes="2000"), int(time.time() * 1000)
    last, at = (b"x" * 3000, now) if fault == "size" else (b"x", now + 7_200_000)
    sink = KafkaSink(servers, topic, timestamp="t", transactional_id_prefix=topic)
    chunk = table(value=pa.array([b"good"] * 30 + [last]), t=pa.array([now] * 30 + [at]))
    with pytest.raises(
        PoundlockError, match=rf"refuses a message for what it is: Broker: .*{fault}.*\nNext: "
    ) as raised:
        write(sink, chunk)
    assert not isinstance(raised.value, TransientError)


def test_a_task_that_rejects_everything_prepares_nothing(servers: str, new_topic: Callable[..., str]) -> None:
    sink = KafkaSink(servers, new_topic(), partition="p")
    assert write(sink, table(value=pa.array([b"a"]), p=pa.array([9])))[2] == []


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_without_transactions_messages_are_there_before_any_decision(
    kafka_broker: EmbeddedKafka, servers: str, new_topic: Callable[..., str], guarantee: Any
) -> None:
    topic = new_topic()
    sink = KafkaSink(servers, topic, guarantee=guarantee)
    sink.preflight()
    _, _, (payload,) = write(sink, table(value=pa.array([b"a", b"b"])), commit=False)
    assert [r.value for r in kafka_broker.read(topic)] == [b"a", b"b"]
    prepared = [Prepared("s", 0, payload)]
    sink.verify(prepared)
    assert sink.stage({}, prepared, None, 0).committables == []  # type: ignore[arg-type]
    sink.abort(prepared[0])
    assert sink.sweep({}, remove=True) == []


# --- before the start -------------------------------------------------------------------------------------------------


def refused(sink: KafkaSink) -> DefinitionError:
    with pytest.raises(DefinitionError) as told:
        sink.preflight()
    assert str(told.value).count("\n") == 1
    return told.value


def test_a_missing_topic_is_refused_or_created(kafka_broker: EmbeddedKafka, servers: str) -> None:
    topic = f"new-{uuid.uuid4().hex[:8]}"
    error = refused(KafkaSink(servers, topic))
    assert f"topic '{topic}' does not exist" in error.what
    assert "create_topic=3" in error.next
    KafkaSink(servers, topic, create_topic=2, marker_topic=f"{topic}-markers").preflight()
    KafkaSink(servers, topic, create_topic=2, marker_topic=f"{topic}-markers").preflight()
    assert len(kafka_broker.end_offsets(topic)) == 2
    assert len(kafka_broker.end_offsets(f"{topic}-markers")) == 1


def test_a_timeout_longer_than_the_broker_allows_is_refused(servers: str, new_topic: Callable[..., str]) -> None:
    error = refused(KafkaSink(servers, new_topic(), transaction_timeout="16 min"))
    assert "transaction_timeout=0:16:00 is longer than" in error.what
    assert '"900000 ms" or less' in error.next
    assert "transaction.max.timeout.ms of the brokers to 960000" in error.next


def test_nobody_answers() -> None:
    with pytest.raises(TransientError, match=r"no Kafka server answers at 127\.0\.0\.1:1"):
        KafkaSink("127.0.0.1:1", "t").preflight()


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """A broker that lets "app" do only what it is told to."""
    users = 'username="admin" password="a" user_admin="a" user_app="b"'
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    admin = {**login, "sasl.username": "admin", "sasl.password": "a"}
    with EmbeddedKafka(properties=properties, client_settings=admin) as broker:
        yield broker


def test_what_the_user_may_not_do_is_told_rule_by_rule(guarded: EmbeddedKafka) -> None:
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    def allow(kind: Any, name: str, *operations: Any) -> None:
        prefixed = ResourcePatternType.LITERAL if kind == ResourceType.TOPIC else ResourcePatternType.PREFIXED
        rules = [AclBinding(kind, name, prefixed, "User:app", "*", o, AclPermissionType.ALLOW) for o in operations]
        for future in guarded.admin.create_acls(rules).values():
            future.result(20)

    guarded.create_topic("out")
    guarded.create_topic("markers")
    security = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="app", password="b")
    sink = KafkaSink(
        guarded.bootstrap_servers, "out", security=security, marker_topic="markers", transactional_id_prefix="app"
    )
    describe, operation = AclOperation.DESCRIBE, AclOperation
    steps: list[tuple[str, Callable[[], None]]] = [
        ("WRITE on topic 'out'", lambda: allow(ResourceType.TOPIC, "out", operation.WRITE)),
        ("READ on topic 'markers'", lambda: allow(ResourceType.TOPIC, "markers", operation.READ)),
        (
            "WRITE on transactional ids 'app'*",
            lambda: allow(ResourceType.TRANSACTIONAL_ID, "app", operation.WRITE, describe),
        ),
        ("READ on groups 'app'*", lambda: allow(ResourceType.GROUP, "app", operation.READ)),
    ]
    allow(ResourceType.TOPIC, "out", describe)
    allow(ResourceType.TOPIC, "markers", describe)
    for rule, grant in steps:
        error = refused(sink)
        assert f"does not allow this user {rule}" in error.what
        grant()
        while rule in _told(sink):
            time.sleep(0.05)  # rules reach the broker a moment later
    sink.preflight()
    bound = sink.bind(job_id=JOB_ID, sink="s")
    count, _, (committable,) = write(bound, table(value=pa.array([b"a"])))
    assert count == 1
    assert bound.sweep({}, remove=True) == []
    assert [r.value for r in guarded.read("out")] == [b"a"]

    def audited() -> ReadBack:
        reading = bound.open_audit(AuditScope(complete=True, progress=lambda text: None))
        reading.take(Decided(record=1, checkpoint=3, committable=committable, compared=True, committed=True))
        reading.read()
        return reading.result()

    with pytest.raises(TerminalError, match="refuses this user: TopicAuthorizationFailedError when reading topic out"):
        audited()
    allow(ResourceType.TOPIC, "out", operation.READ)
    while not (found := _unless_refused(audited)):
        time.sleep(0.05)
    assert (found.compared, found.disagreements) == (1, [])
    wrong = KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="app", password="wrong")
    error = refused(KafkaSink(guarded.bootstrap_servers, "out", security=wrong, marker_topic="markers"))
    assert "refuses this user" in error.what


def _unless_refused(audited: Callable[[], ReadBack]) -> ReadBack | None:
    try:
        return audited()
    except TerminalError:
        return None


def _told(sink: KafkaSink) -> str:
    try:
        sink.preflight()
    except DefinitionError as error:
        return error.what
    return ""
