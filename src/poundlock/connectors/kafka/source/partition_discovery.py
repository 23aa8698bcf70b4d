"""Which partitions a source reads, by what its user named and what the cluster has; asked again from time to time.

A topic or partition that the user named and that is not there is a DefinitionError that says what is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.offsets import Partition
from poundlock.errors import DefinitionError, did_you_mean

if TYPE_CHECKING:
    from poundlock.connectors.kafka.source.source import KafkaSource


_EVERY_S = 2.0


class PartitionDiscovery:
    """The partitions of one source."""

    def __init__(self, source: KafkaSource, cluster: Cluster) -> None:
        self._source, self._cluster = source, cluster
        self._looked: float | None = None

    def partitions(self, timeout: float | None = None) -> list[Partition]:
        """Return all partitions that the source reads now. `timeout` is in seconds, None = as long as the cluster's questions take.

        Raises:
            DefinitionError: a topic or partition is missing, or the servers refuse this user.
            TransientError: no server answers; names them.
        """
        there, s = self._cluster.partitions(timeout), self._source
        self._looked = time.monotonic()
        if s.pattern is None:
            self._check_named(there)
        matching = self._matching(there)
        if s.pattern is not None and not matching:
            raise DefinitionError(
                f"no topic in Kafka at {s.bootstrap_servers} matches pattern {s.pattern!r}",
                next=f"the topics are: {_some(sorted(there))}",
            )
        return matching

    def partitions_if_due(self) -> Sequence[Partition]:
        """Return all partitions that the source reads if it is time to look again, else none. What is missing is left out."""
        named, looked = self._source.partitions is not None, self._looked
        if looked is not None and (named or time.monotonic() - looked < _EVERY_S):
            return ()
        there = self._cluster.partitions()
        self._looked = time.monotonic()
        return self._matching(there)

    def _matching(self, there: Mapping[str, Sequence[int]]) -> list[Partition]:
        return sorted((t, p) for t, partitions in there.items() for p in partitions if self._source.reads(t, p))

    def _check_named(self, there: Mapping[str, Sequence[int]]) -> None:
        s = self._source
        wanted: Mapping[str, Sequence[int]] = s.partitions or dict.fromkeys(s.topics or (), ())
        missing = [topic for topic in wanted if topic not in there]
        if missing:
            every = (
                f"create it, or read one of: {_some(sorted(there))}" if there else "create it; there is no topic yet"
            )
            raise DefinitionError(
                f"topic {missing[0]!r} is not in Kafka at {s.bootstrap_servers}, or this user may not see it",
                next=did_you_mean(missing[0], sorted(there), every, n=3, show=repr),
            )
        for topic, numbers in wanted.items():
            absent = sorted(set(numbers) - set(there[topic]))
            if absent:
                raise DefinitionError(
                    f"topic {topic!r} has {len(there[topic])} partitions, none with number {absent[0]}",
                    next="correct partitions=… of KafkaSource",
                )


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "none"
