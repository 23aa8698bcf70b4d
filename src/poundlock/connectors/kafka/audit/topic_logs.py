"""The partitions of a cluster's topics, looked at by the driver: where they begin and end, and what stands in them.

Nothing is changed, no group is joined; records are read as tasks read them, checksums included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.login import login
from poundlock.connectors.kafka.offsets import Offsets
from poundlock.connectors.kafka.partition_ranges import Place
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.wire.fetch_client import FetchClient, fetch_client
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_headers, fetch_range
from poundlock.connectors.kafka.wire.record_batches import BatchHeader, Records

_SETTINGS = FetchSettings(patience_s=30)


class TopicLogs:
    """A connection for questions and one for records, each made when it is first needed.

    Args:
        servers: host:port, comma-separated.
        security: how to log in.
        seconds: how long to ask for an answer.
    """

    def __init__(self, servers: str, security: KafkaSecurity, *, seconds: float = 10) -> None:
        self._servers, self._security = servers, security
        self._all = Cluster(servers, security.confluent(), committed_only=False, timeout=seconds)
        self._stable = Cluster(servers, security.confluent(), timeout=seconds)

    def places(self, topics: Iterable[str]) -> list[Place]:
        """Return the partitions of topics; those that are gone, or that this user may not know of, have none."""
        known = self._all.partitions()
        return [(topic, number) for topic in sorted(topics) for number in known.get(topic, ())]

    def begins(self, places: Iterable[Place]) -> Offsets:
        """Return the first offset of partitions."""
        return self._all.begin(places)

    def ends(self, places: Iterable[Place]) -> Offsets:
        """Return the offset after the last record of partitions, committed or not."""
        return self._all.end(places)

    def stable(self, places: Iterable[Place]) -> Offsets:
        """Return the offset of partitions before which every transaction has ended."""
        return self._stable.end(places)

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Return those topics of which the broker keeps the newest message of a key only, as far as this user may know."""
        return self._all.compacted(topics)

    def read(self, place: Place, first: int, after: int) -> Iterator[Records]:
        """Yield the records of a range as a read_committed reader gets them; see `fetch_range`."""
        return fetch_range(self._client, OffsetRange(*place, first, after), committed=True)

    def headers(self, place: Place, first: int, after: int) -> Iterator[tuple[BatchHeader, bool]]:
        """Yield what stands in a range, of open and aborted transactions too; see `fetch_headers`."""
        return fetch_headers(self._client, OffsetRange(*place, first, after))

    @property
    def _client(self) -> FetchClient:
        return fetch_client(self._servers, login(self._security), _SETTINGS)
