"""How many offsets of each partition a checkpoint reads, so that its records have about a set number of bytes at most.

A plan knows offsets alone, and their bytes are estimated: by what tasks read of each partition last, and by records that a broker is
asked for where nothing was read of a topic yet, or where so many wait that they would be too much if they had become wide. What is
remembered is two numbers for a partition, in the driver; a plan that is decided stands in the decision, and does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from poundlock.connectors.kafka.offsets import Offsets, Partition
from poundlock.connectors.kafka.source.admission import share

_LARGEST = 100 << 20  # a record of a topic that nothing is known of may have so many bytes
_WIDENED = (
    1 << 20
)  # and one of a topic that is known, from one checkpoint to the next; Kafka takes no larger ones unless it is told to
_LOOKS = 8  # so many partitions are looked at together
_NARROWER = 8  # so many times at most from one checkpoint to the next
_ROUNDS, _STEP = 9, 4  # a plan is made smaller so often, and at most so many times smaller before it is looked at again


_Looks = dict[tuple[Partition, int], float]
"""How many bytes a record has about an offset of a partition."""


@dataclass
class ByteLimit:
    """The limits of a checkpoint, and what is known of how wide records are; used by one thread.

    Args:
        records: most offsets of a checkpoint; None = no limit.
        bytes: most bytes of a checkpoint, about; None = no limit, and nobody is asked.
        look: returns how many bytes a record has that lies at an offset of a partition, or about there, None where that is not known.
    """

    records: int | None
    bytes: int | None
    look: Callable[[Partition, int], float | None]
    _widths: dict[Partition, float] = field(default_factory=dict, init=False)
    _widest: dict[str, float] = field(default_factory=dict, init=False)  # of the partitions of a topic
    _turn: int = field(default=0, init=False)

    def measured(self, sizes: Iterable[tuple[Partition, int, int]]) -> None:
        """Take note of what was read: for each partition how many offsets, and how many bytes they had."""
        for place, offsets, size in sizes:
            now = size / max(offsets, 1)
            before = self._widths.get(place, now)
            self._widths[place] = max(now, before / _NARROWER)  # what became narrower may become wide again
        self._widest = {}
        for (topic, _), width in self._widths.items():
            self._widest[topic] = max(width, self._widest.get(topic, 0.0))

    def share(self, waiting: Mapping[Partition, int], starts: Mapping[Partition, int]) -> Offsets:
        """Return how many offsets of each partition to read, of those that wait: at least one, if any waits.

        Args:
            starts: the first offset of each that waits.
        """
        given = share(waiting, self.records)
        if self.bytes is None:
            return given
        given = self._fitting(waiting, given, None)
        asked = self._doubtful(given)
        looks: dict[tuple[Partition, int], float] = {}
        for _ in range(_ROUNDS):
            if not asked:
                return given
            looks = {at: width for at, width in looks.items() if at[1] < starts[at[0]] + given[at[0]]}
            self._look_at(asked, starts, given, looks)
            total, fitting = sum(given.values()), self._fitting(waiting, given, looks)
            if sum(fitting.values()) >= total:
                return given
            # What lies far behind may be wider than what comes first.
            given = share(waiting, max(sum(fitting.values()), total // _STEP))
            asked = _largest(given)
        return self._fitting(waiting, given, looks)

    def _fitting(self, waiting: Mapping[Partition, int], given: Offsets, looks: _Looks | None) -> Offsets:
        """Return what is given, or of all partitions less, so that it has as many bytes as it may have."""
        assert self.bytes is not None
        total, seen = sum(given.values()), () if looks is None else looks.values()
        least = 0.0 if looks is None else _WIDENED * (not looks)
        if total * max(least, *seen, *self._widest.values(), 0.0) <= self.bytes:
            return given
        widths = self._estimates(given, looks)
        while total > 1 and (size := sum(count * widths[place] for place, count in given.items())) > self.bytes:
            total = max(1, min(total - 1, int(total * self.bytes / size)))
            given = share(waiting, total)
        return given

    def _estimates(self, given: Iterable[Partition], looks: _Looks | None) -> dict[Partition, float]:
        """Return how many bytes an offset of each partition has, about; nothing for what is yet to be looked at."""
        of_places: dict[Partition, list[float]] = {}
        of_topics: dict[str, list[float]] = {}
        for (place, _), width in (looks or {}).items():
            of_places.setdefault(place, []).append(width)
            of_topics.setdefault(place[0], []).append(width)
        own = {place: sum(widths) / len(widths) for place, widths in of_places.items()}
        means = {topic: sum(widths) / len(widths) for topic, widths in of_topics.items()}
        known, widest = self._widths, self._widest
        other = 0.0 if looks is None else max((*means.values(), *widest.values()), default=_WIDENED)
        return {
            place: max(own.get(place, means.get(place[0], 0.0)), known.get(place, widest.get(place[0], 0.0)))
            if place[0] in means or place[0] in widest
            else other
            for place in given
        }

    def _doubtful(self, given: Offsets) -> list[Partition]:
        """Return the partitions to look at: of topics that nothing is known of, or any one if too much may have become wide."""
        assert self.bytes is not None
        there = {place: count for place, count in given.items() if count}
        unknown = {place: count for place, count in there.items() if place[0] not in self._widest}
        if sum(unknown.values()) * _LARGEST > self.bytes:
            return list({place[0]: place for place in reversed(_largest(unknown))}.values())  # one of each topic
        if sum(there.values()) * max(_WIDENED, *self._widest.values(), 0) > self.bytes:
            self._turn += 1
            return [_largest(there)[self._turn % min(_LOOKS, len(there))]]
        return []

    def _look_at(
        self, asked: Iterable[Partition], starts: Mapping[Partition, int], given: Offsets, looks: _Looks
    ) -> None:
        """Look at the last of the offsets that are given, and at the first of a topic that nothing is known of."""
        for place in asked:
            first, last = starts[place], starts[place] + given[place] - 1
            for offset in {last} if place[0] in self._widest else {first, last}:
                if (place, offset) not in looks and (width := self.look(place, offset)) is not None:
                    looks[place, offset] = width


def _largest(given: Offsets) -> list[Partition]:
    """Return the partitions with the most offsets, first one of each topic."""
    ordered = sorted((place for place, count in given.items() if count), key=lambda place: (-given[place], place))
    first = list({place[0]: place for place in reversed(ordered)}.values())[::-1]
    chosen = set(first)
    return [*first, *(place for place in ordered if place not in chosen)][:_LOOKS]
