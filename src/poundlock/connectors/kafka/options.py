"""What Spark's Kafka connector is told: options, columns, and the filter that ends a bounded source.

Data loss always fails the query, and isolation is what the source says; neither can be overridden by further options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from poundlock.connectors.kafka.offsets import Partition, to_json
from poundlock.connectors.kafka.security import Redacted

if TYPE_CHECKING:
    from poundlock.connectors.kafka.source import KafkaSource

__all__ = ["columns", "spark_options", "until_filter"]

# Larger polls and fetches took a quarter to a third off the JVM's processor time for small records.
_FAST = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.fetch.max.bytes": str(16 << 20),
}
# A broker that is gone is told within about half a minute instead of three; one that restarts is waited for.
_PATIENCE = {
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "2",
    "fetchOffset.retryIntervalMs": "500",
    "kafkaConsumer.pollTimeoutMs": "60000",
}


def spark_options(source: KafkaSource, starting: str, group: str | None) -> Redacted:
    """Return the options for `readStream.format("kafka")`.

    Args:
        source: what to read.
        starting: value of `startingOffsets`, naming every partition or a word.
        group: prefix for the groups of Spark's own consumers, so that one rule on the broker covers them.
    """
    own = {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "kafka.isolation.level": source.isolation,
        "startingOffsets": starting,
        "failOnDataLoss": "true",
        "includeHeaders": "true" if _wants_headers(source) else "false",
    }
    if source.pattern is not None:
        own["subscribePattern"] = source.pattern
    elif source.partitions is not None:
        own["assign"] = json.dumps({t: sorted(set(ps)) for t, ps in source.partitions.items()})
    else:
        own["subscribe"] = ",".join(source.topics or ())
    if group:
        own["groupIdPrefix"] = f"{group}-reader"
    if source.max_records_per_checkpoint is not None:
        own["maxOffsetsPerTrigger"] = str(source.max_records_per_checkpoint)
    if source.min_partitions is not None:
        own["minPartitions"] = str(source.min_partitions)
    users = {k: str(v) for k, v in source.options.items()}
    return Redacted({**_FAST, **_PATIENCE, **source.security.spark(), **users, **own})


def _wants_headers(source: KafkaSource) -> bool:
    return source.include_headers or "headers" in source.metadata.values()


def columns(source: KafkaSource) -> list[str]:
    """Return the columns of a row as Spark SQL."""
    from poundlock.connectors.kafka.source import FIELDS

    names = [name for name in FIELDS if name != "headers" or source.include_headers]
    wanted = {**{name: name for name in names}, **source.metadata}
    return [
        FIELDS[shown] if FIELDS[shown] == name else f"{FIELDS[shown]} AS `{name}`" for name, shown in wanted.items()
    ]


def until_filter(until: Mapping[Partition, int]) -> str:
    """Return a condition that holds for records before an end; partitions that the end does not name came later."""
    if not until:
        return "false"
    topics = []
    for topic, ends in to_json(until).items():
        cases = " ".join(f"WHEN {partition} THEN offset < {end}L" for partition, end in ends.items())
        topics.append(f"WHEN '{topic}' THEN CASE partition {cases} ELSE false END")
    return f"CASE topic {' '.join(topics)} ELSE false END"
