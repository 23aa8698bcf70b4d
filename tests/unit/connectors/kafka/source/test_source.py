"""What a user may say in a KafkaSource, what is refused at once, and which columns its rows have."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from poundlock.connectors.base import BindableSource, SparkSource, SplitSource
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.source.client_properties import parse
from poundlock.connectors.kafka.source.source import KafkaSource
from poundlock.errors import DefinitionError
from poundlock.formats import ddl


def source(**given: Any) -> KafkaSource:
    return KafkaSource(**{"bootstrap_servers": "a:9092, b:9092", "topics": "t"} | given)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"bootstrap_servers": "a"}, "not a list of host:port"),
        ({"bootstrap_servers": ""}, "not a list of host:port"),
        ({"bootstrap_servers": "a:99999"}, "not a list of host:port"),
        ({"topics": None}, "exactly one of"),
        ({"pattern": "x"}, "exactly one of"),
        ({"topics": []}, "names no topic"),
        ({"topics": "a b"}, "'a b' is not a topic name"),
        ({"topics": None, "pattern": "("}, "no regular expression"),
        ({"topics": None, "partitions": {"t": []}}, "partitions of 't'"),
        ({"start": "soon"}, "neither a time nor a known word"),
        ({"max_records_per_checkpoint": 0}, "not a positive number"),
        ({"max_bytes_per_checkpoint": 0}, "lets nothing be read"),
        ({"max_bytes_per_checkpoint": "2 loaves"}, "'2 loaves' is not a size"),
        ({"options": {"maxBytesPerTrigger": "1g"}}, "set by KafkaSource itself"),
        ({"isolation": "committed"}, "'committed' is not known"),
        ({"format": "yaml"}, "'yaml' is not known"),
        ({"metadata": {"x": "time"}}, "has no 'time'"),
        ({"metadata": {"topic": "key"}}, "a name of its own"),
        ({"options": {"failOnDataLoss": "false"}}, "'failOnDataLoss' cannot be changed"),
        ({"options": {"kafka.isolation.level": "read_uncommitted"}}, "kafka.isolation.level"),
        ({"schema": "a int"}, "schema= means nothing to format 'raw'"),
        ({"format_options": {"nulls": "keep"}}, "format_options mean nothing"),
    ],
)
def test_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(DefinitionError, match=what) as caught:
        source(**given)
    assert caught.value.next


def test_it_is_a_value() -> None:
    s = source(topics=["t", "u"], end="latest")
    assert pickle.loads(pickle.dumps(s)) == s == source(topics=("t", "u"), end="latest")
    assert s.topics == ("t", "u")
    assert s.bootstrap_servers == "a:9092,b:9092"
    assert s.bounded
    assert isinstance(s, SplitSource)
    assert not isinstance(s, SparkSource)
    assert isinstance(s, BindableSource)
    bound = s.bind(job="j", name="n")
    assert isinstance(bound, SplitSource)
    assert pickle.loads(pickle.dumps(bound)) == bound


@pytest.mark.parametrize(
    ("given", "reads", "not_read"),
    [
        ({"topics": ["t", "u"]}, [("u", 7), ("t", None)], [("tt", 0)]),
        ({"topics": None, "pattern": "t.*"}, [("tt", 3)], [("at", 0)]),
        ({"topics": None, "partitions": {"t": [2, 0]}}, [("t", None), ("t", 2)], [("u", 0), ("t", 1)]),
    ],
)
def test_what_it_reads(given: dict[str, Any], reads: list[Any], not_read: list[Any]) -> None:
    s = source(**given)
    assert all(s.reads(*place) for place in reads)
    assert not any(s.reads(*place) for place in not_read)


def test_options_of_the_consumer_in_the_tasks() -> None:
    settings = parse(
        {
            "kafka.fetch.max.bytes": 1 << 22, "kafka.max.partition.fetch.bytes": "65536", "kafka.fetch.max.wait.ms": 0,
            "kafka.request.timeout.ms": "1500", "kafkaConsumer.pollTimeoutMs": 90_000, "kafka.check.crcs": True,
            "kafka.receive.buffer.bytes": "1048576", "kafka.client.id": "me", "maxRecordsPerPartition": 9,
        }
    )  # fmt: skip
    assert (settings.fetch_bytes, settings.max_wait_ms, settings.request_timeout_s) == (65536, 0, 1.5)
    assert (settings.patience_s, settings.receive_buffer, settings.client_id) == (90, 1 << 20, "me")
    assert settings.records_per_split == 9


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("kafka.max.poll.records", 7, "means nothing"),
        ("kafka.client.rack", "r1", "leader"),
        ("kafka.check.crcs", "false", "checksums are always checked"),
        ("kafka.fetch.max.bytes", "many", "not a positive number"),
        ("kafka.fetch.max.bytes", True, "not a positive number"),
        ("failOnDataLoss", "false", "lost data always stops the job"),
        ("startingOffsets", "latest", "set by KafkaSource itself"),
        ("kafka.sasl.jaas.config", "hush", "set by KafkaSource itself"),
        ("kafka.no.such.setting", 1, "'kafka.no.such.setting' means nothing"),
    ],
)
def test_no_option_is_ignored(option: str, value: Any, what: str) -> None:
    with pytest.raises(DefinitionError, match=what) as caught:
        source(options={option: value})
    assert caught.value.next
    assert "hush" not in str(caught.value)


def test_columns() -> None:
    assert source().schema().names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type"]
    assert "headers" in source(include_headers=True).schema().names
    named = source(metadata={"kafka_time": "timestamp", "h": "headers"}).schema()
    assert named.names[-2:] == ["kafka_time", "h"]
    assert ddl.parse(ddl.render(named)) == named


def test_columns_beside_decoded_ones() -> None:
    s = source(
        format="json", schema="ts timestamp, key string", metadata={"key": "key", "at": "offset"}, include_headers=True
    )
    schema = s.schema()
    assert schema.names == ["ts", "key", "at", "headers"]  # a field of the schema wins over a column of its name
    assert schema.field("key").type == "string"
    assert s.carried == ("key", "at", "headers")


def test_group_is_made_of_the_job_unless_named() -> None:
    assert source().bind(job="j", name="n").group == "poundlock-j"
    assert source(group_id="g").bind(job="j", name="n").group == "g"
    assert source(group_id="").bind(job="j", name="n").group == ""


def test_secrets_are_not_shown() -> None:
    security = KafkaSecurity(protocol="SASL_SSL", mechanism="PLAIN", username="u", password="hush")
    s = source(security=security, client_options={"sasl.password": "hush"})
    assert "hush" not in repr(s)
    assert "hush" not in repr(s.bind(job="j", name="n"))


def test_decoder() -> None:
    assert source().decoder() is None
    decoder = source(format="json", schema="ts timestamp, user string").decoder()
    assert decoder is not None
    assert decoder.schema().names == ["ts", "user"]
