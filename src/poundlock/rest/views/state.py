"""The keyed state of a job by operator and key group: sizes by the manifest, skew by the newest checkpoint. No state file is read."""

from __future__ import annotations

from fastapi import APIRouter

from poundlock.checkpoint.skew import Shares
from poundlock.rest.answers import JobCalled
from poundlock.rest.views import models
from poundlock.rest.views.job_folder import FolderOfJob, answered
from poundlock.state.manifest import Fragment, Manifest, RunFile

router = APIRouter()
_MOST = 256  # ranges of key groups


@router.get("/jobs/{jid}/state")
def state(job: JobCalled, folder: FolderOfJob) -> models.StateView:
    """What operators keep: tables, sizes by ranges of key groups, and the groups with the most rows."""
    with answered():
        manifests = folder.manifests()
    groups = job.progress.skew.groups
    files = [file for manifest in manifests.values() for file in manifest.files]
    return models.StateView(
        checkpoint=max((manifest.checkpoint for manifest in manifests.values()), default=None),
        max_parallelism=max((manifest.max_parallelism for manifest in manifests.values()), default=None),
        bytes=sum(file.bytes for file in files),
        rows=sum(file.rows for file in files),
        files=len(files),
        operators=[
            _operator(stage, manifest, name, groups.get(name))
            for stage, manifest in manifests.items()
            for name in manifest.operators
        ],
    )


def _operator(stage: str, manifest: Manifest, name: str, shares: Shares | None) -> models.StateOfOperator:
    its = manifest.operators[name]
    event, processing = manifest.next_timers(name)
    files = {file.id: file for file in manifest.files}
    return models.StateOfOperator(
        id=name,
        stage=stage,
        tables=[
            models.TableLine(name=table, kind=of.kind, ttl_ms=of.ttl_ms, windowed=of.windowed, broadcast=of.broadcast)
            for table, of in its.tables.items()
        ],
        watermark=its.watermark,
        event_timer=event,
        processing_timer=processing,
        skew=None if shares is None else round(shares.skew, 3),
        largest=[]
        if shares is None
        else [[part.name, part.rows, round(shares.share(part), 4)] for part in shares.largest],
        ranges=[_range(fragment, files) for fragment in manifest.fragments[:_MOST]],
        rows=sum(file.rows for file in manifest.files),
        bytes=sum(file.bytes for file in manifest.files),
        files=len(manifest.files),
    )


def _range(fragment: Fragment, files: dict[int, RunFile]) -> models.GroupRange:
    rows = size = 0.0
    runs = [files[number] for number in fragment.runs if number in files]
    for run in runs:
        overlap = min(run.stop, fragment.stop) - max(run.first, fragment.first)
        part = max(0, overlap) / max(1, run.stop - run.first)
        rows, size = rows + run.rows * part, size + run.bytes * part
    return models.GroupRange(
        first=fragment.first, stop=fragment.stop, files=len(runs), rows=round(rows), bytes=round(size)
    )
