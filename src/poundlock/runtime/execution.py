"""What Spark knows of a batch once its rows are through: counts at named places, event times, and what it dropped as late.

Read from the executed plan, before Spark publishes the batch's progress; so it is known when the checkpoint is decided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.decision import EventTime

__all__ = ["event_times", "observed_rows", "state_bytes"]

_LATE = "numRowsDroppedByWatermark"
# Without state, and often in a plan: each question to the JVM saved counts, for this is asked at every checkpoint.
_STATELESS = (
    "WholeStageCodegen",
    "InputAdapter",
    "Project",
    "Filter",
    "HashAggregate",
    "Exchange",
    "Sort",
    "MapInArrow",
)


def observed_rows(execution: Any) -> dict[str, int]:
    """Return what was counted, by the name of each count.

    Args:
        execution: Spark's QueryExecution of the batch.
    """
    found = {}
    iterator = execution.observedMetrics().iterator()
    while iterator.hasNext():
        pair = iterator.next()
        found[str(pair._1())] = int(pair._2().get(0))
    return found


def event_times(execution: Any, observed: Mapping[str, Sequence[str]]) -> tuple[Mapping[str, int], EventTime]:
    """Return, per branch head, how many rows its state operators dropped as late, and the event times of the batch.

    Args:
        execution: Spark's IncrementalExecution of the batch.
        observed: per branch head, the names of the counts below it in the plan.
    """
    walk = _Walk({name: head for head, names in observed.items() for name in names})
    walk.visit(execution.executedPlan())
    watermark = int(execution.offsetSeqMetadata().batchWatermarkMs())
    return walk.late, EventTime(
        min_ms=min(walk.times, default=None),
        max_ms=max(walk.times, default=None),
        watermark_ms=watermark or None,  # 0: there was none yet
    )


@dataclass(slots=True)
class _Walk:
    """Goes through a physical plan; a state operator belongs to the branch whose counts are below it."""

    heads: Mapping[str, str]
    late: dict[str, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)

    def visit(self, node: Any) -> set[str]:
        """Take what a node and all below it know; return the branches whose rows come through it."""
        below: set[str] = set()
        children = node.children()
        for i in range(children.size()):
            below |= self.visit(children.apply(i))
        kind = str(node.nodeName())
        if kind == "CollectMetrics":
            below |= {self.heads[name]} if (name := str(node.name())) in self.heads else set()
        elif kind == "EventTimeWatermark":
            stats = node.eventTimeStats().value()
            if stats.count():
                self.times += [int(stats.min()), int(stats.max())]
        elif not kind.startswith(_STATELESS):
            dropped = node.metrics().get(_LATE)
            if dropped.isDefined():
                for head in below:
                    self.late[head] = self.late.get(head, 0) + int(dropped.get().value())
        return below


def state_bytes(query: Any) -> int | None:
    """Return how much memory the state operators of the newest micro-batch take; None if Spark has not told yet.

    Args:
        query: Spark's StreamingQuery.
    """
    newest = query.lastProgress()
    told = json.loads(newest.json()).get("stateOperators") if newest is not None else None
    return sum(int(each["memoryUsedBytes"]) for each in told) if told else None
