"""Whether records of a topic are stamped later than it is here: brokers tell no time but that of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poundlock.connectors.kafka.client_loader import confluent

if TYPE_CHECKING:
    from poundlock.connectors.kafka.cluster import Cluster
    from poundlock.connectors.kafka.offsets import Partition


def newest_record_ms(cluster: Cluster, partitions: list[Partition], seconds: float) -> int | None:
    """Return the latest time of any record of some partitions, ms since the epoch; None if there is none, or the broker is older than 3.0.

    It is the broker's time where the topic has message.timestamp.type=LogAppendTime, and otherwise of whoever produced it.
    """
    kafka, spec = confluent(), confluent("admin").OffsetSpec.max_timestamp()
    asked = {kafka.TopicPartition(topic, number): spec for topic, number in partitions}
    if not asked:
        return None
    futures = cluster.admin().list_offsets(asked, request_timeout=seconds)
    try:
        return (
            max((int(each.result(seconds + 5).timestamp) for each in futures.values()), default=-1) if futures else None
        )
    except kafka.KafkaException:
        return None
