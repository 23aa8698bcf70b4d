"""Reading partitions of topics as the broker keeps them, batch by batch, with what it says of open and aborted transactions.

Besides transactions.py the only module that knows private parts of kafka-python. Nothing is changed, no group is joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.connectors.kafka.client_loader import kafka_python
from poundlock.connectors.kafka.partition_ranges import Place
from poundlock.connectors.kafka.sink.transactions import Transactions

_MOST_BYTES = 16 << 20
_PARTITION_BYTES = 4 << 20
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_ALLOW = "allow it READ and DESCRIBE on the sink's topics: an audit reads them, and so may a restore"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a broker answered for one partition.

    Args:
        place: the partition.
        fault: name of the error; "" = none.
        end: offset after the last message, committed or not.
        stable: offset before which every transaction has ended.
        aborted: per aborted transaction among the data the producer and its first offset.
        data: record batches from the offset asked for; the first may begin before it, the last may be cut off.
    """

    place: Place
    fault: str
    end: int
    stable: int
    aborted: Sequence[tuple[int, int]]
    data: bytes


class TopicLogs:
    """The partitions of a cluster's topics.

    Args:
        asked: the connection.
    """

    def __init__(self, asked: Transactions) -> None:
        self._asked = asked

    def leaders(self, topics: Iterable[str], *, seconds: float | None = None) -> dict[Place, int]:
        """Return the partitions of topics, each with the number of the broker that leads it; topics that are gone have none.

        `seconds` is how long to ask for; None = as long as the connection does.
        """
        names = sorted(topics)

        def ask(admin: Any) -> dict[Place, int]:
            return {
                (topic["name"], partition["partition_index"]): partition["leader_id"]
                for topic in (admin.describe_topics(names) if names else ())
                for partition in topic["partitions"]
            }

        return self._asked.ask(ask, allow=_ALLOW, seconds=seconds)

    def begins(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the first offset of partitions."""
        return self._offsets(places, kafka_python("admin").OffsetSpec.EARLIEST, None)

    def ends(self, places: Iterable[Place], *, seconds: float | None = None) -> dict[Place, int]:
        """Return the offset after the last record of partitions, committed or not; `seconds` as in `leaders`."""
        return self._offsets(places, kafka_python("admin").OffsetSpec.LATEST, seconds)

    def _offsets(self, places: Iterable[Place], spec: Any, seconds: float | None) -> dict[Place, int]:
        kafka = kafka_python()
        wanted = {kafka.TopicPartition(*place): spec for place in places}

        def ask(admin: Any) -> dict[Place, int]:
            found = admin.list_partition_offsets(wanted) if wanted else {}
            return {(place.topic, place.partition): int(told.offset) for place, told in found.items()}

        return self._asked.ask(ask, allow=_ALLOW, seconds=seconds)

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Return those topics of which the broker keeps the newest message of a key only, as far as this user may know."""
        admin_module, errors = kafka_python("admin"), kafka_python("errors")
        kind = admin_module.ConfigResourceType.TOPIC
        wanted = [admin_module.ConfigResource(kind, topic, {"cleanup.policy": None}) for topic in sorted(topics)]

        def ask(admin: Any) -> set[str]:
            try:
                told = admin.describe_configs(wanted, config_filter="all") if wanted else {}
            except errors.AuthorizationError:
                return set()
            found = told.get("topic", {})
            return {
                name for name, said in found.items() if "compact" in str(said.get("cleanup.policy", {}).get("value"))
            }

        return self._asked.ask(ask)

    def fetch(
        self, leader: int, offsets: Mapping[Place, int], *, wait_ms: int, committed: bool = True
    ) -> list[Fetched]:
        """Return what stands at offsets of partitions that one broker leads.

        Args:
            leader: number of the broker.
            offsets: per partition, from where.
            wait_ms: how long the broker may wait for something to come.
            committed: as a read_committed reader gets it, which is nothing behind an open transaction.
        """
        fetch = kafka_python("protocol.consumer").FetchRequest
        topics: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            wanted = fetch.FetchTopic.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES
            )
            topics.setdefault(topic, []).append(wanted)
        # Version 13 names topics by their ids; version 10 is the first that gives zstd.
        request = fetch(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=_MOST_BYTES, isolation_level=_READ_COMMITTED if committed else _READ_UNCOMMITTED,
            topics=[fetch.FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
            min_version=10, max_version=12,
        )  # fmt: skip

        async def send(admin: Any) -> Any:
            return await admin._manager.send(request, node_id=leader)

        def ask(admin: Any) -> list[Fetched]:
            told = admin._manager.run(send, admin)
            return [_fetched(topic.topic, part) for topic in told.responses for part in topic.partitions]

        return self._asked.ask(ask, allow=_ALLOW)


def _fetched(topic: str, told: Any) -> Fetched:
    errors = kafka_python("errors")
    fault = "" if not told.error_code else str(errors.for_code(told.error_code).__name__)
    if fault == "TopicAuthorizationFailedError":
        raise errors.TopicAuthorizationFailedError(f"reading topic {topic}")
    aborted = [(int(one.producer_id), int(one.first_offset)) for one in told.aborted_transactions or ()]
    data = b"" if told.records is None else bytes(told.records)
    return Fetched(
        (topic, int(told.partition_index)), fault, int(told.high_watermark), int(told.last_stable_offset), aborted, data
    )
