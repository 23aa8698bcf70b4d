"""One batch of Spark's, carried through as one checkpoint: its tasks run, what they report is gathered, the coordinator decides."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.outcome import Directive, TaskResults
from poundlock.checkpoint.participant import JSON
from poundlock.operators.watermarks import MIN
from poundlock.plan.plan import Plan
from poundlock.plan.stage import PROPERTY
from poundlock.runtime.attempts import Attempts, known_undecided
from poundlock.runtime.delivery import Delivery
from poundlock.runtime.ends import Ends
from poundlock.runtime.execution import event_times, observed_rows
from poundlock.runtime.job_time import JobTime
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.results import Gathered
from poundlock.runtime.spark_query import SparkQuery
from poundlock.runtime.time_keeping import TimeKeeper
from poundlock.runtime.tracker import Tracker
from poundlock.runtime.turns import Turns

__all__ = ["Carrying"]


@dataclass
class Carrying:
    """Carries the batches of one life of a query through. Its user holds the coordinator's lock.

    Args:
        plan: what runs.
        spark: the query as Spark runs it.
        sources: by name of each use, as this start of the job reads them.
        coordinator: has recovered already.
        planner: plans the split-planned sources.
        time: the job's event time.
        keeper: shows it.
        ends: knows with which batch a source ends.
        turns: told of each checkpoint, and when the next timer is due.
        tracker: told of every checkpoint.
        attempts: told of every checkpoint that begins.
        on_checkpoint: called after each completed checkpoint.
    """

    plan: Plan
    spark: SparkQuery
    sources: Mapping[str, Any]
    coordinator: Coordinator
    planner: SplitPlanner
    time: JobTime
    keeper: TimeKeeper
    ends: Ends
    turns: Turns
    tracker: Tracker
    attempts: Attempts
    on_checkpoint: Callable[[], None]
    newest: int = field(default=-1, init=False)
    """The newest batch that was carried through; -1 = none yet."""

    def carry(self, frame: Any, batch: int, delivery: Delivery) -> None:
        """Carry a batch through.

        Args:
            frame: its rows: what each task prepared and counted, once they are collected.
            batch: its number.
            delivery: what it reads.
        """
        began = time.monotonic()
        delivery.identify(self.sources, self.coordinator.sources)
        gathered: list[Gathered] = []

        def run(directive: Directive) -> TaskResults:
            found = Gathered()
            gathered.append(found)
            # Where Spark keeps state, every batch must run: the next one begins with what this one leaves.
            if not self.plan.stateless or not (directive["decided"] or delivery.idle):
                self._collect(frame, directive, delivery, found)
            delivery.identify(self.sources, self.coordinator.sources)  # what was read still is what was to be read
            attempt.ran = True
            if self._newest_decided() < batch:
                found.watermarks = self.time.measure(
                    batch,
                    found.times,
                    delivery.spark,
                    delivery.split_names,
                    lambda use: self.ends.comes_with(use, delivery),
                )
            return found.results(self.plan.shared)

        with self.attempts.attempt(batch, lambda: known_undecided(self._newest_decided, batch)) as attempt:
            outcome = self.coordinator.checkpoint(batch, delivery.ranges, run)
        self.newest = batch
        self.time.carried(batch, outcome.decision.watermarks if self.time.active else None, idle=delivery.idle)
        self.turns.carried(began, replayed=outcome.replayed)
        counts = {} if outcome.replayed else {name: sink.counts for name, sink in outcome.decision.sinks.items()}
        took = int((time.monotonic() - began) * 1000)
        self.tracker.checkpoint(batch, sum(gathered[0].read.values()), counts, outcome.files_made, took)
        self.keeper.show()
        for name, span in delivery.spark.items():
            self.sources[name].committed(span.end)
        self.planner.committed()
        self.on_checkpoint()

    def _collect(self, frame: Any, directive: Directive, delivery: Delivery, found: Gathered) -> None:
        directive = {**directive, "splits": delivery.splits(self.planner), **self._told(directive)}
        frame.sparkSession.sparkContext.setLocalProperty(PROPERTY, json.dumps(directive, separators=(",", ":")))
        found.add(row[0] for row in frame.collect())
        found.tasks = delivery.tasks
        found.bytes.update(delivery.bytes)
        if not directive["decided"]:
            found.check_splits({head: delivery.given.get(head, 0) for head in self._fused})
        if any(self.spark.lowered.observed.values()):
            self._add_observed(directive, found)

    def _add_observed(self, directive: Directive, found: Gathered) -> None:
        """Add what Spark counted before the stages, and what it saw of event time."""
        execution = self.spark.execution.streamingQuery().lastExecution()
        late: Mapping[str, int] = {}
        if self.plan.timed and not directive["decided"]:
            late, found.event_time = event_times(execution, self.spark.lowered.observed)
            if self.time.active:
                in_use = directive["watermark"]
                found.event_time = replace(found.event_time, watermark_ms=None if in_use == MIN else in_use)
        seen = observed_rows(execution)
        found.times = seen.times
        self.turns.next_timer = seen.next_timer
        found.count_before_stage(self.spark.lowered, seen.rows, late, seen.late)

    def _told(self, directive: Directive) -> JSON:
        batch = directive["checkpoint"]
        return self.time.told(batch, self.coordinator.decided_watermarks(batch) if self.plan.hosted else None)

    def _newest_decided(self) -> int:
        return self.coordinator.newest.checkpoint

    @property
    def _fused(self) -> Sequence[str]:
        return [branch.head.id for branch in self.plan.branches if branch.placement == "fused"]
