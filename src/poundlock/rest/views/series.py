"""Figures of the last hours as charts take them, made from the ledger, which remembers them whoever looks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from poundlock.checkpoint.decision import Decision
from poundlock.control.registry import now_ms
from poundlock.rest.answers import JobCalled
from poundlock.rest.samples import Sample
from poundlock.rest.views import models
from poundlock.rest.views.decisions import lines
from poundlock.rest.views.job_folder import FolderOfJob, JobFolder, answered

router = APIRouter()
_POINTS = 240
_MOST = 2000  # decisions that are read for one answer

RATES = ("rows_read", "rows_written", "bytes_read", "bytes_written", "late", "dead_lettered", "committed")
PHASES = ("plan", "run", "verify", "decide", "commit")


@router.get("/jobs/{jid}/series")
def series(
    job: JobCalled,
    folder: FolderOfJob,
    minutes: Annotated[int, Query(ge=1, le=1440, description="How far back, in minutes.")] = 60,
) -> models.Series:
    """Figures over time: rates a second, phases of checkpoints, the delay of the watermark, and what was sampled of the job."""
    until = now_ms()
    if job.ended:  # the last hours of its own
        until = min(until, (job.entry.ended_ms or until) + 1000)
    since = until - minutes * 60_000
    with answered():
        decisions, truncated = _since(folder, since)
    step = max(1000, -(-(until - since) // _POINTS))
    times = [since + (n + 1) * step for n in range(-(-(until - since) // step))]
    made = lines(decisions)[::-1]
    return models.Series(
        since=since,
        until=until,
        time=times,
        columns={**_of_decisions(made, since, step, len(times)), **_of_samples(job.samples.since(since), times)},
        truncated=truncated,
    )


def _since(folder: JobFolder, since: int) -> tuple[list[Decision], bool]:
    """Return the decisions since a time, the newest first, and whether there are more than are read."""
    taken: list[Decision] = []
    before: int | None = None
    while len(taken) < _MOST:
        part = folder.newest_first(100, before)
        for decision in part:
            if decision.time_ms < since:
                return taken, False
            taken.append(decision)
        if not part or part[-1].number == 0:
            return taken, False
        before = part[-1].number
    return taken, True


def _of_decisions(
    made: Sequence[models.DecisionLine], since: int, step: int, slots: int
) -> dict[str, list[float | None]]:
    """Return columns made from checkpoints, given oldest first; where a step of time had none, rates are 0 between the first and the last."""
    columns: dict[str, list[float | None]] = {
        **{f"{name}_per_s": [None] * slots for name in RATES},
        **{f"{phase}_ms": [None] * slots for phase in PHASES},
        "watermark_delay_s": [None] * slots,
        "checkpoints": [None] * slots,
    }
    if not made:
        return columns
    first, last = (min(slots - 1, (made[end].decided - since) // step) for end in (0, -1))
    for name in (*(f"{rate}_per_s" for rate in RATES), "checkpoints"):
        columns[name][first : last + 1] = [0.0] * (last + 1 - first)
    for line in made:
        slot = min(slots - 1, (line.decided - since) // step)
        values = line.model_dump()
        for rate in RATES:
            column = columns[f"{rate}_per_s"]
            amount = values[rate]
            column[slot] = None if amount is None or column[slot] is None else (column[slot] or 0) + amount * 1000 / step
        for phase, ms in line.durations.items():
            if phase in PHASES:
                columns[f"{phase}_ms"][slot] = max(columns[f"{phase}_ms"][slot] or 0, ms)
        if line.watermark is not None and abs(line.watermark) < 1 << 62:
            columns["watermark_delay_s"][slot] = (line.decided - line.watermark) / 1000
        if line.occasion == "checkpoint":
            columns["checkpoints"][slot] = (columns["checkpoints"][slot] or 0) + 1
    return columns


def _of_samples(samples: Sequence[Sample], times: Sequence[int]) -> dict[str, list[float | None]]:
    """Return columns of what this server has sampled: the newest sample in each step of time."""
    names = ("lag", "state_bytes", "restarts", "parallelism")
    columns: dict[str, list[float | None]] = {name: [None] * len(times) for name in names}
    for sample in samples:
        slot = bisect_right(times, sample.at_ms)
        if slot < len(times):
            for name, value in zip(
                names, (sample.lag, sample.state_bytes, sample.restarts, sample.parallelism), strict=True
            ):
                columns[name][slot] = value
    return columns
