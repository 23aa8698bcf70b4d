"""Driver's half of a Kafka source: which partitions there are, how far the next checkpoint reads, and the splits in between.

A position is an offset for each partition, and a partition that it does not name was not met yet: it enters with its first offset,
and is read from the next position on. So the work between two positions follows from the positions alone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from poundlock.connectors.base import PartitionRead, Split
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.errors import deleted, expired, recreated, went_back
from poundlock.connectors.kafka.offsets import Offsets, Partition, from_json, names, to_json
from poundlock.connectors.kafka.source.admission import cut
from poundlock.connectors.kafka.source.byte_limit import ByteLimit
from poundlock.connectors.kafka.source.client_properties import parse
from poundlock.connectors.kafka.source.partition_discovery import PartitionDiscovery
from poundlock.connectors.kafka.source.reader import payload
from poundlock.connectors.kafka.source.starting_offsets import pin, read_pinned
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_sizes, parse_kafka_id
from poundlock.errors import PoundlockError, SourceGoneError, TransientError
from poundlock.storage.base import Storage

if TYPE_CHECKING:
    from poundlock.connectors.kafka.source.source import KafkaSource
    from poundlock.connectors.kafka.wire.fetch_client import FetchClient


_log = logging.getLogger(__name__)
_RENEW_S = 3600.0  # brokers forget a group's offsets when it is idle for a week
_LAG_S = 2.0
_VIEWS = 4  # positions whose offsets are kept: those of one plan
Position = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class _View:
    """A position, its offsets, and those of them that the source reads."""

    position: Position
    offsets: Offsets
    read: Offsets


class KafkaEnumerator:
    """Plans what is read of a KafkaSource that is bound to a job; see `Enumerator`.

    Used by one thread, but `committed` and `lag` may be called beside it.
    """

    def __init__(self, source: KafkaSource, cluster: Cluster, workspace: Storage) -> None:
        self._source, self._cluster, self._workspace, self._group = source, cluster, workspace, source.group
        self._restored = source.previous is not None
        before = source.previous or {}
        self._until: Offsets | None = from_json(before["until"]) if "until" in before else None
        self._topics: dict[str, str] = dict(before.get("topics", {}))
        self._words = f"start={source.start!r} end={source.end!r}"
        pinned = read_pinned(workspace) if self._restored else None
        if pinned is not None:  # what the first start wrote down says what the newest decision does not
            self._topics = self._topics or dict(pinned.topics)
            if self._until is None and pinned.words == self._words:
                self._until = pinned.until_offsets
        self._records_per_split = parse(source.options).records_per_split
        self._limit = ByteLimit(source.max_records_per_checkpoint, source.max_bytes, self._width_at)
        self._looking: FetchClient | None = None  # over which records are looked at
        self._discovery = PartitionDiscovery(source, cluster)
        self._checked = False
        self._renewed: tuple[float, Offsets] | None = None
        self._sent: Offsets = {}  # what the group was given
        self._there: Offsets = {}  # the ends that `lag` saw last
        self._ends: tuple[float, Offsets] | None = None  # what the newest plan was answered, and when
        # With very many partitions the same is worked out once: their names, whether they are read, a position's offsets.
        self._names: dict[Partition, str] = {}
        self._named: dict[str, Partition] = {}
        self._reads: dict[Partition, bool] = {}
        self._views: deque[_View] = deque(maxlen=_VIEWS)

    # -- where it begins and ends --------------------------------------------------------------------------------------

    def initial(self) -> Position:
        """Return the position before the first record, the same at every start until a checkpoint was decided.

        Where a decision names the source already, nobody reads from there: the answer is empty and Kafka is not asked.

        Raises:
            DefinitionError: a topic is missing, or a start cannot be.
            SourceGoneError: a committed offset has expired.
            TransientError: Kafka does not answer.
        """
        return {} if self._restored else self._first_start()

    def _first_start(self) -> Position:
        """Return where the words of the start point, as the first start took them."""
        s = self._source
        pinned = read_pinned(self._workspace)
        if pinned is None or pinned.words != self._words:
            partitions = self._discovery.partitions()
            topics = self._cluster.topic_ids({topic for topic, _ in partitions})
            start = s.start.resolve(partitions, self._cluster, group=self._group)
            until = None if s.end is None else s.end.resolve(partitions, self._cluster, group=self._group, end=True)
            pinned = pin(self._workspace, self._words, start, until, topics)
        elif s.start.kind == "earliest":
            # What expired before anything was read is no loss: the earliest record is the one that is there now.
            pinned = replace(pinned, start=to_json(self._cluster.begin(from_json(pinned.start))))
        self._topics, self._until = {**pinned.topics, **self._topics}, pinned.until_offsets
        return pinned.start

    def _end(self, position: Offsets) -> Offsets | None:
        """Return where each partition ends, None for an unbounded source."""
        if self._source.end is None:
            return None
        if self._until is None and not self._restored:
            self._first_start()
        if self._until is None:
            # The newest decision was made before the source had an end.
            partitions = {*self._read_only(position.items()), *self._discovery.partitions()}
            self._until = self._source.end.resolve(partitions, self._cluster, group=self._group, end=True)
        return self._read_only(self._until.items())

    def finished(self, position: Position) -> bool:
        """Return whether a bounded source is read to its end at a position. Always False for an unbounded one."""
        if self._source.end is None:
            return False
        reached = self._view(position).offsets
        until = self._end(reached)
        return until is not None and all(reached.get(place, 0) >= offset for place, offset in until.items())

    # -- planning ------------------------------------------------------------------------------------------------------

    def partitions(self, position: Position) -> Sequence[str]:
        """Return the partitions that are read on from a position, by the names of their splits: one that has ended holds nobody back."""
        until, reached = self._until or {}, self._view(position).read
        return [self._name(place) for place, offset in sorted(reached.items()) if offset < until.get(place, offset + 1)]

    def latest(self, start: Position, held: Collection[str] = ()) -> Position:
        """Return how far the next checkpoint may read: what can be read now, as far as the limits of a checkpoint allow.

        Raises:
            SourceGoneError: a topic was deleted or created again, or records behind `start` have expired.
            TransientError: Kafka does not answer.
        """
        # What the source no longer names keeps its place, so that it can be named again; nothing of it is read.
        view = self._view(start)
        position, read = view.offsets, view.read
        if not self._checked:
            self._check_begin(read)
        until = self._end(position)
        added = self._added(position, until)
        try:
            ends = self._cluster.end(read)
        except TransientError:
            self._check_there(read)
            raise
        self._checked, self._ends = True, (time.monotonic(), ends)
        waiting = {}
        for place, offset in read.items():
            if ends[place] < offset:
                self._check_ids(self._topics, self._cluster.topic_ids({place[0]}))
                raise went_back(*place, offset, ends[place])
            end = ends[place] if until is None else min(ends[place], max(until.get(place, 0), offset))
            if end > offset and not (held and self._name(place) in held):
                waiting[place] = end - offset
        given = self._limit.share(waiting, read)
        return to_json({**position, **{place: position[place] + count for place, count in given.items()}, **added})

    def _added(self, position: Offsets, until: Offsets | None) -> Offsets:
        """Return the first offset of partitions that the position does not name, so that they enter with nothing read."""
        if until is not None:
            there: Iterable[Partition] = until
        else:
            there = self._discovery.partitions_if_due() if self._checked else self._discovery.partitions()
        new = [place for place in there if place not in position]
        if not new:
            return {}
        unknown = {topic for topic, _ in new} - self._topics.keys()
        self._topics |= self._cluster.topic_ids(unknown)
        _log.info("partitions %s are read from their first offset on", names(sorted(new)))
        return self._cluster.begin(new)

    def _check_there(self, read: Offsets) -> None:
        """Raise SourceGoneError if a partition is not in Kafka any more."""
        there = self._cluster.partitions()
        for topic, partition in sorted(read):
            if partition not in there.get(topic, ()):
                raise deleted(topic, f"partition {partition} was read up to offset {read[topic, partition]}")

    def _check_begin(self, read: Offsets) -> None:
        """Look once, before the first range of a start, whether topics are those of before and nothing has expired."""
        self._check_there(read)
        self._check_ids(self._topics, self._cluster.topic_ids({topic for topic, _ in read}))
        begin = self._cluster.begin(read)
        for (topic, partition), offset in sorted(read.items()):
            if offset < begin[topic, partition]:
                raise expired(topic, partition, offset, begin[topic, partition])

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        """Return the work between two positions; a partition that `start` does not name has none."""
        first, last = self._view(start).offsets, self._view(end).offsets
        ranges = {place: (first[place], after) for place, after in last.items() if first.get(place, after) < after}
        pieces = cut(ranges, most=self._records_per_split, at_least=self._source.min_partitions)
        splits = []
        for (topic, partition), begin, after in pieces:
            wanted = payload(OffsetRange(topic, partition, begin, after), self._topics.get(topic))
            name = self._name((topic, partition))
            splits.append(Split(f"{topic}-{partition:06d}-{begin:020d}", wanted, after - begin, name=name))
        return splits

    # -- what was read -------------------------------------------------------------------------------------------------

    def identity(self, start: Position, end: Position, previous: Mapping[str, Any]) -> dict[str, Any]:
        """Return what names the data in a range: {"topics": {name: id}}, with "until" where the source is bounded."""
        first, last = self._view(start).offsets, self._view(end).offsets
        for topic, partition in sorted(place for place, offset in first.items() if last.get(place, -1) < offset):
            offset, now = first[topic, partition], last.get((topic, partition))
            if now is None:
                raise deleted(topic, f"partition {partition} was read up to offset {offset}")
            raise recreated(topic, f"partition {partition} went back from offset {offset} to {now}")
        known = {**self._topics, **previous.get("topics", {})}
        # Topics that are not read any more are not asked for; their ids stay for the day they are read again.
        read = {topic for topic, _ in self._view(end).read}
        ids = self._cluster.topic_ids(read)
        if gone := sorted(topic for topic in read if topic in known and topic not in ids):
            raise deleted(gone[0], f"its id was {known[gone[0]]}")
        self._check_ids(known, ids)
        self._topics = {**known, **ids}
        until = self._end(last)
        topics = {topic: self._topics[topic] for topic in sorted({t for t, _ in last}) if topic in self._topics}
        return {"topics": topics, **({} if until is None else {"until": to_json(until)})}

    def check_range(self, start: Position, end: Position, identity: Mapping[str, Any]) -> None:
        """Raise SourceGoneError unless all records of a decided range are still there, and are those that were read."""
        begun, known = from_json(start), identity.get("topics", {})
        # A partition that the start does not name entered without a record.
        read = {place: after for place, after in from_json(end).items() if begun.get(place, after) < after}
        there, ids = self._cluster.partitions(), self._cluster.topic_ids({topic for topic, _ in read})
        for topic, partition in sorted(read):
            if partition not in there.get(topic, ()):
                raise _cannot_be_read_again(f"topic {topic!r} partition {partition} is gone from Kafka")
            if topic in known and ids.get(topic, known[topic]) != known[topic]:
                was = f"its id was {known[topic]} and is {ids[topic]}"
                raise _cannot_be_read_again(f"topic {topic!r} is not the one this checkpoint has read: {was}")
        first, last = self._cluster.begin(read), self._cluster.end(read)
        for place, after in sorted(read.items()):
            what = f"topic {place[0]!r} partition {place[1]}"
            if begun[place] < first[place]:
                lost = f"offsets {begun[place]} to {min(after, first[place])}"
                raise _cannot_be_read_again(f"{what}: {lost} of this checkpoint have expired or were deleted")
            if after > last[place]:
                raise _cannot_be_read_again(f"{what} ends at {last[place]}, and this checkpoint read up to {after}")

    def _check_ids(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        for topic, old in sorted(before.items()):
            if topic in now and now[topic] != old:
                raise recreated(topic, f"its id was {old} and is {now[topic]}")

    def measured(self, sizes: Mapping[str, PartitionRead]) -> None:
        """Take note of how many bytes were read of partitions; the next plans are made by it."""
        known = ((self._named.get(name), size) for name, size in sizes.items())
        self._limit.measured((place, size.weight, size.bytes) for place, size in known if place is not None)

    def _width_at(self, place: Partition, offset: int) -> float | None:
        """Return how many bytes the records about an offset have on average, None where no broker says so at once."""
        if self._looking is None:
            self._looking = self._source.looking()
        id = self._topics.get(place[0])
        # What ends a transaction has an offset, and is no record.
        for at in (offset, offset - 1):
            wanted = OffsetRange(*place, at, at + 1, None if id is None else parse_kafka_id(id))
            try:
                records = list(fetch_sizes(self._looking, wanted))
            except (PoundlockError, OSError) as error:  # the tasks will say what is wrong, if it is
                _log.debug("%s: no record was looked at: %s", self._name(place), error)
                return None
            if count := sum(rows for rows, _ in records):
                return sum(size for _, size in records) / count
        return None

    def committed(self, position: Position) -> None:
        """Commit what moved of a position for the group, so that lag tools see it. Does not wait; what goes wrong is only logged."""
        if self._group:
            offsets, sent = self._view(position).read, self._sent
            moved = {place: offset for place, offset in offsets.items() if sent.get(place) != offset}
            self._sent = offsets
            if moved:
                self._renewed = (time.monotonic(), offsets)
                self._cluster.commit(moved, self._group)

    def _read_only(self, offsets: Iterable[tuple[Partition, int]]) -> Offsets:
        return {place: offset for place, offset in offsets if self._is_read(place)}

    def _is_read(self, place: Partition) -> bool:
        if place not in self._reads:
            self._reads[place] = self._source.reads(*place)
        return self._reads[place]

    def _name(self, place: Partition) -> str:
        if place not in self._names:
            self._names[place] = names([place])
            self._named[self._names[place]] = place
        return self._names[place]

    def _view(self, position: Position) -> _View:
        """Return a position's offsets. Nobody changes a position once it is made, so it is known by being the same object."""
        for view in tuple(self._views):
            if view.position is position:
                return view
        offsets = from_json(position)
        view = _View(position, offsets, self._read_only(offsets.items()))
        self._views.append(view)
        return view

    def lag(self, position: Position) -> int | None:
        """Return how many offsets wait behind a position, None if Kafka does not say within 2 s.

        Also commits the group's offsets again once an hour, as brokers forget those of a group that is idle for long.
        """
        now = time.monotonic()
        if self._renewed and self._group and now - self._renewed[0] > _RENEW_S:
            self._sent = {}
            self.committed(to_json(self._renewed[1]))
        offsets, ends = self._view(position).read, self._ends
        if ends is not None and now - ends[0] < _LAG_S and ends[1].keys() >= offsets.keys():
            there = ends[1]  # a plan has just asked
        else:
            try:
                there = self._cluster.end(offsets, timeout=_LAG_S)
            except PoundlockError:
                return None
        if self._source.end is not None and self._until is not None:
            there = {place: min(offset, self._until.get(place, 0)) for place, offset in there.items()}
        self._there = there
        return sum(max(0, there[place] - offset) for place, offset in offsets.items())

    def partition_lags(self, position: Position) -> dict[str, int]:
        """Return how many offsets wait behind a position in each partition, by the ends that `lag` saw last."""
        offsets = self._view(position).read
        return {
            self._name(place): max(0, self._there[place] - offset)
            for place, offset in offsets.items()
            if place in self._there
        }

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
        if self._looking is not None:
            self._looking.close()


def _cannot_be_read_again(what: str) -> SourceGoneError:
    return SourceGoneError(what, next="only checkpoints whose records Kafka still has can be read again")
