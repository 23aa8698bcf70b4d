"""When the number of a job's tasks is to change: from what its last checkpoints read, how long that took them, and what waits.

Deciding is pure: a series of checkpoints is an argument, so every decision can be repeated. The terms, and the arithmetic, are
those of Flink's autoscaler; a change takes no restart here, for which task has a key group is arithmetic that each checkpoint does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from poundlock.arguments import NUMBER, check_kind
from poundlock.checkpoint.capabilities import check_tasks
from poundlock.checkpoint.participant import Kind
from poundlock.errors import DefinitionError
from poundlock.plan.plan import Plan
from poundlock.values import duration

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.job import Job

_EFFECT = 0.1  # the part of what more tasks should have brought that counts as an effect, as in Flink
_DURATIONS = ("catch_up_duration", "metrics_window", "stabilization_interval", "scale_down_interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLoad:
    """What one checkpoint had to do, and how long it took.

    Args:
        cycle_s: from its beginning to that of the next.
        run_s: of that, while its tasks ran.
        taken_s: of that, until it was decided; the rest was spent waiting for the interval.
        rows: that it read.
        waiting: records that waited in the sources when it began, None where that is not known.
        waiting_after: when the next began.
    """

    cycle_s: float
    run_s: float
    taken_s: float
    rows: int
    waiting: int | None = None
    waiting_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """What some checkpoints in a row come to.

    Args:
        needed: the rate that records have to be worked at, as a part of the rate at which they are; above 1 a job falls behind.
        busy: the part of the time in which tasks ran.
        held: whether checkpoints waited for their interval although records were left: they are limited, not slow.
        rate: rows a second while tasks ran.
        arriving: rows a second that came in.
        lag_s: how long what waits took to come in, None where it is not known.
    """

    needed: float
    busy: float
    held: bool
    rate: float
    arriving: float
    lag_s: float | None

    @classmethod
    def of(cls, loads: Sequence[CheckpointLoad], *, interval_s: float, catch_up_s: float) -> Utilization:
        """Return that of checkpoints, oldest first.

        Args:
            interval_s: from one checkpoint to the next where none takes longer; what comes in meanwhile is to wait.
            catch_up_s: the time within which what waits beyond that is to be worked off.
        """
        cycle, run = sum(each.cycle_s for each in loads), sum(each.run_s for each in loads)
        rows = sum(each.rows for each in loads)
        before, after = loads[0].waiting, loads[-1].waiting_after
        grown = 0 if before is None or after is None else after - before
        arriving = max(0.0, (rows + grown) / cycle)
        backlog = 0.0 if after is None else max(0.0, after - arriving * min(interval_s, cycle / len(loads)))
        rate = rows / run if run else 0.0
        needed = (arriving + backlog / catch_up_s) / rate if rate else run / cycle
        waited = 1 - sum(each.taken_s for each in loads) / cycle
        return cls(
            needed=needed,
            busy=run / cycle,
            held=backlog > 0 and waited > 0.1,
            rate=rate,
            arriving=arriving,
            lag_s=None if after is None or not arriving else after / arriving,
        )

    def __str__(self) -> str:
        lag = "" if self.lag_s is None else f"lag {self.lag_s:,.0f} s, "
        return (
            f"{lag}{self.arriving:,.0f} rows/s come in, {self.rate:,.0f} rows/s are worked, tasks busy {self.busy:.0%}"
        )


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """How the parallelism of a job follows its input; the names are those of Flink's autoscaler.

    Args:
        max_parallelism: never more tasks than that.
        min_parallelism: never fewer.
        utilization_target: how busy the tasks are to be once the number is changed.
        utilization_min, utilization_max: nothing is changed as long as they are between these.
        catch_up_duration: within this time what waits is to be worked off, beside what comes in.
        metrics_window: a decision looks at the checkpoints of the last so long, and at one if that took longer.
        stabilization_interval: checkpoints of the first so long behind a change, or a start, are not looked at.
        scale_down_interval: the number is not lowered for so long after it was raised.
        scale_down_max_factor: it is lowered by this part of itself at most.
    """

    max_parallelism: int
    min_parallelism: int = 1
    utilization_target: float = 0.7
    utilization_min: float = 0.4
    utilization_max: float = 0.9
    catch_up_duration: str | timedelta = "5 min"
    metrics_window: str | timedelta = "1 min"
    stabilization_interval: str | timedelta = "1 min"
    scale_down_interval: str | timedelta = "5 min"
    scale_down_max_factor: float = 0.6

    def __post_init__(self) -> None:
        for name in _DURATIONS:
            object.__setattr__(self, name, duration(getattr(self, name)))
        if not duration(self.catch_up_duration):
            raise DefinitionError("catch_up_duration=0 leaves no time to catch up", next='give a time, such as "5 min"')
        low, high = self.min_parallelism, self.max_parallelism
        if any(isinstance(each, bool) or not isinstance(each, int) for each in (low, high)) or not 1 <= low <= high:
            raise DefinitionError(
                f"an autoscaler from {low!r} to {high!r} tasks has no bounds",
                next="give min_parallelism from 1, and max_parallelism from there",
            )
        shares = ("utilization_min", "utilization_target", "utilization_max", "scale_down_max_factor")
        check_kind("Autoscaler", NUMBER, {each: getattr(self, each) for each in shares})
        least, target, most = self.utilization_min, self.utilization_target, self.utilization_max
        if not 0 <= least < target < most <= 1:
            raise DefinitionError(
                f"utilization_min={least}, utilization_target={target} and utilization_max={most} do not rise from 0 to 1",
                next="leave them out: they are 0.4, 0.7 and 0.9",
            )
        if not 0 < self.scale_down_max_factor <= 1:
            raise DefinitionError(
                f"scale_down_max_factor={self.scale_down_max_factor} is not between 0 and 1",
                next="leave it out: it is 0.6",
            )

    def within(self, parallelism: int) -> int:
        """Return the nearest number of tasks within the bounds."""
        return min(max(parallelism, self.min_parallelism), self.max_parallelism)

    def window(self, loads: Sequence[CheckpointLoad]) -> Sequence[CheckpointLoad]:
        """Return the newest of some checkpoints that fill the window, none where they do not."""
        wanted, first, length = duration(self.metrics_window).total_seconds(), len(loads), 0.0
        while first and length < wanted:
            first -= 1
            length += loads[first].cycle_s
        return loads[first:] if length >= wanted else ()

    def utilization(self, loads: Sequence[CheckpointLoad], interval_s: float) -> Utilization:
        """Return what checkpoints, oldest first, come to; `interval_s` is the job's."""
        return Utilization.of(loads, interval_s=interval_s, catch_up_s=duration(self.catch_up_duration).total_seconds())

    def wanted(self, parallelism: int, seen: Utilization) -> int:
        """Return how many tasks a job is to have that has so many and was seen to be so busy."""
        if self.utilization_min <= seen.needed <= self.utilization_max:
            return self.within(parallelism)
        exact = math.ceil(round(parallelism * seen.needed / self.utilization_target, 6))
        if exact >= parallelism:
            return self.within(parallelism if seen.held or seen.needed < self.utilization_min else exact)
        least = math.ceil(round(parallelism * (1 - self.scale_down_max_factor), 6))
        return self.within(max(exact, least))


def is_effective(before: tuple[int, float], now: tuple[int, float]) -> bool:
    """Return whether more tasks brought more rows a second, as far as a tenth of what was to be expected.

    Args:
        before, now: how many there were, and how many rows a second they worked.
    """
    (few, slow), (many, quick) = before, now
    return quick - slow >= _EFFECT * slow * (many / few - 1)


_FIELDS = (
    "max_parallelism", "min_parallelism", "utilization_target", "utilization_min", "utilization_max", *_DURATIONS,
    "scale_down_max_factor",
)  # fmt: skip


def autoscaler_of(job: Job, settings: Settings) -> Autoscaler | None:
    """Return how a job is scaled, by the settings and what it says itself; None where it is not.

    Raises:
        DefinitionError: what is set does not fit together, or has no effect.
    """
    given = {name: value for name in _FIELDS if (value := getattr(settings, f"autoscaler_{name}")) is not None}
    if settings.autoscaler_enabled is False:
        return None
    own: Autoscaler | None = job.autoscaler
    if own is None and not settings.autoscaler_enabled:
        if given:
            raise DefinitionError(
                f"autoscaler.{min(given).replace('_', '-')} is set, and the job is not scaled",
                next="set autoscaler.enabled=true as well",
            )
        return None
    if own is not None:
        return replace(own, **given)
    if "max_parallelism" not in given:
        raise DefinitionError(
            "autoscaler.enabled is set without an upper bound", next="set autoscaler.max-parallelism as well, such as 8"
        )
    return Autoscaler(**given)


def check_autoscaler(plan: Plan, scaler: Autoscaler) -> None:
    """Raise DefinitionError unless the parallelism of a job can follow its input, up to the upper bound."""
    job, most = plan.job, scaler.max_parallelism
    if plan.bounded:
        raise DefinitionError(
            "the job's input ends, and an autoscaler follows an input that does not",
            next="set its parallelism: -p N",
            job=job.name,
        )
    if not duration(job.checkpoint_interval):
        raise DefinitionError(
            'with checkpoint_interval="0 s" tasks always run, so how busy they are says nothing',
            next='give it an interval, such as -D checkpoint_interval="1 s", or leave the autoscaler out',
            job=job.name,
        )
    if job.parallelism is not None and scaler.within(job.parallelism) != job.parallelism:
        raise DefinitionError(
            f"a parallelism of {job.parallelism} is outside the autoscaler's bounds, {scaler.min_parallelism} to {most}",
            next="give -p a number within them, or leave it out: a new job then begins with autoscaler.min-parallelism",
            job=job.name,
        )
    if plan.keyed and most > job.max_parallelism:
        raise DefinitionError(
            f"autoscaler.max-parallelism={most} is above the {job.max_parallelism} key groups of the job",
            next=f"lower it to {job.max_parallelism}; the number of key groups is fixed for the life of the state",
            job=job.name,
        )
    alone = [name for name, sink in plan.sinks.items() if sink.kind is Kind.SKIPPING]
    if alone and not plan.keyed:
        raise DefinitionError(
            f"each partition has a task of its own, because of sink {alone[0]!r}, whatever the parallelism",
            next="leave the autoscaler out",
            job=job.name,
        )
    check_tasks(plan.sinks, most)
