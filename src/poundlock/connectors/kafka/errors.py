"""What goes wrong between a job and the topics it reads, in words: topic, partition, range, and what to do now.

Data that is gone is always a SourceGoneError: nothing is skipped in silence.
"""

from __future__ import annotations

from typing import Any

from poundlock.errors import SourceGoneError, TerminalError, TransientError

_NEW = 'give the job a new checkpoint_dir and start="earliest" to go on with what is there'


def expired(topic: str, partition: int, first: int, last: int) -> SourceGoneError:
    """Return the error for records [first, last) that were not read yet and are gone."""
    return SourceGoneError(
        f"topic {topic!r} partition {partition}: offsets {first} to {last} were not read yet and are gone: they have"
        " expired or were deleted",
        next=f"raise the topic's retention; {_NEW}",
        kind="offsets_expired",
    )


def recreated(topic: str, detail: str) -> SourceGoneError:
    """Return the error for a topic that is not the one read before."""
    return SourceGoneError(
        f"topic {topic!r} is not the one this job has read: it was deleted and created again ({detail})",
        next=_NEW,
        kind="topic_recreated",
    )


def went_back(topic: str, partition: int, reached: int, end: int) -> SourceGoneError:
    """Return the error for a partition that ends before what was read of it."""
    what = f"topic {topic!r} partition {partition} was read to {reached} and ends at {end}"
    return SourceGoneError(
        f"{what}: it was created again, its brokers lost records, or a savepoint was edited", next=_NEW
    )


def deleted(topic: str, detail: str) -> SourceGoneError:
    """Return the error for a topic or partition that is no longer there."""
    return SourceGoneError(
        f"topic {topic!r} is gone from Kafka: {detail}",
        next=f"create it again and {_NEW}, or read other topics",
        kind="topic_deleted",
    )


def damaged(topic: str, partition: int, offset: int, why: str, *, next: str) -> TerminalError:
    """Return the error for the record batch at an offset that cannot be read; `why` is put behind its name."""
    return TerminalError(
        f"topic {topic!r} partition {partition} offset {offset}: the record batch there {why}", next=next
    )


def refused(servers: str, what: str) -> TerminalError:
    """Return the error for a user who may not read."""
    return TerminalError(
        f"Kafka at {servers} refuses this user: {what}",
        next="check KafkaSecurity(…) and the user's rights: READ and DESCRIBE on topics and on groups with this prefix",
    )


def unreadable(topic: str, partition: int, offset: int, after: int, why: str) -> TransientError:
    """Return the error for a range of which nothing came for too long."""
    return TransientError(
        f"topic {topic!r} partition {partition}: offsets {offset} to {after} cannot be read: {why}",
        next="check that the brokers run and that the partition has a leader",
    )


def text_of(error: Any) -> str:
    """Return what librdkafka says of an error, without how long it tried: that changes from call to call."""
    text = error.str() if hasattr(error, "str") else str(error)
    return str(text).split(" (after ")[0].removeprefix("FindCoordinator response error: ")
