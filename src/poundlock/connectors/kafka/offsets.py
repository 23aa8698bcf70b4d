"""Positions as Spark's connector writes them, {"topic": {"partition": offset}}, and as the driver counts with them.

An offset is always that of the next record to read; a partition that a position does not name was not read yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Partition = tuple[str, int]
Offsets = dict[Partition, int]


def names(partitions: Iterable[Partition]) -> str:
    """Return partitions for a person: a-0, a-1."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)


def to_json(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark's JSON, topics and partitions in order."""
    position: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        position.setdefault(topic, {})[str(partition)] = offset
    return position


def from_json(position: Mapping[str, Any] | None) -> Offsets:
    """Return the offsets of Spark's JSON; none for None."""
    return {(topic, int(p)): int(offset) for topic, ps in (position or {}).items() for p, offset in ps.items()}


def describe(position: Mapping[str, Any]) -> str:
    """Return restored offsets in one line, in the style of Flink's log: what follows the name of the source."""
    offsets = sorted(from_json(position).items())
    listed = ", ".join(f"KafkaTopicPartition{{topic='{t}', partition={p}}}={offset}" for (t, p), offset in offsets)
    count = f"{len(offsets)} partition{'' if len(offsets) == 1 else 's'}"
    return f"will start reading {count} with offsets in restored state: {{{listed}}}"
