"""What each way from a source to a sink promises, and why: one table, read by `explain`, by `Job(require=…)` and by the docs.

A promise is that of the weaker end: a source that may not give the same rows again, or a sink that shows rows before the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.checkpoint.participant import Kind
from poundlock.connectors.base import SplitSource
from poundlock.errors import DefinitionError
from poundlock.plan.plan import DEAD_LETTER, Plan
from poundlock.stream.nodes import SinkNode, SourceNode, walk

__all__ = ["SINKS", "SOURCES", "Guarantee", "PathGuarantee", "check_required", "guarantees"]

Guarantee = Literal["exactly-once", "effectively-once", "at-least-once", "none"]
RANK: Mapping[str, int] = {"none": 0, "at-least-once": 1, "effectively-once": 2, "exactly-once": 3}

SOURCES: Mapping[str, tuple[Guarantee, str]] = {
    "planned": ("exactly-once", "its position is in the decision, and a position always means the same rows"),
    "repeatable": ("exactly-once", "Spark logs the range before it is read, and the same range is read again"),
    "unknown": (
        "at-least-once",
        "Spark logs the range, but nobody knows whether its connector gives the same rows again",
    ),
}
SINKS: Mapping[Kind, tuple[Guarantee, str]] = {
    Kind.TRANSACTIONAL: ("exactly-once", "nothing is visible before the decision names it"),
    Kind.IDEMPOTENT: ("effectively-once", "rows are written by key, so that a repetition changes nothing"),
    Kind.SKIPPING: (
        "effectively-once",
        "each task commits by itself, and one that did is skipped when a checkpoint is repeated and gives it the same rows",
    ),
    Kind.APPEND: ("at-least-once", "rows are visible before the decision, so a crash repeats them"),
    Kind.FORGETFUL: ("none", "nobody waits for an answer, so rows may be lost as well as repeated"),
}


@dataclass(frozen=True, slots=True)
class PathGuarantee:
    """What one way from a source to a sink promises.

    Args:
        source: name of the source.
        sink: name of the sink.
        guarantee: the promise.
        reason: the weaker end's; both ends' for exactly-once.
    """

    source: str
    sink: str
    guarantee: Guarantee
    reason: str


def guarantees(plan: Plan) -> list[PathGuarantee]:
    """Return the promise of every way through a job, in the order of its sinks; dead letters last."""
    reaching = {sink.id: _sources(sink) for sink in plan.job.graph()}
    if DEAD_LETTER in plan.sinks:
        reaching[DEAD_LETTER] = list({s.id: s for found in reaching.values() for s in found}.values())
    return [
        _path(source.id, plan.sources[source.id], name, plan.sinks[name])
        for name, sources in reaching.items()
        for source in sources
    ]


def check_required(plan: Plan) -> None:
    """Raise DefinitionError if a way through the job promises less than the job requires, or a sink cannot work behind a source."""
    _check_repeated(plan)
    wanted = plan.job.require
    if wanted is None:
        return
    for path in guarantees(plan):
        if RANK[path.guarantee] < RANK[wanted]:
            raise DefinitionError(
                f"{path.source} -> {path.sink} is {path.guarantee}, and the job requires {wanted}: {path.reason}",
                next=f'change the source or sink, or say Job(…, require="{path.guarantee}")',
                job=plan.job.name,
            )


def _check_repeated(plan: Plan) -> None:
    """Refuse a sink that skips what a task did before behind a source whose tasks are cut anew when a checkpoint is repeated."""
    for sink in plan.job.graph():
        for node in _sources(sink) if plan.sinks[sink.id].kind is Kind.SKIPPING else ():
            source = plan.sources[node.id]
            if _replay(source) != "repeatable" or getattr(source, "min_partitions", None) is not None:
                raise DefinitionError(
                    f'{node.id} -> {sink.id}: commit_mode="per_task" needs a task for each partition of a Kafka source, '
                    "with the same rows when a checkpoint is repeated",
                    next='leave min_partitions out, or say commit_mode="two_phase"',
                    job=plan.job.name,
                )


def _sources(sink: SinkNode) -> Sequence[SourceNode]:
    return [node for node in walk([sink]) if isinstance(node, SourceNode)]


def _path(source: str, reads: Any, sink: str, writes: Any) -> PathGuarantee:
    first = SOURCES[_replay(reads)]
    second = SINKS[writes.kind]
    if RANK[first[0]] == RANK[second[0]] == RANK["exactly-once"]:
        return PathGuarantee(source, sink, "exactly-once", f"{source}: {first[1]}; {sink}: {second[1]}")
    weaker, name = (first, source) if RANK[first[0]] < RANK[second[0]] else (second, sink)
    return PathGuarantee(source, sink, weaker[0], f"{name}: {weaker[1]}")


def _replay(source: Any) -> str:
    if isinstance(source, SplitSource):
        return "planned"
    return "repeatable" if getattr(source, "repeatable", False) else "unknown"
