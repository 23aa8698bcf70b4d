"""Which shards there are, in which order they may be read, and how far each has been.

A shard is read when its parents are read to their end, so that records of one key come in the order in which they were put.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.connectors.kinesis.client import KinesisStream

DONE = "done"
"""Stands for the position in a shard that was closed and is read to its end."""
EARLIEST, LATEST, SINCE = "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP "


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the service lists it."""

    id: str
    parents: Sequence[str]
    closed: bool


def list_shards(client: Any, stream: KinesisStream) -> dict[str, Shard]:
    """Return the shards that can still be read, by their ids."""
    shards: dict[str, Shard] = {}
    arguments: dict[str, Any] = dict(stream.argument)
    while True:
        answer = client.list_shards(**arguments)
        for each in answer["Shards"]:
            parents = [each[name] for name in ("ParentShardId", "AdjacentParentShardId") if each.get(name)]
            closed = "EndingSequenceNumber" in each["SequenceNumberRange"]
            shards[each["ShardId"]] = Shard(each["ShardId"], parents, closed)
        if not answer.get("NextToken"):
            return shards
        arguments = {"NextToken": answer["NextToken"]}


def first_positions(shards: Mapping[str, Shard], start: str) -> dict[str, str]:
    """Return where a job that starts for the first time begins in each shard.

    Args:
        start: EARLIEST, LATEST, or SINCE with a time in seconds since the epoch behind it. From LATEST on, shards that are closed have nothing.
    """
    if start == LATEST:
        return {id: DONE if shard.closed else LATEST for id, shard in shards.items()}
    return dict.fromkeys(shards, start)


def with_new(positions: Mapping[str, str], shards: Mapping[str, Shard]) -> dict[str, str]:
    """Return positions in which shards that are new begin with their first record, and without those that are done and no longer listed."""
    kept = {id: at for id, at in positions.items() if id in shards or at != DONE}
    return {**kept, **{id: EARLIEST for id in shards if id not in kept}}


def readable(positions: Mapping[str, str], shards: Mapping[str, Shard]) -> list[str]:
    """Return the shards that may be read now: not done, and every parent that still has a position is."""
    return [
        id
        for id, at in sorted(positions.items())
        if at != DONE
        and all(positions.get(parent, DONE) == DONE for parent in (shards[id].parents if id in shards else ()))
    ]


def iterator_arguments(position: str) -> dict[str, Any]:
    """Return how GetShardIterator is asked for what comes behind a position."""
    if position in (EARLIEST, LATEST):
        return {"ShardIteratorType": position}
    if position.startswith(SINCE):
        return {"ShardIteratorType": SINCE.strip(), "Timestamp": float(position.removeprefix(SINCE))}
    return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
