"""The finished files of a job, read from its decisions: what a reader may rely on, without listing a folder.

A file is in the manifest exactly when a decision made it visible; its counts and event-time bounds are the writer's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from poundlock.checkpoint.decision import Decision
from poundlock.connectors.files.file_values import FileCommittable


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One finished file.

    Args:
        sink: name of the sink.
        root: the sink's folder.
        path: below the folder, with forward slashes.
        bucket: its bucket; "" = the folder itself.
        rows: records in it.
        bytes: size; of what was merged by record (compaction of bulk formats) before the merge.
        min_event_ms, max_event_ms: event-time bounds, ms since the epoch; None where the sink does not know event times.
        checkpoint: the checkpoint of the decision that made it visible (for a roll: the newest before it).
        decision: number of that decision.
    """

    sink: str
    root: str
    path: str
    bucket: str
    rows: int
    bytes: int
    min_event_ms: int | None
    max_event_ms: int | None
    checkpoint: int
    decision: int


def finished_files(decisions: Iterable[Decision], *, sink: str | None = None) -> Iterator[ManifestEntry]:
    """Yield the finished files of decisions, in their order.

    Args:
        decisions: records of one job's ledger.
        sink: only of this sink; None = of all file sinks (committables of other kinds of sinks are left out).
    """
    for decision in decisions:
        for name, part in decision.sinks.items():
            if sink is not None and name != sink:
                continue
            for committable in part.committables:
                if "final" not in committable or "segments" not in committable:
                    continue
                file = FileCommittable.of(committable)
                if not file.segments:  # it only removed old files
                    continue
                yield ManifestEntry(
                    sink=name,
                    root=file.root,
                    path=file.final,
                    bucket=file.bucket,
                    rows=file.rows,
                    bytes=file.bytes,
                    min_event_ms=file.min_ms,
                    max_event_ms=file.max_ms,
                    checkpoint=decision.checkpoint,
                    decision=decision.number,
                )
