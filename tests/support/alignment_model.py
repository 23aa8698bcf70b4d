"""Watermark alignment: which sources, and which of their partitions, have to wait for the slowest of their group.

Pure arithmetic over watermarks; whoever reads the sources sees to it that those that are named wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from poundlock.operators.time_values import MAX, MIN
from poundlock.values import span_ms
from support.partition_watermarks import PartitionWatermarks

__all__ = ["Paused", "allowed", "paused"]


@dataclass(frozen=True, slots=True)
class Paused:
    """What has to wait.

    Args:
        source: the source.
        partition: the partition; None = the source as a whole.
        ahead_ms: how much further it is than it may be.
    """

    source: str
    partition: str | None
    ahead_ms: int


def allowed(watermarks: Iterable[int], drift_ms: int) -> int:
    """Return the greatest watermark that a member of a group may have, given those of its active members."""
    least = min(watermarks, default=MAX)
    return MAX if least > MAX - drift_ms else MIN if least == MIN else least + drift_ms


def paused(sources: Mapping[str, PartitionWatermarks]) -> list[Paused]:
    """Return what has to wait, sources before their partitions; sources that are idle hold nobody back.

    A group in which somebody has no watermark yet lets nobody run: as in Flink, all wait for the first rows of the last.
    Nobody waits who has no watermark himself.
    """
    found: list[Paused] = []
    groups: dict[str, list[int]] = {}
    for source in sources.values():
        if source.strategy.alignment is not None and not source.idle:
            groups.setdefault(source.strategy.alignment.group, []).append(source.watermark)
    for name, source in sources.items():
        alignment = source.strategy.alignment
        if alignment is None:
            continue
        limit = allowed(groups.get(alignment.group, ()), span_ms(alignment.max_drift))
        found += _ahead(name, None, source.watermark, limit)
        for partition, watermark in source.partitions.items():
            found += _ahead(name, partition, watermark, limit)
    return found


def _ahead(source: str, partition: str | None, watermark: int, limit: int) -> list[Paused]:
    if watermark in (MIN, MAX) or watermark <= limit:
        return []
    return [Paused(source, partition, watermark - limit if limit != MIN else MAX)]
