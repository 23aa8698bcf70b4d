"""The reports of a checkpoint's tasks, put together by partition: the order they come in, and how often, makes no difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from poundlock.errors import TerminalError
from poundlock.operators.source_watermarks import PartitionSeen
from poundlock.operators.time_values import SUMMARY, SplitTimes

Seen = Mapping[str, Mapping[str, Mapping[str, PartitionSeen]]]
"""By assigner, source and partition."""


def merged(reports: Iterable[SplitTimes]) -> list[SplitTimes]:
    """Return the reports as one for each partition, in a fixed order.

    It is what a task hands on to the next stage of what it received: any number of tasks may hand on the same.

    Raises:
        TerminalError: as `seen_by_assigner`.
    """
    return [
        SplitTimes(assigner, source, partition, SUMMARY, each.greatest, each.count, each.generator)
        for assigner, sources in sorted(seen_by_assigner(reports).items())
        for source, partitions in sorted(sources.items())
        for partition, each in sorted(partitions.items())
    ]


def seen_by_assigner(reports: Iterable[SplitTimes]) -> Seen:
    """Return what was seen of each partition.

    Raises:
        TerminalError: two tasks read one partition whose generator looks at each record, so neither has seen all of it.
    """
    by_split: dict[tuple[str, str], dict[tuple[str, int], SplitTimes]] = {}
    summaries: set[tuple[str, str]] = set()
    for report in reports:
        place = report.assigner, report.source
        by_split.setdefault(place, {})[report.partition, report.sequence] = report
        if report.sequence == SUMMARY:
            summaries.add(place)
    seen: dict[str, dict[str, dict[str, PartitionSeen]]] = {}
    for (assigner, source), splits in by_split.items():
        whole = (assigner, source) in summaries
        partitions = seen.setdefault(assigner, {}).setdefault(source, {})
        for (partition, sequence), report in splits.items():
            if not whole or sequence == SUMMARY:
                partitions[partition] = _together(partitions.get(partition), report)
    return seen


def _together(seen: PartitionSeen | None, report: SplitTimes) -> PartitionSeen:
    if seen is None:
        return PartitionSeen(report.greatest, report.count, report.generator)
    if report.generator is not None or seen.generator is not None:
        raise TerminalError(
            f"{report.assigner}: two tasks read {report.partition} of {report.source}, whose watermark generator looks at each record",
            next="report this as a bug: the splits of such a partition belong to one task",
        )
    return PartitionSeen(max(seen.greatest, report.greatest), seen.count + report.count)
