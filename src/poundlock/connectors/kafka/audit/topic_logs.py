"""The partitions of a cluster's topics, looked at by the driver: where they begin and end, and what stands in them.

Nothing is changed, no group is joined; records are read as tasks read them, checksums included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.login import login
from poundlock.connectors.kafka.offsets import Offsets, Partition
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.wire.fetch_client import FetchClient, fetch_client
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_headers, fetch_range
from poundlock.connectors.kafka.wire.record_batches import BatchHeader, Records

_SETTINGS = FetchSettings(patience_s=30)


class TopicLogs(Cluster):
    """A cluster that is asked for records too; "end" is the offset after the last record, committed or not."""

    def __init__(self, servers: str, security: KafkaSecurity, *, seconds: float = 10) -> None:
        super().__init__(servers, security.confluent(), committed_only=False, timeout=seconds)
        self._security = security

    def places(self, topics: Iterable[str]) -> list[Partition]:
        """Return the partitions of topics; those that are gone, or that this user may not know of, have none."""
        known = self.partitions()
        return [(topic, number) for topic in sorted(topics) for number in known.get(topic, ())]

    def stable(self, places: Iterable[Partition]) -> Offsets:
        """Return the offset of partitions before which every transaction has ended."""
        return self.end(places, committed=True)

    def read(self, place: Partition, first: int, after: int) -> Iterator[Records]:
        """Yield the records of a range as a read_committed reader gets them; see `fetch_range`."""
        return fetch_range(self._fetch, OffsetRange(*place, first, after), committed=True)

    def headers(self, place: Partition, first: int, after: int) -> Iterator[tuple[BatchHeader, bool]]:
        """Yield what stands in a range, of open and aborted transactions too; see `fetch_headers`."""
        return fetch_headers(self._fetch, OffsetRange(*place, first, after))

    @property
    def _fetch(self) -> FetchClient:
        return fetch_client(self.servers, login(self._security), _SETTINGS)
