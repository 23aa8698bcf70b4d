"""The checkpoints of a job as REST lists them: those under way, those that failed, those that are complete."""

from __future__ import annotations

from collections.abc import Sequence

from poundlock.driver.progress import Progress
from poundlock.metrics.timeline import FailedCheckpoint, UnderWay
from poundlock.rest import models
from poundlock.rest.figures import CheckpointFigures
from poundlock.rest.observed import Observed


def checkpoints_of(job: Observed) -> models.Checkpoints:
    """Return all about the checkpoints of this process."""
    history, progress = job.figures.history(), job.progress
    completed = job.figures.refresh().records.get("checkpoint", 0)
    here = progress.failed_checkpoints - progress.failed_before
    failed = [_failed(each) for each in progress.newest_failed[-here:]] if here > 0 else []
    lines = [line_of(each) for each in history]
    running = [_under_way(each) for each in reversed(_running(history, progress))]
    restored = _restored(job)
    return models.Checkpoints(
        counts=models.CheckpointCounts(
            restored=int(restored is not None),
            total=completed + len(running) + here,
            in_progress=len(running),
            completed=completed,
            failed=here,
            failed_in_all=progress.failed_checkpoints,
        ),
        summary=models.CheckpointSummary(
            checkpointed_size=_spread([each.size for each in history if each.size is not None]),
            end_to_end_duration=_spread([each.duration_ms for each in history]),
        ),
        latest=models.Latest(
            completed=lines[0] if lines else None, failed=failed[-1] if failed else None, restored=restored
        ),
        history=[*running, *sorted([*failed, *lines], key=lambda line: line.trigger_timestamp, reverse=True)],
        began_with=job.figures.began_with,
    )


def line_of(figures: CheckpointFigures) -> models.CheckpointLine:
    """Return a completed checkpoint."""
    return models.CheckpointLine(
        id=figures.number,
        trigger_timestamp=figures.started_ms,
        latest_ack_timestamp=figures.decided_ms,
        checkpointed_size=figures.size,
        end_to_end_duration=figures.duration_ms,
        rows_read=figures.rows_read,
        rows_written=figures.rows_written,
        rows_late=figures.late,
        rows_dead_lettered=figures.dead_lettered,
        phases={name: round(ms, 3) for name, ms in figures.phases_ms.items()},
    )


def _running(history: Sequence[CheckpointFigures], progress: Progress) -> Sequence[UnderWay]:
    """Return the checkpoints under way that the ledger does not know to be decided: a committing one is in it already."""
    newest = history[0].number if history else -1
    return [each for each in progress.under_way if each.checkpoint > newest]


def _under_way(checkpoint: UnderWay) -> models.CheckpointLine:
    return _unfinished(checkpoint.checkpoint, "IN_PROGRESS", checkpoint.started_ms, checkpoint.phase)


def _failed(checkpoint: FailedCheckpoint) -> models.CheckpointLine:
    line = _unfinished(checkpoint.checkpoint, "FAILED", checkpoint.started_ms, checkpoint.phase)
    took = max(0, checkpoint.failed_ms - checkpoint.started_ms)
    change = {
        "failure_timestamp": checkpoint.failed_ms,
        "failure_message": checkpoint.cause,
        "end_to_end_duration": took,
    }
    return line.model_copy(update=change)


def _unfinished(number: int, status: models.CheckpointState, started_ms: int, phase: str) -> models.CheckpointLine:
    return models.CheckpointLine(
        id=number,
        status=status,
        trigger_timestamp=started_ms,
        latest_ack_timestamp=-1,
        checkpointed_size=None,
        end_to_end_duration=-1,
        rows_read=None,
        rows_written=0,
        rows_late=0,
        rows_dead_lettered=0,
        phase=phase,
    )


def _restored(job: Observed) -> models.Restored | None:
    if job.figures.restored is None:
        return None
    saved = job.figures.restored_savepoint
    return models.Restored(
        id=job.figures.restored,
        restore_timestamp=job.figures.restored_ms,
        is_savepoint=saved is not None,
        external_path=saved,
    )


def _spread(values: Sequence[int]) -> models.MinMaxAverage:
    if not values:
        return models.MinMaxAverage(min=0, max=0, avg=0)
    return models.MinMaxAverage(min=min(values), max=max(values), avg=round(sum(values) / len(values)))
