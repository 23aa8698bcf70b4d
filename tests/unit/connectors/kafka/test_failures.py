"""Texts of Spark's Kafka connector, as it really writes them, become errors with topic, partition and range."""

from __future__ import annotations

import pytest

from poundlock.connectors.kafka.failures import explain
from poundlock.errors import SourceGoneError, TerminalError, TransientError

LOSS = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Some data may have been lost because they are "
    "not available in Kafka any more;\neither the data was aged out by Kafka or the topic may have been deleted before "
    "all the data in the\ntopic was processed.\nIf you don't want your streaming query to fail on such cases, set the "
    "source option failOnDataLoss to false.\nReason: "
)
FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "


@pytest.mark.parametrize(
    ("text", "error", "parts"),
    [
        (
            LOSS + "Could not read records in offset [5, 10) for topic partition my-topic.x-3\nwith consumer group g.",
            SourceGoneError,
            ["'my-topic.x'", "partition 3", "offsets 5 to 10"],
        ),
        (
            LOSS + "Partition t-0 offset was changed from 5 to 3.\nThis could be either 1) a user error",
            SourceGoneError,
            ["'t'", "deleted and created again", "partition 0 was at offset 5 and now ends at 3"],
        ),
        (LOSS + "Starting offset for t-1 was 5 but consumer reset to 8.", SourceGoneError, ["partition 1", "5 to 8"]),
        (LOSS + "Partitions Set(t-0, t-1) have been deleted.", SourceGoneError, ["'t' is gone", "partitions 0, 1"]),
        (LOSS + "Added partition t-4 starts from 7 instead of 0.", SourceGoneError, ["partition 4", "0 to 7"]),
        (
            LOSS + "Cannot find initial offsets for partitions Set(t-2). They may have been deleted.",
            SourceGoneError,
            ["'t' is gone", "partitions 2"],
        ),
        (
            FAILED + "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this",
            SourceGoneError,
            ["not in Kafka at h:1"],
        ),
        (
            FAILED
            + "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: x",
            TransientError,
            ["h:1 does not answer", "Timed out waiting for a node assignment"],
        ),
        (
            FAILED + "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient",
            TransientError,
            ["h:1 does not answer"],
        ),
        (
            FAILED + "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed\nat x",
            TerminalError,
            ["refuses this user", "Authentication failed"],
        ),
        (
            FAILED + "org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized to access group: g",
            TerminalError,
            ["refuses this user"],
        ),
        (
            FAILED
            + "assertion failed: If startingOffsets contains specific offsets, you must specify all TopicPartitions.",
            TransientError,
            ["partitions were added or removed"],
        ),
        (
            "Record at topic t partition 1 offset 9 has timestamp value 99999999999999999 that overflows when converting",
            TerminalError,
            ["partition 1 offset 9", "99999999999999999"],
        ),
    ],
)
def test_known(text: str, error: type[Exception], parts: list[str]) -> None:
    explained = explain(text, "h:1", lambda topic: True)
    assert type(explained) is error
    assert not [part for part in parts if part not in explained.what]
    assert explained.next or error is TransientError


@pytest.mark.parametrize("text", ["", "java.lang.OutOfMemoryError: Java heap space", FAILED + "division by zero"])
def test_unknown_is_not_guessed(text: str) -> None:
    assert explain(text, "h:1", lambda topic: True) is None


def test_another_sources_topic_is_not_explained() -> None:
    text = LOSS + "Partition t-0 offset was changed from 5 to 3."
    assert explain(text, "h:1", lambda topic: topic == "u") is None
    assert explain(text, "h:1", lambda topic: topic == "t") is not None
