"""Rounds: with `checkpointing_mode="AT_LEAST_ONCE"` a checkpoint is as many runs of its tasks as fit into its interval, and one decision
behind them.

What a round writes is visible when its tasks end. No record of the ledger is waited for in between, so a crash reads again what was read
since the newest decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Counts
from poundlock.driver.planner import CheckpointPlan

LOOK_S = 0.01  # between two looks for data


@dataclass(frozen=True)
class Rounds:
    """When the rounds of a checkpoint end.

    Args:
        interval_s: so long after the checkpoint began, seconds.
        is_awaited: whether somebody waits for the end of the checkpoint.
        now: a monotonic clock, seconds.
    """

    interval_s: float
    is_awaited: Callable[[], bool]
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def goes_on(self, began: float) -> bool:
        """Return whether there may be another round in a checkpoint that began then, by `now`."""
        return not self.is_awaited() and self.now() - began < self.interval_s

    def wait(self) -> None:
        """Wait a moment where there was nothing to read."""
        self.sleep(LOOK_S)


def joined_plans(first: CheckpointPlan, second: CheckpointPlan) -> CheckpointPlan:
    """Return the plan of two rounds, of which the second begins where the first ends: the ranges of both, the work of the second."""
    ranges = {
        name: SourceRange(first.ranges[name].start, span.end, span.identity) for name, span in second.ranges.items()
    }
    splits = {name: first.splits.get(name, 0) + count for name, count in second.splits.items()}
    return replace(second, ranges=ranges, splits=splits)


def joined_results(first: TaskResults, second: TaskResults) -> TaskResults:
    """Return what the tasks of two rounds came to."""
    counts = {name: Counts(**each.to_json()) for name, each in first.counts.items()}
    for name, each in second.counts.items():
        counts.setdefault(name, Counts()).add(each)
    sizes = _sums(first.bytes_read, second.bytes_read)
    uncounted = {
        name
        for each in (first, second)
        for name, rows in each.rows_read.items()
        if rows and name not in each.bytes_read
    }
    return replace(
        second,
        prepared=[*first.prepared, *second.prepared],
        counts=counts,
        rows_read=_sums(first.rows_read, second.rows_read),
        bytes_read={name: size for name, size in sizes.items() if name not in uncounted},
        tasks=second.tasks or first.tasks,
        skew=second.skew or first.skew,
    )


def _sums(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}
