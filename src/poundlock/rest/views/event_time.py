"""Watermarks and lag, per source and partition, as the newest decision has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from poundlock.checkpoint.decision import Decision, SourceRange
from poundlock.operators.time_values import SourceTime
from poundlock.rest.answers import JobCalled
from poundlock.rest.views import models
from poundlock.rest.views.job_folder import FolderOfJob, answered

router = APIRouter()
_LOOKED_AT = 20
_MOST = 2000  # partitions of a source


@router.get("/jobs/{jid}/watermarks")
def watermarks(job: JobCalled, folder: FolderOfJob) -> models.Watermarks:
    """Watermarks and positions per partition, behind the newest checkpoint."""
    with answered():
        recent = folder.newest_first(_LOOKED_AT)
    newest = next((each for each in recent if each.sources), None)
    progress = job.progress
    times = None if newest is None else newest.watermarks
    seen = next((each.event_time for each in recent if each.event_time is not None), None)
    its = job.progress.watermark
    if its is None and times is not None:
        its = times.watermark
    return models.Watermarks(
        decided=None if newest is None else newest.time_ms,
        watermark=its,
        held_by=progress.held_by,
        lag=progress.lag,
        earliest_event=None if seen is None else seen.min_ms,
        latest_event=None if seen is None else seen.max_ms,
        sources=[] if newest is None else _sources(newest, progress.lags),
        streams=[]
        if times is None
        else [
            models.StreamLine(id=name, watermark=each.watermark, idle=each.idle)
            for name, each in times.state.streams.items()
        ],
    )


def _sources(decision: Decision, lags: Mapping[str, Mapping[str, int]]) -> list[models.SourceLine]:
    times: dict[str, tuple[str, SourceTime]] = {}
    if decision.watermarks is not None:
        for assigner, sources in decision.watermarks.state.sources.items():
            for name, time in sources.items():
                times.setdefault(name, (assigner, time))
    return [_source(name, span, times.get(name), lags.get(name, {})) for name, span in decision.sources.items()]


def _source(
    name: str, span: SourceRange, known: tuple[str, SourceTime] | None, lags: Mapping[str, int]
) -> models.SourceLine:
    assigner, time = known if known is not None else (None, SourceTime())
    starts, ends = _by_partition(span.start), _by_partition(span.end)
    names = list(dict.fromkeys([*time.partitions, *ends, *lags]))[:_MOST]
    partitions = []
    for each in names:
        its, end = time.partitions.get(each), ends.get(each)
        start = starts.get(each)
        moved = end - start if isinstance(start, int) and isinstance(end, int) else None
        partitions.append(
            models.PartitionLine(
                name=each,
                watermark=None if its is None else its.watermark,
                idle=its is not None and its.idle,
                silent_since=None if its is None else its.silent_since,
                position=end,
                rows=moved,
                lag=lags.get(each),
            )
        )
    return models.SourceLine(
        id=name,
        assigner=assigner,
        watermark=time.watermark,
        idle=time.idle,
        held_by=time.held_by,
        rows=span.rows,
        bytes=span.bytes,
        start=span.start,
        end=span.end,
        partitions=partitions,
    )


def _by_partition(position: Any) -> dict[str, Any]:
    """Return the offsets of a position such as {"clicks": {"0": 17}} by "clicks-0"; {} for positions of another form."""
    offsets: dict[str, Any] = {}
    for topic, of in position.items() if isinstance(position, Mapping) else ():
        if isinstance(of, Mapping):
            offsets |= {f"{topic}-{number}": offset for number, offset in of.items() if isinstance(offset, int)}
    return offsets
