"""KafkaReading: a KafkaSource as one start of one job uses it, with its connections and what it learned at the start.

Spark is told where every partition begins; a topic that is not the one read before, or lost records, stop the job.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import SparkRead
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.failures import deleted, expired, explain, recreated
from poundlock.connectors.kafka.offsets import Offsets, Partition, describe, from_json, to_json
from poundlock.connectors.kafka.options import columns, spark_options, until_filter
from poundlock.errors import DefinitionError, PoundlockError

if TYPE_CHECKING:
    from poundlock.connectors.kafka.source import KafkaSource

__all__ = ["KafkaReading"]

PREFLIGHT_S = 4.5
_RENEW_S = 3600.0  # brokers forget a group's offsets when it is idle for a week


class KafkaReading:
    """A KafkaSource in use. Made by `KafkaSource.bind`; `close` it.

    Args:
        source: what to read.
        job: name of the job, for the group.
        name: name of the source in the job, for the log.
        previous: the identity that the newest decision recorded; None on a first start.
    """

    def __init__(
        self,
        source: KafkaSource,
        *,
        job: str | None = None,
        name: str | None = None,
        previous: Mapping[str, Any] | None = None,
    ) -> None:
        self._source = source
        self._name = name
        self._previous = dict(previous or {})
        self._group = source.group_id if source.group_id is not None else (f"poundlock-{job}" if job else None)
        self._cluster_made: Cluster | None = None
        self._start: Offsets | None = None
        self._added: list[Partition] = []
        self._until: Offsets | None = from_json(self._previous["until"]) if "until" in self._previous else None
        self._baseline: dict[str, str] = dict(self._previous.get("topics", {}))
        self._renewed: tuple[float, Offsets] | None = None

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self._source.bounded

    @property
    def group(self) -> str | None:
        """The group whose offsets are committed, None or "" for none."""
        return self._group

    @property
    def _cluster(self) -> Cluster:
        if self._cluster_made is None:
            s = self._source
            settings = {**s.security.confluent(), **{k: str(v) for k, v in s.client_options.items()}}
            committed_only = s.isolation == "read_committed"
            self._cluster_made = Cluster(s.bootstrap_servers, settings, committed_only=committed_only)
        return self._cluster_made

    def close(self) -> None:
        """Let go of all connections."""
        if self._cluster_made is not None:
            self._cluster_made.close()

    # -- before the query ----------------------------------------------------------------------------------------------

    def preflight(self) -> None:
        """Check within 5 s that the servers answer and the topics and partitions are there.

        Raises:
            DefinitionError: a topic or partition is missing, or the servers refuse this user.
            TransientError: no server answers; names them.
        """
        self._partitions(PREFLIGHT_S)

    def _partitions(self, timeout: float | None = None) -> list[Partition]:
        """Return all partitions the source reads."""
        there = self._cluster.partitions(timeout)
        s = self._source
        if s.pattern is not None:
            found = [(t, p) for t, ps in there.items() if s.reads(t) for p in ps]
            if not found:
                raise DefinitionError(
                    f"no topic in Kafka at {s.bootstrap_servers} matches pattern {s.pattern!r}",
                    next=f"the topics are: {_some(sorted(there))}",
                )
            return sorted(found)
        wanted = s.partitions or dict.fromkeys(s.topics or ())
        missing = [t for t in wanted if t not in there]
        if missing:
            raise DefinitionError(
                f"topic {missing[0]!r} is not in Kafka at {s.bootstrap_servers}, or this user may not see it",
                next=_near(missing[0], sorted(there)),
            )
        for topic, numbers in wanted.items():
            absent = sorted(set(numbers or ()) - set(there[topic]))
            if absent:
                raise DefinitionError(
                    f"topic {topic!r} has {len(there[topic])} partitions, none with number {absent[0]}",
                    next="correct partitions=… of KafkaSource",
                )
        return sorted((t, p) for t, ps in wanted.items() for p in (ps if ps is not None else there[t]))

    def spark_read(self, restored: dict[str, Any] | None) -> SparkRead:
        """Return how Spark reads the source: connector options with the start of every partition, columns, end.

        Args:
            restored: newest decided end position, None on a first start.

        Raises:
            DefinitionError: a topic is missing, a start cannot be, or the checkpoint has topics the source lacks.
            SourceGoneError: records behind `restored` have expired, or a topic was re-created or deleted.
            TransientError: Kafka does not answer.
        """
        if restored is None:
            partitions = self._partitions()
            starting = self._first_start(partitions)
        else:
            starting = self._go_on(from_json(restored))
        s = self._source
        return SparkRead(
            format="kafka",
            options=spark_options(s, starting, self._group),
            columns=columns(s),
            where=until_filter(self._until) if self._until is not None else None,
            jars=("kafka",),
        )

    def _first_start(self, partitions: list[Partition]) -> str:
        s, cluster = self._source, self._cluster
        self._baseline = self._baseline or cluster.topic_ids({t for t, _ in partitions})
        self._start = s.start.resolve(partitions, cluster, group=self._group)
        if s.end is not None and self._until is None:
            self._until = s.end.resolve(partitions, cluster, group=self._group, end=True)
        if s.start.kind == "earliest":
            return "earliest"  # Spark looks it up itself, later, when retention may have moved it
        return json.dumps(to_json(self._start))

    def _go_on(self, restored: Offsets) -> str:
        s, cluster = self._source, self._cluster
        self._start = restored
        if dropped := sorted({t for t, _ in restored if not s.reads(t)}):
            raise DefinitionError(
                f"the checkpoint has read topic {dropped[0]!r}, which this source no longer names",
                next='name it again, or give the job a new checkpoint_dir and start="committed" to go on without it',
            )
        there = cluster.partitions()
        for topic, partition in sorted(restored):
            if partition not in there.get(topic, ()):
                raise deleted(topic, f"partition {partition} was read up to offset {restored[topic, partition]}")
        self._same_topics(self._baseline, cluster.topic_ids({t for t, _ in restored}))
        self._still_there(restored)
        added = sorted(set(self._partitions()) - set(restored))
        self._begin_at_zero(added, {t for t, _ in restored})
        self._added = added
        if s.end is not None and self._until is None:
            # The decision that gave `restored` was made before the source had an end.
            self._until = s.end.resolve([*restored, *added], cluster, group=self._group, end=True)
        return json.dumps(to_json(restored | dict.fromkeys(added, -2)))

    def _still_there(self, restored: Offsets) -> None:
        begin, end = self._cluster.begin(restored), self._cluster.end(restored)
        for (topic, partition), offset in sorted(restored.items()):
            if offset < begin[topic, partition]:
                raise expired(topic, partition, offset, begin[topic, partition])
            if offset > end[topic, partition]:
                raise recreated(
                    topic, f"partition {partition} was read to {offset} and ends at {end[topic, partition]}"
                )

    def _begin_at_zero(self, added: list[Partition], known: set[str]) -> None:
        """Spark reads partitions it meets later from their begin, and only believes that it is the begin if it is 0."""
        for (topic, partition), offset in sorted(self._cluster.begin(added).items()):
            if offset and topic in known:
                raise expired(topic, partition, 0, offset, "the partition was added after the newest checkpoint")
            if offset:
                raise DefinitionError(
                    f"topic {topic!r} was added to the source, but partition {partition} begins at offset {offset}, "
                    "and Spark takes up added partitions only from 0",
                    next="read the added topic with a KafkaSource of its own",
                )

    def _same_topics(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        for topic, old in sorted(before.items()):
            if topic in now and now[topic] != old:
                raise recreated(topic, f"its id was {old} and is {now[topic]}")

    def partitions(self) -> list[Partition]:
        """Return the partitions that are read, as of the start."""
        return sorted({*(self._start or ()), *self._added})

    def range_read(self, start: dict[str, Any] | None, end: dict[str, Any], identity: Mapping[str, Any]) -> SparkRead:
        """Return how Spark reads a decided range once more, as a batch; see `RangeSource`."""
        from poundlock.connectors.kafka.ranges import range_read

        return range_read(self._source, self._cluster, self._group, start, end, identity)

    # -- at each checkpoint --------------------------------------------------------------------------------------------

    def identity(
        self, start: dict[str, Any] | None, end: dict[str, Any], previous: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what names the data just read: {"topics": {name: id}}, with "until" where the source is bounded.

        Raises:
            SourceGoneError: a topic was re-created or deleted, or offsets went back.
            TransientError: Kafka does not answer.
        """
        first, last = from_json(start), from_json(end)
        for (topic, partition), offset in sorted(first.items()):
            now = last.get((topic, partition))
            if now is None:
                raise deleted(topic, f"partition {partition} was read up to offset {offset}")
            if now < offset:
                raise recreated(topic, f"partition {partition} went back from offset {offset} to {now}")
        topics = {t for t, _ in last}
        ids = self._cluster.topic_ids(topics)
        known = {**self._baseline, **previous.get("topics", {})}
        if gone := sorted(t for t in topics if t in known and t not in ids):
            raise deleted(gone[0], f"its id was {known[gone[0]]}")
        self._same_topics(known, ids)
        self._baseline = {**known, **ids}
        until = {"until": to_json(self._until)} if self._until is not None else {}
        return {"topics": ids, **until}

    def committed(self, end: dict[str, Any]) -> None:
        """Commit a position for the group, so that lag tools see it. Does not wait; what goes wrong is only logged."""
        if not self._group:
            return
        offsets = from_json(end)
        self._renewed = (time.monotonic(), offsets)
        self._cluster.commit(offsets, self._group)

    def lag(self, end: dict[str, Any]) -> int | None:
        """Return how many offsets wait behind a position, None if Kafka does not say within 2 s.

        Also commits the group's offsets again once an hour, as brokers forget those of a group that is idle for long.
        """
        offsets = from_json(end)
        if self._renewed and self._group and time.monotonic() - self._renewed[0] > _RENEW_S:
            self.committed(to_json(self._renewed[1]))
        try:
            there = self._cluster.end(offsets, timeout=2)
        except PoundlockError:
            return None
        if self._until is not None:
            there = {p: min(offset, self._until.get(p, 0)) for p, offset in there.items()}
        return sum(max(0, there[p] - offset) for p, offset in offsets.items())

    def finished(self, position: dict[str, Any] | None) -> bool:
        """Return whether a bounded source is read to its end at a position; None = where the first start begins.

        Raises:
            RuntimeError: called before `spark_read`.
        """
        if not self.bounded:
            return False
        if self._until is None or self._start is None:
            raise RuntimeError("the end of a bounded source is known after spark_read")
        reached = self._start if position is None else from_json(position)
        return all(reached.get(p, 0) >= offset for p, offset in self._until.items())

    # -- words ---------------------------------------------------------------------------------------------------------

    def decoder(self) -> Any | None:
        """Return the decoder of the source's format, None for raw values."""
        return self._source.decoder()

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log, as Flink prints restored state."""
        return describe(position)

    def explain_error(self, message: str) -> PoundlockError | None:
        """Return the error behind a text of Spark's connector, or None if not known or about another's topic."""
        error = explain(message, self._source.bootstrap_servers, self._source.reads)
        if error is not None:
            error.participant = self._name
        return error


def _near(topic: str, there: Iterable[str]) -> str:
    names = list(there)
    close = difflib.get_close_matches(topic, names, n=3, cutoff=0.6) or [t for t in names if t.lower() == topic.lower()]
    if close:
        return f"did you mean {' or '.join(repr(t) for t in close)}?"
    return f"create it, or read one of: {_some(names)}" if names else "create it; there is no topic yet"


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "none"
