"""StartingOffsets: where reading begins, or ends, in words; turned into an offset for each partition by asking the cluster.

What cannot be resolved to an offset that is in the topic is an error that names the range, never a silent reset. What the words
meant is pinned at the first start, in a file of the source's workspace that is written once by create-exclusive: words such as
"latest" must mean the same after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.offsets import Offsets, Partition, from_json, names, to_json
from poundlock.errors import DefinitionError, SourceGoneError
from poundlock.storage.base import Storage
from poundlock.storage.json_record import parsed, read_record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILE = "start.json"
Otherwise = Literal["earliest", "latest", "fail"]


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """A place in every partition, by name. Made by its class methods.

    Strings are taken wherever one is: "earliest", "latest", "committed", or a time such as "2018-12-19T00:00:00Z".
    """

    kind: Literal["earliest", "latest", "timestamp", "offsets", "committed"]
    offsets_by_partition: Mapping[Partition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    group: str | None = None
    otherwise: Otherwise | None = None

    @classmethod
    def earliest(cls) -> StartingOffsets:
        """The first record that is there."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> StartingOffsets:
        """After the last record that can be read when the job is first started."""
        return cls("latest")

    @classmethod
    def timestamp(cls, when: str | int | datetime) -> StartingOffsets:
        """The first record whose Kafka timestamp is at or after a time; "latest" where there is none.

        Args:
            when: ISO text with a zone, ms since 1970-01-01T00:00:00Z, or a datetime with a zone.
        """
        return cls("timestamp", timestamp_ms=_milliseconds(when))

    @classmethod
    def offsets(cls, offsets: Mapping[Any, Any], *, otherwise: Otherwise | None = None) -> StartingOffsets:
        """An offset for each partition.

        Args:
            offsets: (topic, partition) or "topic:partition" to offset, or topic to {partition: offset}.
            otherwise: for partitions that are not named; default: "earliest" as a start, "latest" as an end.
        """
        return cls("offsets", offsets_by_partition=_parse(offsets), otherwise=otherwise)

    @classmethod
    def committed(cls, group: str | None = None, *, otherwise: Otherwise = "earliest") -> StartingOffsets:
        """What a consumer group committed to Kafka.

        Args:
            group: the group; default: the source's own.
            otherwise: for partitions without a committed offset.
        """
        return cls("committed", group=group, otherwise=otherwise)

    @classmethod
    def parse(cls, value: Any, what: str) -> StartingOffsets:
        """Return the place a user gave as one of these, a string, a mapping, a time or milliseconds.

        Raises:
            DefinitionError: it is none of them.
        """
        if isinstance(value, StartingOffsets):
            return value
        if isinstance(value, str) and value in ("earliest", "latest"):
            return cls(value)  # type: ignore[arg-type]
        if value == "committed":
            return cls.committed()
        if isinstance(value, Mapping):
            return cls.offsets(value)
        if isinstance(value, (str, datetime)) or (isinstance(value, int) and not isinstance(value, bool)):
            return cls.timestamp(value)
        raise DefinitionError(
            f"{what}={value!r} is no place in Kafka",
            next=f'write {what}="earliest", "latest" or StartingOffsets.timestamp("…")',
        )

    def resolve(
        self, partitions: Iterable[Partition], where: Cluster, *, group: str | None, end: bool = False
    ) -> Offsets:
        """Return the offset of every partition that is read. `group` is the source's own.

        Where this is the `end` of reading, offsets may lie beyond what is there.

        Raises:
            DefinitionError: an offset is not in the topic, a named partition is not read, or one is missing.
            SourceGoneError: a committed offset is no longer in the topic.
        """
        all_ = sorted(partitions)
        if self.kind == "earliest":
            return where.begin(all_)
        if self.kind == "latest":
            return where.end(all_)
        if self.kind == "timestamp":
            return where.end(all_) | where.at(all_, self.timestamp_ms or 0)
        if self.kind == "committed":
            group = self.group or group
            if group is None:
                raise DefinitionError(
                    "no group to take committed offsets from", next='give StartingOffsets.committed("group")'
                )
            offsets = where.committed(all_, group)
        else:
            offsets = dict(self.offsets_by_partition)
        if unknown := sorted(set(offsets) - set(all_)):
            raise DefinitionError(
                f"offsets name {names(unknown)}, which this source does not read", next=f"it reads {names(all_)}"
            )
        if not end:
            self._check(offsets, where)
        return self._fill(offsets, all_, where, end)

    def _check(self, offsets: Offsets, where: Cluster) -> None:
        begin, end = where.begin(offsets), where.end(offsets)
        for partition, offset in sorted(offsets.items()):
            if begin[partition] <= offset <= end[partition]:
                continue
            there = f"{names([partition])} holds offsets {begin[partition]} to {end[partition]}"
            if self.kind == "committed" and offset < begin[partition]:
                raise SourceGoneError(
                    f"the group's committed offset {offset} has expired: {there}; "
                    f"offsets {offset} to {begin[partition]} are lost",
                    next='start at "earliest" to go on with what is left',
                )
            raise DefinitionError(f"cannot start at offset {offset}: {there}", next="give an offset in that range")

    def _fill(self, offsets: Offsets, partitions: list[Partition], where: Cluster, end: bool) -> Offsets:
        missing = [p for p in partitions if p not in offsets]
        otherwise = self.otherwise or ("latest" if end else "earliest")
        if missing and otherwise == "fail":
            raise DefinitionError(
                f"no {'committed ' if self.kind == 'committed' else ''}offset for {names(missing)}",
                next='give otherwise="earliest" or "latest"; in SQL, properties.auto.offset.reset',
            )
        filled = (where.begin if otherwise == "earliest" else where.end)(missing) if missing else {}
        return offsets | filled


def _milliseconds(when: str | int | datetime) -> int:
    if isinstance(when, bool) or (isinstance(when, int) and when < 0):
        raise DefinitionError(f"{when!r} is not a time in ms since 1970", next="give milliseconds, not seconds")
    if isinstance(when, int):
        return when
    try:
        moment = datetime.fromisoformat(when) if isinstance(when, str) else when
    except ValueError as error:
        raise DefinitionError(
            f"{when!r} is neither a time nor a known word",
            next='write "earliest", "latest", "committed" or a time such as "2018-12-19T00:00:00Z"',
        ) from error
    if moment.tzinfo is None:
        raise DefinitionError(
            f"the time {when!s} has no zone", next=f'write "{moment.isoformat()}Z" for UTC, or "+08:00"'
        )
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _parse(offsets: Mapping[Any, Any]) -> Offsets:
    parsed: Offsets = {}
    for key, value in offsets.items():
        if isinstance(value, Mapping):
            parsed |= _parse({(key, partition): offset for partition, offset in value.items()})
            continue
        topic, partition = key if isinstance(key, tuple) and len(key) == 2 else str(key).rpartition(":")[::2]
        if (
            not topic
            or not str(partition).isdecimal()
            or isinstance(value, bool)
            or not isinstance(value, int)
            or value < 0
        ):
            raise DefinitionError(
                f"{key!r}: {value!r} is not a partition and its offset",
                next='write {"topic:0": 725} or {("topic", 0): 725}',
            )
        parsed[str(topic), int(partition)] = value
    return parsed


class PinnedStart(msgspec.Struct, frozen=True, tag_field="kind", tag="kafka-start"):
    """What the words of a source meant when they were first resolved: where each partition starts and ends, and each topic's id.

    Other words are resolved again as long as nothing was read. `until` is None if the source is unbounded.
    """

    words: str
    start: dict[str, dict[str, int]]
    until: dict[str, dict[str, int]] | None
    topics: dict[str, str]
    v: int = 1

    @property
    def until_offsets(self) -> Offsets | None:
        """The end, by partition."""
        return None if self.until is None else from_json(self.until)


def read_pinned(workspace: Storage) -> PinnedStart | None:
    """Return what an earlier start wrote down, for whatever words, or None. Raises TerminalError if this version cannot read it."""
    next = "run the job with the version of poundlock that wrote it, or restore the file from a backup"
    return read_record(workspace, _FILE, parsed(PinnedStart), next=next)


def pin(
    workspace: Storage, words: str, start: Offsets, until: Offsets | None, topics: Mapping[str, str]
) -> PinnedStart:
    """Write down what the words mean and return it, or what another start wrote down a moment before.

    Idempotent by the words: the first who writes them wins.
    """
    made = PinnedStart(words, to_json(start), None if until is None else to_json(until), dict(topics))
    data = msgspec.json.format(msgspec.json.encode(made), indent=1)
    while not workspace.create_exclusive(_FILE, data):
        pinned = read_pinned(workspace)
        if pinned is not None and pinned.words == words:
            return pinned
        workspace.delete(_FILE)  # of words that the user changed before anything was read
    return made
