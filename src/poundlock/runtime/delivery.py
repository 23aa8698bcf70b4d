"""What one micro-batch reads: through Spark's connectors what Spark planned, of split-planned sources what the driver plans.

Spark's plan is in Spark's log and comes again after a crash; the driver's is in the ledger once it is decided, and made
anew until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.decision import SourceRange
from poundlock.connectors.base import SplitSource
from poundlock.plan.event_time import merged
from poundlock.plan.splits import pack
from poundlock.plan.uses import source_of
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.planner import SplitPlanner

__all__ = ["Delivery", "idle", "waiting"]


def idle(ranges: Mapping[str, SourceRange]) -> bool:
    """Return whether there is nothing to read in any of the ranges."""
    return all(span.start == span.end for span in ranges.values())


def waiting(sources: Mapping[str, Any], ends: Mapping[str, Any]) -> list[int | None]:
    """Return how much waits behind positions of Spark sources, each asked once; None where one does not say.

    Args:
        sources: by name of each use, as this start of the job reads them.
        ends: position by use.
    """
    asked = {name: sources[name] for name in ends if name == source_of(name)}
    return [source.lag(ends[name]) for name, source in asked.items() if not isinstance(source, SplitSource)]


@dataclass
class Delivery:
    """One micro-batch as it was delivered.

    Args:
        spark: per use of a Spark source, what Spark planned.
        ticks: per use of a split-planned source, the numbers of its ticker's rows: the first, and behind the last.
        split: per split-planned source, what the driver planned, or what the ledger says of a decided checkpoint.
    """

    spark: dict[str, SourceRange]
    ticks: Mapping[str, tuple[int, int]]
    split: Mapping[str, SourceRange]
    given: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    split_names: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, batch: int, log: SparkLog, sources: Mapping[str, Any], split: Mapping[str, SourceRange]) -> Delivery:
        """Return what Spark's log says of a batch, with what it reads besides.

        Args:
            batch: its number.
            log: Spark's logs.
            sources: by name of each use, as this start of the job reads them.
            split: per source of the job, a range; only those of split-planned sources count.
        """
        before, planned = log.planned_before(batch), log.planned(batch)
        spark, ticks = {}, {}
        for use, end in planned.items():
            if isinstance(sources.get(use), SplitSource):
                ticks[use] = (int(before[use]["offset"]) if use in before else 0, int(end["offset"]))
            elif use in sources:
                spark[use] = SourceRange(before[use] if use in before else log.initial(use), end)
        if ticks:
            log.check_gap(batch)  # a task finds its splits by the number of its row in the batch
        names = {source_of(use) for use in ticks}
        return cls(spark, ticks, {name: span for name, span in split.items() if name in names})

    @property
    def idle(self) -> bool:
        """Return whether there is nothing new in any source."""
        return idle(self.ranges)

    @property
    def ranges(self) -> dict[str, SourceRange]:
        """Return the ranges of all sources."""
        return {**self.spark, **self.split}

    @property
    def tasks(self) -> int | None:
        """Return over how many tasks splits are spread; None where there is no split-planned source."""
        return max((last - first for first, last in self.ticks.values()), default=None)

    def identify(self, sources: Mapping[str, Any], known: Mapping[str, SourceRange]) -> None:
        """Ask the Spark sources what names the very data. Raises SourceGoneError where it is no longer what it was."""
        for use, span in self.spark.items():
            identity = sources[use].identity(span.start, span.end, known[use].identity if use in known else {})
            self.spark[use] = SourceRange(span.start, span.end, identity)

    def splits(self, planner: SplitPlanner) -> dict[str, Any]:
        """Return what the directive says of each use of a split-planned source; `given` has the number of splits then."""
        said = {}
        for use, (first, last) in self.ticks.items():
            name = source_of(use)
            work = planner.splits(name, self.split[name]) if name in self.split else []
            said[use] = pack(work, first, last - first)
            self.given[use] = len(work)
            self.split_names[use] = merged(
                [split.name or split.id for split in sorted(work, key=lambda split: split.id)]
            )
            sizes = [split.bytes for split in work if split.bytes is not None]
            if len(sizes) == len(work):
                self.bytes[use] = sum(sizes)
        return said
