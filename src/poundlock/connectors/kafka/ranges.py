"""A decided range of Kafka offsets, to be read once more as a batch: the same records, or an error that says why not.

Only offsets are asked for; no group is committed and nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import SparkRead
from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.offsets import Offsets, from_json, to_json
from poundlock.connectors.kafka.options import columns, spark_options, until_filter
from poundlock.errors import SourceGoneError

if TYPE_CHECKING:
    from poundlock.connectors.kafka.source import KafkaSource

__all__ = ["range_read"]

_STREAMING = ("subscribe", "subscribePattern", "maxOffsetsPerTrigger")
_ONLY = "only checkpoints whose records Kafka still has can be read again"


def range_read(
    source: KafkaSource,
    cluster: Cluster,
    group: str | None,
    start: Mapping[str, Any] | None,
    end: Mapping[str, Any],
    identity: Mapping[str, Any],
) -> SparkRead:
    """Return how Spark reads a range; see `RangeSource.range_read`.

    Args:
        source: what is read.
        cluster: asked for topics and offsets.
        group: prefix for the groups of Spark's own consumers.
        start, end, identity: as the decision has them.
    """
    last = from_json(end)
    before = from_json(start)
    first = {place: before.get(place, 0) for place in last}  # a partition that was met later was read from its begin
    read = {place: offset for place, offset in last.items() if first[place] < offset}
    _check_there(cluster, {place: first[place] for place in read}, read, identity)
    places = read or last
    options = spark_options(source, json.dumps(to_json({place: first[place] for place in places})), group)
    for name in _STREAMING:
        options.pop(name, None)
    options["endingOffsets"] = json.dumps(to_json({place: last[place] for place in places}))
    assigned: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        assigned.setdefault(topic, []).append(partition)
    options["assign"] = json.dumps(assigned)
    until = identity.get("until")
    return SparkRead(
        format="kafka",
        options=options,
        columns=columns(source),
        where=until_filter(from_json(until)) if until is not None else None,
        jars=("kafka",),
    )


def _check_there(cluster: Cluster, first: Offsets, last: Offsets, identity: Mapping[str, Any]) -> None:
    """Raise SourceGoneError unless the records of the range are still those that were read."""
    there = cluster.partitions()
    ids = cluster.topic_ids({topic for topic, _ in last})
    for topic, partition in sorted(last):
        if partition not in there.get(topic, ()):
            raise SourceGoneError(f"topic {topic!r} partition {partition} is gone from Kafka", next=_ONLY)
        known = identity.get("topics", {}).get(topic)
        if known is not None and ids.get(topic, known) != known:
            raise SourceGoneError(
                f"topic {topic!r} is not the one this checkpoint has read: its id was {known} and is {ids[topic]}",
                next=_ONLY,
            )
    begin, end = cluster.begin(last), cluster.end(last)
    for place, offset in sorted(last.items()):
        topic, partition = place
        if first[place] < begin[place]:
            raise SourceGoneError(
                f"topic {topic!r} partition {partition}: offsets {first[place]} to {min(offset, begin[place])} of this"
                " checkpoint have expired or were deleted",
                next=_ONLY,
            )
        if offset > end[place]:
            raise SourceGoneError(
                f"topic {topic!r} partition {partition} ends at {end[place]}, and this checkpoint read up to {offset}",
                next=_ONLY,
            )
