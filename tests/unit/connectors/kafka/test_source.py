"""What a user may say in a KafkaSource, what is refused at once, and what Spark's connector is then told."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from poundlock.connectors.base import BindableSource, SourceReading, SparkSource
from poundlock.connectors.kafka.options import columns, spark_options, until_filter
from poundlock.connectors.kafka.source import KafkaSource
from poundlock.errors import DefinitionError


def source(**given: Any) -> KafkaSource:
    return KafkaSource(**{"bootstrap_servers": "a:9092, b:9092", "topics": "t"} | given)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"bootstrap_servers": "a"}, "not a list of host:port"),
        ({"bootstrap_servers": ""}, "not a list of host:port"),
        ({"topics": None}, "exactly one of"),
        ({"pattern": "x"}, "exactly one of"),
        ({"topics": []}, "names no topic"),
        ({"topics": "a b"}, "'a b' is not a topic name"),
        ({"topics": None, "pattern": "("}, "no regular expression"),
        ({"topics": None, "partitions": {"t": []}}, "partitions of 't'"),
        ({"start": "soon"}, "neither a time nor a known word"),
        ({"max_records_per_checkpoint": 0}, "not a positive number"),
        ({"isolation": "committed"}, "'committed' is not known"),
        ({"format": "yaml"}, "'yaml' is not known"),
        ({"metadata": {"x": "time"}}, "has no 'time'"),
        ({"metadata": {"topic": "key"}}, "a name of its own"),
        ({"options": {"failOnDataLoss": "false"}}, "'failOnDataLoss' .* set by KafkaSource itself"),
        ({"options": {"kafka.isolation.level": "read_uncommitted"}}, "kafka.isolation.level"),
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
    assert isinstance(s, SparkSource)
    assert isinstance(s, BindableSource)
    assert isinstance(s.bind(job="j", name="n"), SourceReading)


@pytest.mark.parametrize(
    ("given", "option", "value", "reads", "not_read"),
    [
        ({"topics": ["t", "u"]}, "subscribe", "t,u", "u", "tt"),
        ({"topics": None, "pattern": "t.*"}, "subscribePattern", "t.*", "tt", "at"),
        ({"topics": None, "partitions": {"t": [2, 0]}}, "assign", '{"t": [0, 2]}', "t", "u"),
    ],
)
def test_subscription(given: dict[str, Any], option: str, value: str, reads: str, not_read: str) -> None:
    s = source(**given)
    assert spark_options(s, "earliest", None)[option] == value
    assert s.reads(reads)
    assert not s.reads(not_read)


def test_options() -> None:
    told = spark_options(source(options={"kafka.max.poll.records": 7}, max_records_per_checkpoint=9), "earliest", "g")
    assert told["failOnDataLoss"] == "true"
    assert told["kafka.isolation.level"] == "read_committed"
    assert told["kafka.max.poll.records"] == "7"
    assert told["maxOffsetsPerTrigger"] == "9"
    assert told["groupIdPrefix"] == "g-reader"
    assert "maxOffsetsPerTrigger" not in spark_options(source(max_records_per_checkpoint=None), "earliest", None)
    assert int(spark_options(source(), "earliest", None)["maxOffsetsPerTrigger"]) > 0


def test_columns() -> None:
    assert columns(source())[:6] == ["key", "value", "topic", "partition", "offset", "timestamp"]
    assert "headers" in columns(source(include_headers=True))
    named = columns(source(metadata={"kafka_time": "timestamp", "h": "headers"}))
    assert named[-2:] == ["timestamp AS `kafka_time`", "headers AS `h`"]
    assert spark_options(source(metadata={"h": "headers"}), "earliest", None)["includeHeaders"] == "true"


def test_until_filter() -> None:
    assert until_filter({}) == "false"
    assert until_filter({("t", 1): 5, ("t", 0): 3}) == (
        "CASE topic WHEN 't' THEN CASE partition WHEN 0 THEN offset < 3L WHEN 1 THEN offset < 5L ELSE false END "
        "ELSE false END"
    )


def test_group_is_made_of_the_job_unless_named() -> None:
    assert source().bind(job="j", name="n").group == "poundlock-j"
    assert source(group_id="g").bind(job="j", name="n").group == "g"
    assert source(group_id="").bind(job="j", name="n").group == ""


def test_secrets_are_not_shown() -> None:
    s = source(options={"kafka.sasl.jaas.config": "hush"}, client_options={"sasl.password": "hush"})
    assert "hush" not in repr(s)
    assert "hush" not in repr(spark_options(s, "earliest", None))


def test_decoder() -> None:
    assert source().decoder() is None
    decoder = source(format="json", schema="ts timestamp, user string").decoder()
    assert decoder is not None
    assert decoder.schema().names == ["ts", "user"]
