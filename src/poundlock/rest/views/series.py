"""Figures of the last hours as charts take them, made from the ledger, which remembers them whoever looks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated, TypeGuard

from fastapi import APIRouter, Query

from poundlock.checkpoint.decision import Decision
from poundlock.control.registry import now_ms
from poundlock.operators.time_values import MAX, MIN
from poundlock.rest.answers import JobCalled
from poundlock.rest.trend import TrendPoint
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
        columns={**_of_decisions(made, since, step, len(times)), **_of_samples(job.trend.since(since), times)},
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
    """Return columns made from decisions, given oldest first; where a step of time had none, rates are 0 between the first and the last."""
    grid = _Grid(since, step, slots, [line.decided for line in made])
    taken = [line for line in made if line.occasion == "checkpoint"]
    columns = {"checkpoints": grid.sums([(line.decided, 1) for line in taken])}
    for name in RATES:
        of = made if name == "committed" else taken
        amounts = [(line.decided, line.model_dump(include={name})[name]) for line in of]
        known = all(amount is not None for _, amount in amounts)  # else a sum would be too small
        columns[f"{name}_per_s"] = grid.sums([(at, amount * 1000 / step) for at, amount in amounts] if known else [])
    for phase in PHASES:
        columns[f"{phase}_ms"] = grid.greatest(
            [(line.decided, line.durations[phase]) for line in made if phase in line.durations]
        )
    delays = [(line.decided, line.decided - line.watermark) for line in taken if _is_time(line.watermark)]
    columns["watermark_delay_s"] = grid.greatest([(at, ms / 1000) for at, ms in delays])
    return columns


def _is_time(watermark: int | None) -> TypeGuard[int]:
    """Return whether a watermark is a time, and not the one before any or behind the end of the input."""
    return watermark is not None and MIN < watermark < MAX


class _Grid:
    """Equal steps of time; `moments` are those of all decisions, the oldest first, ms since 1970."""

    def __init__(self, since: int, step: int, slots: int, moments: Sequence[int]) -> None:
        self._since, self._step, self._slots = since, step, slots
        self._span = (self._slot(moments[0]), self._slot(moments[-1])) if moments else None

    def _slot(self, ms: int) -> int:
        return max(0, min(self._slots - 1, (ms - self._since) // self._step))

    def sums(self, values: Sequence[tuple[int, float]]) -> list[float | None]:
        """Return the sum of the values in each step, given each with its time; without any nothing is known."""
        column: list[float | None] = [None] * self._slots
        if self._span is not None and values:
            first, last = self._span
            column[first : last + 1] = [0.0] * (last + 1 - first)
        for ms, value in values:
            slot = self._slot(ms)
            column[slot] = (column[slot] or 0) + value
        return column

    def greatest(self, values: Sequence[tuple[int, float]]) -> list[float | None]:
        """Return the greatest of the values in each step."""
        column: list[float | None] = [None] * self._slots
        for ms, value in values:
            slot = self._slot(ms)
            before = column[slot]
            column[slot] = value if before is None else max(before, value)
        return column


def _of_samples(samples: Sequence[TrendPoint], times: Sequence[int]) -> dict[str, list[float | None]]:
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
