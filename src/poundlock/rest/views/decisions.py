"""Decisions as lines: checkpoints with their phases, and the ledger, with each record in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.participant import DEAD_LETTER
from poundlock.errors import TerminalError
from poundlock.metrics.timeline import FailedCheckpoint
from poundlock.rest.answers import JobCalled, refusal
from poundlock.rest.observed import Observed
from poundlock.rest.views import models
from poundlock.rest.views.job_folder import FolderOfJob, answered

router = APIRouter()
_LARGEST = 2**63 - 1
_OF_THE_ONE_BEFORE = ("decide", "commit")
_SOON_MS = 60_000

Last = Annotated[int, Query(ge=1, le=500, description="How many decisions at most.")]
Before = Annotated[int | None, Query(ge=0, le=_LARGEST, description="Only decisions with a lower number.")]


def decision_line(decision: Decision, later: Decision | None = None) -> models.DecisionLine:
    """Return a decision as a line; the record after it says how long deciding and committing took, where it is of the same life."""
    took = {phase: ms for phase, ms in decision.durations_ms.items() if phase not in _OF_THE_ONE_BEFORE}
    if later is not None and later.epoch == decision.epoch:
        took |= {phase: ms for phase, ms in later.durations_ms.items() if phase in _OF_THE_ONE_BEFORE}
    reads = decision.sources.values() if decision.occasion == "checkpoint" else ()
    sinks = [sink for name, sink in decision.sinks.items() if name != DEAD_LETTER]
    added = [
        file for change in (decision.state.change or {} if decision.state else {}).values() for file in change.added
    ]
    seen = decision.watermarks
    return models.DecisionLine(
        number=decision.number,
        occasion=decision.occasion,
        checkpoint=decision.checkpoint,
        epoch=decision.epoch,
        started=decision.started_ms,
        decided=decision.time_ms,
        durations=took,
        rows_read=_sum([span.rows for span in reads]),
        rows_written=sum(sink.counts.written for sink in sinks),
        bytes_read=_sum([span.bytes for span in reads]),
        bytes_written=_sum([sink.wrote.bytes for sink in decision.sinks.values() if sink.wrote is not None]),
        late=sum(sink.counts.late for sink in sinks),
        dead_lettered=sum(sink.counts.dead_lettered for sink in sinks),
        skipped=sum(sink.counts.skipped for sink in sinks),
        filtered=sum(sink.counts.filtered for sink in sinks),
        committed=sum(len(sink.committables) for sink in decision.sinks.values()),
        state_files=len(added),
        state_bytes=sum(file.bytes for file in added),
        parallelism=decision.parallelism,
        watermark=None if seen is None else seen.watermark,
        redo=bool(decision.redo),
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    """Return a sum; None where one of several is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def lines(decisions: Sequence[Decision], later: Decision | None = None) -> list[models.DecisionLine]:
    """Return decisions as lines, given newest first; `later` is the one after the first."""
    result = []
    for decision in decisions:
        result.append(decision_line(decision, later))
        later = decision
    return result


@router.get("/jobs/{jid}/timeline")
def timeline(job: JobCalled, folder: FolderOfJob, last: Last = 60, before: Before = None) -> models.CheckpointTimeline:
    """The newest decisions with their phases, and the failures in between."""
    with answered():
        newest = folder.newest()
        wanted = folder.newest_first(last + 1, None if before is None else before + 1)
        first = folder.first() if newest is not None else None
    behind = bool(wanted) and wanted[0].number == before
    later, decisions = (wanted[0], wanted[1:]) if behind else (None, wanted[:last])
    return models.CheckpointTimeline(
        decisions=lines(decisions, later),
        failures=_failures(job),
        oldest=first,
        newest=None if newest is None else newest.number,
    )


def _failures(job: Observed) -> list[models.Failure]:
    """Return why checkpoints failed, the job was restarted and ended, the newest first; what is of one failure is one of them."""
    made = [models.Failure(at=at, what=what, next="", level="restart") for what, at in job.entry.troubles]
    if job.entry.failure is not None and job.ended:
        what, next = job.entry.failure
        made.append(models.Failure(at=job.entry.ended_ms or job.entry.started_ms, what=what, next=next))
    for checkpoint in job.progress.newest_failed:
        its = _caused_by(made, checkpoint)
        if its is None:
            made.append(models.Failure(at=checkpoint.failed_ms, what=checkpoint.cause, next="", level="checkpoint"))
            its = made[-1]
        its.what = f"checkpoint {checkpoint.checkpoint} failed in {checkpoint.phase}: {its.what}"
    return sorted(made, key=lambda failure: failure.at, reverse=True)


def _caused_by(failures: Sequence[models.Failure], checkpoint: FailedCheckpoint) -> models.Failure | None:
    """Return the restart, or the job's end, for which a checkpoint was the cause a moment before; None if it was for none."""
    return next(
        (
            failure
            for failure in failures
            if 0 <= failure.at - checkpoint.failed_ms <= _SOON_MS and failure.what.startswith(checkpoint.cause)
        ),
        None,
    )


@router.get("/jobs/{jid}/ledger/{number}")
def record(
    job: JobCalled,
    folder: FolderOfJob,
    number: Annotated[int, Path(ge=0, le=_LARGEST, description="The number of the record.")],
) -> models.DecisionInFull:
    """One decision, whole: ranges, files, transactions, and what changed of the state's manifest."""
    with answered():
        newest, first = folder.newest(), folder.first()
    if newest is None or not first <= number <= newest.number:
        raise refusal(404, f"the ledger has no record {number}", "see what there is: GET …/timeline")
    try:
        decision = folder.decision(number)
        later = folder.decision(number + 1) if number < newest.number else None
    except TerminalError as error:
        raise refusal(503, error.what, error.next) from error
    with answered():
        committed = folder.committed(number)
    whole: dict[str, Any] = decision.to_json()
    return models.DecisionInFull(line=decision_line(decision, later), record=whole, committed=committed)
