"""What a KafkaSource and a KafkaSink may say: checks of their settings when they are written down, and of a sink's columns.

Each refusal names the setting and the value to give it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from poundlock.arguments import TEXT, check_choices, check_kind, check_object, defaults_of, refuse_without_effect
from poundlock.calls import check_function
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.sink.transaction_ids import PREFIX
from poundlock.errors import DefinitionError, required
from poundlock.values import duration

if TYPE_CHECKING:
    from poundlock.connectors.kafka.sink.sink import KafkaSink
    from poundlock.connectors.kafka.source.source import KafkaSource

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FORMATS = ("raw", "json", "csv", "avro", "protobuf")
_PROTOBUF = {"message", "descriptor_set", "message_class"}
_SOURCE_CHOICES = {"isolation": ("read_committed", "read_uncommitted")}
_SINK_CHOICES = {
    "guarantee": ("exactly-once", "at-least-once", "none"),
    "compression": ("none", "gzip", "snappy", "lz4", "zstd"),
    "acks": ("all", "1", "0"),
    "commit_mode": ("two_phase", "per_task"),
}
# Each of these is a field of KafkaSink, or must have one value or exactly-once would be lost in silence.
_OWN = {
    "bootstrap.servers", "transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks",
    "request.required.acks", "compression.type", "compression.codec", "on_delivery", "delivery.report.only.error",
    "message.timeout.ms", "delivery.timeout.ms", "message.send.max.retries", "retries",
}  # fmt: skip


FIELDS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "timestamp_type")
"""What a record has, by the names used here, in the order of a raw row's columns."""


def is_topic(name: Any) -> bool:
    """Return whether something can be the name of a topic."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _need_topic(name: Any) -> None:
    if not is_topic(name):
        raise DefinitionError(f"{name!r} is not a topic name", next='use letters, digits, ".", "_" and "-"')


def _check_common(given: KafkaSource | KafkaSink, choices: Mapping[str, Sequence[str]]) -> None:
    servers = [s.strip() for s in str(given.bootstrap_servers or "").split(",")]
    if not all(re.fullmatch(r"\S+:[0-9]{1,5}", s) and int(s.rpartition(":")[2]) < 1 << 16 for s in servers):
        raise DefinitionError(
            f"bootstrap_servers={given.bootstrap_servers!r} is not a list of host:port",
            next='write bootstrap_servers="localhost:9092"',
        )
    object.__setattr__(given, "bootstrap_servers", ",".join(servers))
    check_choices(given, choices)
    if not isinstance(given.format, RegistryFormat):
        check_choices(given, {"format": _FORMATS})
    elif given.format_options:
        raise DefinitionError(
            f"format_options mean nothing to {type(given.format).__name__}, which says them itself",
            next="leave them out",
        )
    if given.key_format is not None:
        check_object(given.key_format, "key_format", (RegistryFormat,), "write key_format=AvroConfluent(…)")


def _is_positive(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


# --- sources ----------------------------------------------------------------------------------------------------------


def check_source(source: KafkaSource) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    _check_common(source, _SOURCE_CHOICES)
    _check_partitions(source)
    for name in ("max_records_per_checkpoint", "min_partitions"):
        value = getattr(source, name)
        if value is not None and not _is_positive(value):
            raise DefinitionError(f"{name}={value!r} is not a positive number", next=f"write {name}=100_000")
    if source.max_bytes == 0:
        raise DefinitionError(
            "max_bytes_per_checkpoint=0 lets nothing be read", next='write max_bytes_per_checkpoint="2 GB"'
        )
    for column, shown in source.metadata.items():
        if shown not in FIELDS:
            raise DefinitionError(
                f"metadata column {column!r}: a Kafka record has no {shown!r}", next=f"use one of {', '.join(FIELDS)}"
            )
    if taken := sorted(name for name, shown in source.metadata.items() if name in FIELDS and name != shown):
        raise DefinitionError(f"metadata column {taken[0]!r} has a name of its own already", next="choose another name")
    if source.value_schema is not None and source.format not in ("json", "csv"):
        instead = 'or give format="json"' if source.format == "raw" else None
        word = source.format.word if isinstance(source.format, RegistryFormat) else source.format
        raise DefinitionError(
            f"schema= means nothing to format {word!r}",
            next=f"leave it out, {instead}" if instead else "leave it out: the format says it",
        )
    _check_formats(source)
    if source.format == "raw" and source.format_options:
        raise DefinitionError(
            "format_options mean nothing to format 'raw'", next='leave them out, or give format="json"'
        )


def _check_formats(source: KafkaSource) -> None:
    """Check the formats of a registry, of values and of keys."""
    check_kind("KafkaSource", TEXT, {"key_prefix": source.key_prefix})
    for format in (source.format, source.key_format):
        if isinstance(format, RegistryFormat):
            format.refuse_of_source()
    if source.key_format is None:
        refuse_without_effect("KafkaSource", {"key_prefix": (source.key_prefix, "")}, because="there is no key_format")
        return
    if source.format == "raw":
        raise DefinitionError(
            'KafkaSource: key_format means nothing to format "raw", which leaves the key as it is',
            next="leave it out, or give a format of the value",
        )
    decoder = source.decoder()
    names = [*(decoder.schema().names if decoder is not None else ()), *source.carried]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(
            f"KafkaSource: key and value both have a column {twice[0]!r}", next='give key_prefix="key_"'
        )


def _check_partitions(source: KafkaSource) -> None:
    """Check which topics and partitions are named."""
    if sum(x is not None for x in (source.topics, source.pattern, source.partitions)) != 1:
        raise DefinitionError(
            "KafkaSource needs exactly one of topics, pattern and partitions", next='write topics="my_topic"'
        )
    named = source.topics if source.topics is not None else source.partitions
    for topic in named or ():
        _need_topic(topic)
    if named is not None and not named:
        raise DefinitionError("KafkaSource names no topic", next='write topics="my_topic"')
    for topic, numbers in (source.partitions or {}).items():
        if not numbers or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise DefinitionError(f"partitions of {topic!r}: {numbers!r}", next=f"write {{{topic!r}: [0, 1]}}")
    if source.pattern is not None:
        try:
            re.compile(source.pattern)
        except re.error as error:
            raise DefinitionError(
                f"pattern {source.pattern!r} is no regular expression: {error}", next='write pattern="events-.*"'
            ) from error


# --- sinks ------------------------------------------------------------------------------------------------------------


def check_sink(sink: KafkaSink) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    _check_common(sink, _SINK_CHOICES)
    _check_topics(sink)
    _check_rows(sink)
    given = sink.transactional_id_prefix
    if given is not None and not (isinstance(given, str) and PREFIX.fullmatch(given)):
        raise DefinitionError(
            f"transactional_id_prefix={sink.transactional_id_prefix!r} cannot begin a transactional id",
            next='use letters, digits, ".", "_" and "-", such as "orders"',
        )
    if sink.timeout_ms < 1000:
        raise DefinitionError(
            f"transaction_timeout={sink.transaction_timeout!s} is too short", next='write transaction_timeout="15 min"'
        )
    if sink.acks != "all" and sink.guarantee != "none":
        raise DefinitionError(
            f'acks="{sink.acks}" may lose what the broker has confirmed: that is not {sink.guarantee}',
            next='leave acks out, or say guarantee="none"',
        )
    if sink.commit_mode == "per_task" and sink.guarantee != "exactly-once":
        raise DefinitionError(
            f'commit_mode="per_task" is a way to commit transactions, and guarantee="{sink.guarantee}" has none',
            next="leave commit_mode out",
        )
    if sink.guarantee != "exactly-once":
        names = ("transactional_id_prefix", "marker_topic", "transaction_timeout")
        standing = defaults_of(type(sink), *names)
        standing["transaction_timeout"] = duration(standing["transaction_timeout"])
        refuse_without_effect(
            "KafkaSink",
            {name: (getattr(sink, name), standing[name]) for name in names},
            because=f"guarantee={sink.guarantee!r} has no transactions",
        )
    if own := sorted(name for name in sink.client_options if name.lower() in _OWN):
        raise DefinitionError(
            f"client option {own[0]!r} is set by KafkaSink itself",
            next="use the field of KafkaSink for it, such as transaction_timeout, compression or acks",
        )
    _ = sink.produce_settings  # refuses what means nothing


def _check_topics(sink: KafkaSink) -> None:
    from poundlock.connectors.kafka.sink.sink import TopicExpression

    topic = sink.topic
    if isinstance(topic, str):
        _need_topic(topic)
    elif not isinstance(topic, TopicExpression) and not callable(topic):
        raise DefinitionError(f"topic={topic!r} is no topic", next='write topic="orders", or a TopicExpression(…)')
    elif not isinstance(topic, TopicExpression):
        check_function(topic, "KafkaSink: topic", "record")
    if not is_topic(sink.marker_topic) or sink.marker_topic == topic:
        raise DefinitionError(
            f"marker_topic={sink.marker_topic!r} cannot hold the markers",
            next='write marker_topic="poundlock-markers", a topic that nobody writes to',
        )
    if sink.create_topic is not None:
        if not _is_positive(sink.create_topic):
            raise DefinitionError(
                f"create_topic={sink.create_topic!r} is not a number of partitions", next="write create_topic=3"
            )
        if not isinstance(topic, str):
            raise DefinitionError("create_topic= needs one fixed topic", next="create the topics before the job runs")


def _check_rows(sink: KafkaSink) -> None:
    if sink.format == "raw" and not isinstance(sink.value, str):
        raise DefinitionError(
            f"value={sink.value!r} is not one column",
            next='write value="value", or format="json" to encode several columns',
        )
    if isinstance(sink.value, Sequence) and not isinstance(sink.value, str) and not sink.value:
        raise DefinitionError("value=[] names no column", next="leave it out to encode all columns")
    if sink.key is not None and not isinstance(sink.key, str) and sink.key_format is None:
        raise DefinitionError(
            f"key={sink.key!r} is not one column", next="name one, or give key_format=…, which encodes several"
        )
    if sink.key_format is not None and not sink.key:
        raise DefinitionError("key_format means nothing without key", next='name its columns: key=["id"]')
    for format in (sink.format, sink.key_format):
        if isinstance(format, RegistryFormat):
            format.refuse_of_sink()
    if not isinstance(sink.headers, str | Mapping | None):
        raise DefinitionError(f"headers={sink.headers!r} are none", next="write headers={'trace': 'trace_id'}")
    known = {"avro": {"avro_schema", "schema_id"}, "protobuf": _PROTOBUF}.get(str(sink.format), set())
    if strange := sorted(set(sink.format_options) - known):
        raise DefinitionError(
            f"format {sink.format!r} has no option {strange[0]!r}",
            next=f"use one of {', '.join(sorted(known))}" if known else "leave format_options out",
        )
    if sink.format == "protobuf":
        from poundlock.formats.decode import decoder

        decoder("protobuf", **sink.format_options)
    if sink.format == "avro":
        required("fastavro", "Avro", "avro")


def check_columns(sink: KafkaSink, name: str, columns: Sequence[str]) -> None:
    """Raise DefinitionError unless rows with these columns have what the sink reads of them."""
    needed = [sink.value] if isinstance(sink.value, str) else list(sink.value or ())
    needed += [column for column in (sink.partition, sink.timestamp) if column is not None]
    needed += [sink.key] if isinstance(sink.key, str) else list(sink.key or ())
    if sink.headers is not None:
        needed += [sink.headers] if isinstance(sink.headers, str) else list(sink.headers.values())
    need_columns(name, needed, columns, next_of=lambda column: _instead(sink, column))


def _instead(sink: KafkaSink, column: str) -> str | None:
    if sink.format == "raw" and column == sink.value == "value":
        return 'say format="json" to write all columns, or value="…" for the one to write as it is'
    return None
