"""What a Kafka sink asks of its cluster before anything starts: version, timeout, topics, access.

Each refusal names the setting and the value to give it; nothing is made but the marker topic and, where asked for, the topic.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from poundlock.connectors.examination import Examination
from poundlock.connectors.kafka.client_loader import confluent
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.writing import check_registry
from poundlock.connectors.kafka.sink.transactions import transactions
from poundlock.errors import CommitUnknown, DefinitionError, TransientError
from poundlock.values import SystemClock, ms_ahead

if TYPE_CHECKING:
    from poundlock.connectors.kafka.sink.sink import KafkaSink


_log = logging.getLogger(__name__)
_numbers = itertools.count()
_SECONDS = 5.0
_OLDEST = (3, 0)


def preflight(sink: KafkaSink) -> None:
    """Raise unless the sink can work; see KafkaSink.preflight."""
    topics, admin = _topics(sink)
    once = sink.guarantee == "exactly-once"
    if isinstance(sink.topic, str):
        _check_topic(sink, admin, topics, sink.topic, sink.create_topic, "WRITE")
    if once:
        _check_topic(sink, admin, topics, sink.marker_topic, 1, "READ")
        _check_transactions(sink, admin)
    for format, is_key in ((sink.format, False), (sink.key_format, True)):
        if isinstance(format, RegistryFormat):
            check_registry(format, sink.topic if isinstance(sink.topic, str) else None, is_key=is_key)


def examine(sink: KafkaSink) -> Examination:
    """Raise as `preflight` does, and make no topic.

    Where the topic of markers is not there, its transaction is not begun either, and the broker's clock is not known.
    """
    topics, admin = _topics(sink)
    missing: list[str] = []
    wanted = [(sink.topic, sink.create_topic, "WRITE")] if isinstance(sink.topic, str) else []
    wanted += [(sink.marker_topic, 1, "READ")] if sink.guarantee == "exactly-once" else []
    for topic, create, operation in wanted:
        if topic not in topics and create is not None:
            missing.append(topic)
        else:
            _check_topic(sink, admin, topics, topic, None, operation)
    ahead = None
    if sink.guarantee == "exactly-once":
        ahead = _check_transactions(sink, admin, marked=sink.marker_topic not in missing)
    return Examination([f"topic {topic!r}" for topic in missing], ahead, f"Kafka at {sink.bootstrap_servers}")


def _topics(sink: KafkaSink) -> tuple[set[str], Any]:
    """Return the cluster's topics and its client. Raises unless it answers, and is new enough."""
    cluster = Cluster(sink.bootstrap_servers, sink.security.confluent(), timeout=_SECONDS)
    topics, admin = set(cluster.partitions(_SECONDS)), cluster.admin()
    if sink.guarantee == "exactly-once":
        _check_version(sink)
    return topics, admin


def _check_version(sink: KafkaSink) -> None:
    try:
        version = transactions(sink.bootstrap_servers, sink.security).broker_version()
    except CommitUnknown as error:
        raise TransientError(error.what, next="check bootstrap_servers, and that the brokers run") from error
    if version < _OLDEST:
        raise DefinitionError(
            f"Kafka at {sink.bootstrap_servers} is version {'.'.join(map(str, version))}",
            next='exactly-once needs brokers of 3.0 or later; with older ones say guarantee="at-least-once"',
        )


def _check_topic(sink: KafkaSink, admin: Any, topics: set[str], topic: str, create: int | None, operation: str) -> None:
    kafka = confluent()
    if topic not in topics:
        if create is None:
            raise DefinitionError(
                f"topic {topic!r} does not exist on Kafka at {sink.bootstrap_servers}",
                next=f"kafka-topics.sh --create --topic {topic}; or create_topic=3 makes it",
            )
        _create(sink, admin, topic, create)
    try:
        description = _described(admin, topic)
    except kafka.KafkaException as error:
        raise _refused(sink, error, f"topic {topic!r}", operation) from error
    allowed = description.authorized_operations
    if allowed is not None and operation not in {o.name for o in allowed}:
        raise _denied(sink, f"topic {topic!r}", operation)


def _described(admin: Any, topic: str) -> Any:
    """Return what the cluster says of a topic; one that was just made is not known everywhere at once."""
    kafka, end = confluent(), time.monotonic() + _SECONDS
    how = {"include_authorized_operations": True, "request_timeout": _SECONDS}
    while True:
        try:
            return admin.describe_topics(kafka.TopicCollection([topic]), **how)[topic].result(_SECONDS)
        except kafka.KafkaException as error:
            if error.args[0].code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > end:
                raise
            time.sleep(0.05)


def _create(sink: KafkaSink, admin: Any, topic: str, partitions: int) -> None:
    kafka = confluent()
    new = confluent("admin").NewTopic(topic, num_partitions=partitions, replication_factor=-1)
    try:
        admin.create_topics([new], request_timeout=_SECONDS)[topic].result(_SECONDS)
    except kafka.KafkaException as error:
        if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            raise _refused(sink, error, f"topic {topic!r}", "CREATE") from error


def _check_transactions(sink: KafkaSink, admin: Any, *, marked: bool | None = None) -> int | None:
    """Do what the tasks will, without a message, and abort it: the broker says whether that is allowed.

    Args:
        marked: None = as a job's start does. Else the broker is asked for its time besides, and whether the transaction has a marker, which
            needs its topic.

    Returns:
        By how many ms the clock of the id's coordinator is ahead of this machine's; None where it was not asked.
    """
    kafka = confluent()
    # Two jobs that start at once must not fence each other, nor must two sinks of a job that are asked at once.
    tid = f"{sink.effective_prefix}.preflight.{os.getpid()}.{next(_numbers)}"
    settings = {
        "bootstrap.servers": sink.bootstrap_servers, "log_level": 0, **sink.security.confluent(), "transactional.id": tid,
        "transaction.timeout.ms": sink.timeout_ms,
    }  # fmt: skip
    producer = kafka.Producer(settings, logger=_log)  # what it calls fatal it would print besides
    try:
        if marked is not False:
            producer.list_topics(sink.marker_topic, timeout=_SECONDS)
        producer.init_transactions(_SECONDS)
        if marked is False:
            return None
        producer.begin_transaction()
        marker = kafka.TopicPartition(sink.marker_topic, 0, 0, metadata="preflight")
        clock = SystemClock()
        asked = clock.now_ms()
        producer.send_offsets_to_transaction([marker], _group_metadata(tid), _SECONDS)
        answered = clock.now_ms()
        try:
            seen = transactions(sink.bootstrap_servers, sink.security).describe(tid) if marked else None
        finally:
            producer.abort_transaction(_SECONDS)
        return None if seen is None or seen.started_ms < 0 else ms_ahead(seen.started_ms, asked, answered)
    except kafka.KafkaException as error:
        if error.args[0].code() == kafka.KafkaError.INVALID_TRANSACTION_TIMEOUT:
            most = _most_ms(admin)
            value = f'"{most} ms" or less' if most is not None else "a shorter time"
            raise DefinitionError(
                f"transaction_timeout={sink.transaction_timeout!s} is longer than Kafka at {sink.bootstrap_servers} allows",
                next=f"give transaction_timeout={value}, or raise transaction.max.timeout.ms of the brokers to {sink.timeout_ms}",
            ) from error
        prefix = f"{sink.effective_prefix!r}*"
        if error.args[0].code() == kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise _denied(sink, f"groups {prefix}", "READ") from error
        raise _refused(sink, error, f"transactional ids {prefix}", "WRITE") from error


def _most_ms(admin: Any) -> int | None:
    """Return the brokers' transaction.max.timeout.ms, None where this user may not look."""
    kafka, resource = confluent(), confluent("admin").ConfigResource
    try:
        broker = next(iter(admin.list_topics(timeout=_SECONDS).brokers))
        asked = resource(resource.Type.BROKER, str(broker))
        settings = admin.describe_configs([asked], request_timeout=_SECONDS)[asked].result(_SECONDS)
        return int(settings["transaction.max.timeout.ms"].value)
    except (kafka.KafkaException, KeyError, ValueError, TypeError, StopIteration):
        return None


def _refused(sink: KafkaSink, error: Any, what: str, operation: str) -> DefinitionError | TransientError:
    kafka = confluent().KafkaError
    denied = (
        kafka.TOPIC_AUTHORIZATION_FAILED, kafka.GROUP_AUTHORIZATION_FAILED, kafka.CLUSTER_AUTHORIZATION_FAILED,
        kafka.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )  # fmt: skip
    if error.args[0].code() in denied:
        return _denied(sink, what, operation)
    return TransientError(
        f"Kafka at {sink.bootstrap_servers}: {what} cannot be checked: {error.args[0].str()}",
        next="see that the brokers run and what they log",
    )


def _denied(sink: KafkaSink, what: str, operation: str) -> DefinitionError:
    return DefinitionError(
        f"Kafka at {sink.bootstrap_servers} does not allow this user {operation} on {what}",
        next=f"let the cluster's administrator allow it: kafka-acls.sh --add --operation {operation} …",
    )


def _group_metadata(group: str) -> Any:
    """Return the metadata of a group nobody is a member of; the client makes it of a consumer only, which reaches no broker."""
    consumer = confluent().Consumer({"group.id": group, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
