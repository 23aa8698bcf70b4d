"""When a bucket ends: read out of its name, by the date pattern that gave it, or by a time and a length.

An end is never too early: where a zone puts its clocks back, it is that of the second time that the bucket's clock times come.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from poundlock.connectors.files.buckets.assigners import DatePattern
from poundlock.connectors.files.partitions.times import (
    PartitionTimeExtractor,
    PartitionTimePattern,
    fields_of,
    partition_ms,
)
from poundlock.errors import DefinitionError, TerminalError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("year", "month", "day", "hour", "minute", "second")
_SHORT = {"hour": timedelta(hours=1), "minute": timedelta(minutes=1), "second": timedelta(seconds=1)}
"""The units of which a zone may have some twice."""


class BucketEnds(Protocol):
    """Knows when buckets end. Frozen and picklable."""

    def end_ms(self, bucket: str) -> int:
        """Return the first time that is not in a bucket any more, ms since the epoch. Raises TerminalError where the name says none."""


@dataclass(frozen=True)
class EndsByPattern:
    """The ends of buckets that a date pattern names.

    Args:
        pattern: Java date pattern, such as "'dt='yyyyMMdd'/hour='HH": the bucket goes on for its smallest unit.
        zone: IANA name of the zone that it is written in.

    Raises:
        DefinitionError: the pattern leaves out a larger unit than its smallest, or has one twice.
    """

    pattern: str
    zone: str

    def __post_init__(self) -> None:
        _ = self.unit

    @property
    def unit(self) -> str:
        """The smallest unit of the pattern: how long a bucket goes on."""
        units = fields_of(DatePattern.parse(self.pattern))
        if tuple(units) != _UNITS[: len(units)] or not units:
            raise DefinitionError(
                f"the end of a bucket cannot be read from the date pattern {self.pattern!r}",
                next="write each unit from the year on once and in order, such as yyyyMMdd, or give SealedBuckets time= and length=",
            )
        return units[-1]

    def end_ms(self, bucket: str) -> int:
        return _end_ms(self, bucket)


@lru_cache(maxsize=1 << 16)
def _end_ms(ends: EndsByPattern, bucket: str) -> int:
    try:
        local = PartitionTimePattern(formatter=ends.pattern).parsed(bucket)
    except ValueError:
        raise TerminalError(
            f"the bucket {bucket!r} is not written as {ends.pattern}, so it has no end",
            next="give SealedBuckets time= and length=, or the trigger process-time",
        ) from None
    zone, unit = ZoneInfo(ends.zone), ends.unit
    end = _next(local, unit).replace(tzinfo=zone).astimezone(UTC)
    if unit in _SHORT:  # its clock times may come a second time
        end = max(end, local.replace(tzinfo=zone, fold=1).astimezone(UTC) + _SHORT[unit])
    return (end - _EPOCH) // timedelta(milliseconds=1)


def _next(local: datetime, unit: str) -> datetime:
    if unit == "year":
        return local.replace(year=local.year + 1)
    if unit == "month":
        return local.replace(year=local.year + local.month // 12, month=local.month % 12 + 1)
    return local + (timedelta(days=1) if unit == "day" else _SHORT[unit])


@dataclass(frozen=True)
class EndsByTime:
    """The ends of buckets whose begin a time extractor reads, and which are equally long.

    Args:
        time: gives the begin.
        zone: of that time.
        length_ms: how long a bucket goes on.
    """

    time: PartitionTimeExtractor
    zone: str
    length_ms: int

    def end_ms(self, bucket: str) -> int:
        return partition_ms(self.time, self.zone, bucket) + self.length_ms
