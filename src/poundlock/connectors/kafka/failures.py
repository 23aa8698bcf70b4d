"""What goes wrong between Spark's connector and Kafka, in words: topic, partition, range, and what to do now.

A text that is not known gives None, never a guess; data that is gone is always a SourceGoneError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from re import Match

from poundlock.errors import PoundlockError, SourceGoneError, TerminalError, TransientError

__all__ = ["deleted", "expired", "explain", "recreated"]

_NEW = 'give the job a new checkpoint_dir and start="earliest" to go on with what is there'
_TP = r"([A-Za-z0-9._-]+)-(\d+)"
_Maker = Callable[[Match[str], str], PoundlockError]


def expired(
    topic: str, partition: int, first: int, last: int, why: str = "they have expired or were deleted"
) -> SourceGoneError:
    """Return the error for records [first, last) that were not read yet and are gone."""
    return SourceGoneError(
        f"topic {topic!r} partition {partition}: offsets {first} to {last} were not read yet and are gone: {why}",
        next=f"raise the topic's retention; {_NEW}",
    )


def recreated(topic: str, detail: str) -> SourceGoneError:
    """Return the error for a topic that is not the one read before."""
    return SourceGoneError(
        f"topic {topic!r} is not the one this job has read: it was deleted and created again ({detail})", next=_NEW
    )


def deleted(topic: str, detail: str) -> SourceGoneError:
    """Return the error for a topic or partition that is no longer there."""
    return SourceGoneError(
        f"topic {topic!r} is gone from Kafka: {detail}", next=f"create it again and {_NEW}, or read other topics"
    )


def _range(match: Match[str], servers: str) -> PoundlockError:
    first, last, topic, partition = match.groups()
    return expired(topic, int(partition), int(first), int(last))


def _reset(match: Match[str], servers: str) -> PoundlockError:
    topic, partition, wanted, there = match.groups()
    return expired(topic, int(partition), int(wanted), int(there))


def _back(match: Match[str], servers: str) -> PoundlockError:
    topic, partition, before, now = match.groups()
    return recreated(topic, f"partition {partition} was at offset {before} and now ends at {now}")


def _partitions_gone(match: Match[str], servers: str) -> PoundlockError:
    named = re.findall(_TP, match[1])
    topic = named[0][0] if named else match[1]
    return deleted(topic, f"partitions {', '.join(p for _, p in named)} are not there")


def _late_partition(match: Match[str], servers: str) -> PoundlockError:
    topic, partition, offset = match.groups()
    return expired(topic, int(partition), 0, int(offset), "the partition is new to this job and does not begin at 0")


def _unknown_topic(match: Match[str], servers: str) -> PoundlockError:
    return SourceGoneError(
        f"a topic of this source is not in Kafka at {servers}: it was deleted, or never there", next=_NEW
    )


def _time(match: Match[str], servers: str) -> PoundlockError:
    topic, partition, offset, value = match.groups()
    return TerminalError(
        f"topic {topic!r} partition {partition} offset {offset}: the Kafka timestamp {value} is not in milliseconds",
        next="correct the producer; start behind that record with StartingOffsets.offsets({…})",
    )


def _refused(match: Match[str], servers: str) -> PoundlockError:
    return TerminalError(
        f"Kafka at {servers} refuses this user: {match[0][:300]}",
        next="check KafkaSecurity(…) and the user's rights: READ and DESCRIBE on topics and on groups with this prefix",
    )


def _away(match: Match[str], servers: str) -> PoundlockError:
    return TransientError(f"Kafka at {servers} does not answer: {match[0][:200]}", next="check that the brokers run")


def _moved(match: Match[str], servers: str) -> PoundlockError:
    return TransientError(f"partitions were added or removed in Kafka at {servers} while Spark was looking")


# In this order: a text often carries several of them, the particular one before the general one.
_KNOWN: tuple[tuple[re.Pattern[str], _Maker], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (rf"Could not read records in offset \[(\d+), (\d+)\) for topic partition\s+{_TP}", _range),
        (rf"Starting offset for {_TP} was (\d+) but consumer reset to (\d+)", _reset),
        (rf"Partition {_TP} offset was changed from (\d+) to (\d+)", _back),
        (r"Partitions (?:Set|HashSet)?\(?([^)\n]*?)\)? have been deleted", _partitions_gone),
        (r"Cannot find initial offsets for partitions (?:Set|HashSet)?\(?([^)\n]*?)\)?\.", _partitions_gone),
        (rf"Added partition {_TP} starts from (\d+) instead of 0", _late_partition),
        (
            r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+) that overflows",
            _time,
        ),
        (r"(?:Sasl|Ssl)AuthenticationException[^\n]*|(?:Topic|Group|Cluster)AuthorizationException[^\n]*", _refused),
        (r"UnknownTopicOrPartitionException|UnknownTopicIdException", _unknown_topic),
        (
            r"you must specify all TopicPartitions|offsets don't match what are assigned"
            r"|KAFKA_(?:START|TIMESTAMP)_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            r"|should provide the same topic partitions in pre-fetched offset",
            _moved,
        ),
        (
            r"Timed out waiting for a node assignment[^\n]*|Failed to create new KafkaAdminClient[^\n]*"
            r"|Failed to construct kafka consumer[^\n]*|No resolvable bootstrap urls[^\n]*"
            r"|Cannot fetch record for offset[^\n]*"
            r"|kafka\.common\.errors\.(?:Timeout|Disconnect|Network)Exception[^\n]*",
            _away,
        ),
    )
)


def explain(message: str, servers: str, reads: Callable[[str], bool]) -> PoundlockError | None:
    """Return the error behind a text of Spark's connector, or None.

    Args:
        message: the whole text, causes and all.
        servers: the source's servers, for the message.
        reads: whether the source reads a topic; texts about other topics are some other source's.
    """
    for pattern, make in _KNOWN:
        for match in pattern.finditer(message):
            topics = [t for t, _ in re.findall(_TP, match[0])] if make in _NAMING else []
            if not topics or any(reads(t) for t in topics):
                return make(match, servers)
    return None


_NAMING = {_range, _reset, _back, _partitions_gone, _late_partition}
