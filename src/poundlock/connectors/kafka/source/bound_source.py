"""A KafkaSource as one start of one job uses it: with the job's name, what was read before, and secrets read on the driver.

It travels to the tasks; what is secret in it is shown in no repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import ReaderContext
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.login import Login
from poundlock.connectors.kafka.offsets import describe
from poundlock.connectors.kafka.source.client_properties import parse
from poundlock.connectors.kafka.source.partition_discovery import PartitionDiscovery
from poundlock.storage.base import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.kafka.source.enumerator import KafkaEnumerator
    from poundlock.connectors.kafka.source.reader import KafkaReader
    from poundlock.connectors.kafka.source.source import KafkaSource


_PREFLIGHT_S = 4.5


@dataclass(frozen=True)
class BoundKafkaSource:
    """A KafkaSource in use. Made by `KafkaSource.bind`; a SplitSource.

    Args:
        source: what to read.
        who: how to log in.
        job: name of the job, for the group; None = there is none.
        name: name of the source in the job.
        previous: the identity that the newest decision recorded; None on a first start.
    """

    source: KafkaSource
    who: Login = field(repr=False)
    job: str | None
    name: str | None
    previous: Mapping[str, Any] | None

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.source.bounded

    @property
    def group(self) -> str | None:
        """The group whose offsets are committed, None or "" for none."""
        if self.source.group_id is not None:
            return self.source.group_id
        return f"poundlock-{self.job}" if self.job else None

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        return self.source.schema()

    def cluster(self) -> Cluster:
        """Return a new connection of the driver's; it connects when it is first asked."""
        s = self.source
        settings = {**s.security.confluent(), **{name: str(value) for name, value in s.client_options.items()}}
        return Cluster(s.bootstrap_servers, settings, committed_only=s.isolation == "read_committed")

    def preflight(self) -> None:
        """Check within 5 s that the servers answer and the topics and partitions are there.

        Raises:
            DefinitionError: a topic or partition is missing, or the servers refuse this user.
            TransientError: no server answers; names them.
        """
        cluster = self.cluster()
        try:
            PartitionDiscovery(self.source, cluster).partitions(_PREFLIGHT_S)
        finally:
            cluster.close()

    def enumerator(self, workspace: Storage) -> KafkaEnumerator:
        """Return the driver's half.

        Args:
            workspace: keeps what the words of `start` and `end` meant at the first start.
        """
        from poundlock.connectors.kafka.source.enumerator import KafkaEnumerator

        return KafkaEnumerator(
            self.source,
            self.cluster(),
            workspace,
            group=self.group,
            previous=self.previous,
            records_per_split=parse(self.source.options).records_per_split,
        )

    def reader(self, context: ReaderContext) -> KafkaReader:
        """Return the task's half."""
        from poundlock.connectors.kafka.source.reader import KafkaReader
        from poundlock.connectors.kafka.wire.fetch_client import fetch_client

        s = self.source
        return KafkaReader(
            fetch_client(s.bootstrap_servers, self.who, parse(s.options)),
            s.columns,
            s.decoder(),
            committed=s.isolation == "read_committed",
            context=context,
        )

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log, as Flink prints restored state."""
        return describe(position)
