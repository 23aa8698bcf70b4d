"""Partitions and offsets as positions and decisions write them, and as the driver counts with them.

A position is {"topic": {"partition": offset}}, as Spark's connector has it; an offset is always that of the next record to read,
and a partition that a position does not name was not read yet. Where a transaction wrote is {"topic": "0-2,5"}: consecutive numbers
are joined, so that a record stays small however many partitions a topic has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Partition = tuple[str, int]
Offsets = dict[Partition, int]
EARLIEST, LATEST = -2, -1
_MOST = 1_000_000  # partitions of a topic; far more than a cluster can hold


@dataclass(frozen=True, slots=True)
class OffsetsOf:
    """Which offset of each partition is asked for.

    Args:
        time: EARLIEST, LATEST, or ms since the epoch: that of the first record from then on.
        committed: whether the latest is before the first open transaction.
    """

    time: int
    committed: bool


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


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by their topics, both in order."""
    result: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        result.setdefault(topic, []).append(partition)
    return result


def from_places(places: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return partitions by topic as JSON, such as {"orders": "0-2,5"}."""
    return {topic: ",".join(_runs(partitions)) for topic, partitions in places.items()}


def to_places(value: Mapping[str, str]) -> frozenset[Partition]:
    """Return the partitions of what `from_places` made."""
    places: set[Partition] = set()
    for topic, text in value.items():
        for run in text.split(","):
            first, _, last = run.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            if not 0 < len(numbers) <= _MOST:
                raise ValueError(f"{run!r} are no partitions of a topic")
            places.update((topic, number) for number in numbers)
    return frozenset(places)


def _runs(numbers: Iterable[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]
