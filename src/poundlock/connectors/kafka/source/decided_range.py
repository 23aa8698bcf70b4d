"""Whether a range of offsets that a checkpoint read can be read once more: the same records, or an error that says why not.

Only offsets and ids are asked for; nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.offsets import Offsets
from poundlock.errors import SourceGoneError

_ONLY = "only checkpoints whose records Kafka still has can be read again"


def check_range(cluster: Cluster, start: Offsets, end: Offsets, topic_ids: Mapping[str, str]) -> None:
    """Raise SourceGoneError unless the records of a range are still those that were read.

    Args:
        cluster: asked for topics and offsets.
        start, end: the range; partitions that `start` does not name entered without a record.
        topic_ids: id of each topic when it was read, where it is known.
    """
    read = {place: after for place, after in end.items() if start.get(place, after) < after}
    there = cluster.partitions()
    ids = cluster.topic_ids({topic for topic, _ in read})
    for topic, partition in sorted(read):
        if partition not in there.get(topic, ()):
            raise SourceGoneError(f"topic {topic!r} partition {partition} is gone from Kafka", next=_ONLY)
        known = topic_ids.get(topic)
        if known is not None and ids.get(topic, known) != known:
            raise SourceGoneError(
                f"topic {topic!r} is not the one this checkpoint has read: its id was {known} and is {ids[topic]}",
                next=_ONLY,
            )
    first, last = cluster.begin(read), cluster.end(read)
    for (topic, partition), after in sorted(read.items()):
        place = (topic, partition)
        if start[place] < first[place]:
            raise SourceGoneError(
                f"topic {topic!r} partition {partition}: offsets {start[place]} to {min(after, first[place])} of this"
                " checkpoint have expired or were deleted",
                next=_ONLY,
            )
        if after > last[place]:
            raise SourceGoneError(
                f"topic {topic!r} partition {partition} ends at {last[place]}, and this checkpoint read up to {after}",
                next=_ONLY,
            )
