"""Where a transaction wrote, as decisions say it: topics, and of each the numbers of its partitions, in short.

Consecutive numbers are joined, so that a record stays small however many partitions a topic has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

_MOST = 1_000_000  # partitions of a topic; far more than a cluster can hold
Place = tuple[str, int]
"""A topic and the number of a partition."""


def from_places(places: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return partitions by topic as JSON, such as {"orders": "0-2,5"}."""
    return {topic: ",".join(_runs(partitions)) for topic, partitions in places.items()}


def to_places(value: Mapping[str, str]) -> frozenset[Place]:
    """Return the partitions of what `from_places` made."""
    places: set[Place] = set()
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
