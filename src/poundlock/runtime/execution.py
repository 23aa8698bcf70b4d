"""What Spark knows of a batch once its rows are through: counts at named places, event times, and what it dropped as late.

Read from the executed plan, before Spark publishes the batch's progress; so it is known when the checkpoint is decided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.decision import EventTime
from poundlock.plan.event_time import TIME
from poundlock.plan.keyed import KEYED

__all__ = ["Observed", "event_times", "observed_rows", "set_watermark", "state_bytes", "state_rows"]

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


@dataclass(slots=True)
class Observed:
    """What Spark counted in a batch.

    Args:
        rows: by the name of each count.
        times: event times, of which a count has several, as JSON by its name.
        late: per branch head, how many rows steps of ours dropped as late.
        next_timer: the earliest timer of such a step that waits for the clock, in ms; None = there is none.
    """

    rows: dict[str, int] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    next_timer: int | None = None


def observed_rows(execution: Any) -> Observed:
    """Return what Spark counted.

    Args:
        execution: Spark's QueryExecution of the batch.
    """
    found = Observed()
    iterator = execution.observedMetrics().iterator()
    while iterator.hasNext():
        pair = iterator.next()
        name = str(pair._1())
        if name.startswith(TIME):
            found.times[name] = str(pair._2().json())
        elif name.startswith(KEYED):
            told = json.loads(str(pair._2().json()))
            head, timer = name.removeprefix(KEYED).rpartition("/")[0], told.get("timer")
            found.late[head] = found.late.get(head, 0) + int(told["late"])
            found.next_timer = min((t for t in (found.next_timer, timer) if t is not None), default=None)
        else:
            found.rows[name] = int(pair._2().get(0))
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


def set_watermark(query: Any, spark_ms: int) -> None:
    """Have Spark plan its next batch with a watermark; it runs one without data for it if an operator's state goes by it.

    Args:
        query: Spark's StreamingQuery.
        spark_ms: the watermark, ms since the epoch.
    """
    tracker = query.streamingQuery().watermarkTracker()
    if tracker is not None:  # the query was started a moment ago: it is set once more then
        tracker.setWatermark(spark_ms)


def state_rows(query: Any) -> int | None:
    """Return how many rows the state operators keep since the newest micro-batch; None if Spark has not told yet."""
    newest = query.lastProgress()
    told = json.loads(newest.json()).get("stateOperators") if newest is not None else None
    return None if told is None else sum(int(each["numRowsTotal"]) for each in told)


def state_bytes(query: Any) -> int | None:
    """Return how much memory the state operators of the newest micro-batch take; None if Spark has not told yet.

    Args:
        query: Spark's StreamingQuery.
    """
    newest = query.lastProgress()
    told = json.loads(newest.json()).get("stateOperators") if newest is not None else None
    return sum(int(each["memoryUsedBytes"]) for each in told) if told else None
