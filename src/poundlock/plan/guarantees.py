"""What each way from a source to a sink promises, and why: one table, read by `explain`, by `Job(require=…)` and by the docs.

A promise is that of the weaker end: a source that may not give the same rows again, or a sink that shows rows before the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.checkpoint.participant import Kind
from poundlock.connectors.base import ReplayKind, TaskPerPartition, replay_of
from poundlock.errors import DefinitionError
from poundlock.plan.at_least_once import check_mode, is_at_least_once, repeated_of
from poundlock.plan.plan import DEAD_LETTER, Plan
from poundlock.stream.nodes import ApplyNode, Node, SinkNode, SourceNode, walk

Guarantee = Literal["exactly-once", "effectively-once", "at-least-once", "none"]
RANK: Mapping[str, int] = {"none": 0, "at-least-once": 1, "effectively-once": 2, "exactly-once": 3}

SOURCES: Mapping[ReplayKind, tuple[Guarantee, str]] = {
    "exact": ("exactly-once", "a range gives the same rows whenever it is read, or the job stops"),
    "if-unchanged": (
        "none",
        "rows that are changed at the other system between two readings may be missed or come twice",
    ),
    "redelivered": (
        "at-least-once",
        "what was not acknowledged when the driver died is delivered a second time",
    ),
    "received-once": ("none", "what is on its way when the driver dies is lost; what was received is delivered once"),
    "unknown": ("at-least-once", "nobody knows whether a range gives the same rows when it is read again"),
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
    """What one way from a source to a sink promises; `reason` is the weaker end's, both ends' for exactly-once."""

    source: str
    sink: str
    guarantee: Guarantee
    reason: str


def guarantees(plan: Plan) -> list[PathGuarantee]:
    """Return the promise of every way through a job, in the order of its sinks; dead letters last."""
    reaching = {sink.id: _sources(sink) for sink in plan.job.graph()}
    if DEAD_LETTER in plan.sinks:
        reaching[DEAD_LETTER] = list({s.id: s for each in reaching.values() for s in each}.values())
    again = repeated_of(plan) if is_at_least_once(plan) else None
    return [
        _path(source.id, plan.sources[source.id], name, plan.sinks[name], again)
        for name, sources in reaching.items()
        for source in sources
    ]


def check_required(plan: Plan) -> None:
    """Raise DefinitionError if a way through the job promises less than the job requires, or a sink cannot work behind a source."""
    _check_repeated(plan)
    check_mode(plan)
    wanted = plan.job.require
    if wanted is None:
        return
    for path in guarantees(plan):
        if RANK[path.guarantee] < RANK[wanted]:
            raise DefinitionError(
                f"{path.source} -> {path.sink} is {path.guarantee}, and the job requires {wanted}: {path.reason}",
                next="change the source or sink as the reason says, or leave require out"
                if path.guarantee == "none"
                else f'change the source or sink, or say Job(…, require="{path.guarantee}")',
                job=plan.job.name,
            )


def _check_repeated(plan: Plan) -> None:
    """Refuse a sink that skips what a task did before where a repeated checkpoint may cut its tasks otherwise."""
    for sink in plan.job.graph():
        if plan.sinks[sink.id].kind is not Kind.SKIPPING:
            continue
        ways = _ways(sink)
        for node in _sources(sink):
            source = plan.sources[node.id]
            if replay_of(source).kind != "exact" or not isinstance(source, TaskPerPartition):
                raise _not_skipping(
                    plan,
                    f'{node.id} -> {sink.id}: commit_mode="per_task" needs a task for each partition of a Kafka source, '
                    "with the same rows when a checkpoint is repeated",
                    "leave min_partitions and maxRecordsPerPartition out",
                )
        for step in walk([sink]):
            if isinstance(step, ApplyNode):
                raise _not_skipping(
                    plan,
                    f'{step.id} -> {sink.id}: commit_mode="per_task" needs to know which partition a task reads, and a '
                    "DataFrame function hides it",
                    "use where, select, map and windows instead",
                )
        for i, node in enumerate(ways):
            one = plan.sources[node.id]
            for other in ways[i + 1 :]:
                if topic := one.read_twice(plan.sources[other.id]):
                    raise _not_skipping(
                        plan,
                        f'{node.id}, {other.id} -> {sink.id}: commit_mode="per_task" needs one task for each partition, '
                        f"and two ways to this sink read topic {topic}",
                        "let them be one way, such as one where(...) with OR instead of a union",
                    )


def _not_skipping(plan: Plan, what: str, instead: str) -> DefinitionError:
    return DefinitionError(what, next=f'{instead}, or say commit_mode="two_phase"', job=plan.job.name)


def _ways(node: Node) -> list[SourceNode]:
    """Return the source at the end of every way back from a node; each way is a reading of its own."""
    return [node] if isinstance(node, SourceNode) else [source for parent in node.inputs for source in _ways(parent)]


def _sources(sink: SinkNode) -> Sequence[SourceNode]:
    return [node for node in walk([sink]) if isinstance(node, SourceNode)]


def _path(source: str, reads: object, sink: str, writes: Any, again: str | None) -> PathGuarantee:
    promise = replay_of(reads)
    first = (SOURCES[promise.kind][0], promise.reason)
    second = SINKS[writes.kind]
    if again is not None and writes.kind is Kind.APPEND:
        second = (second[0], f"rows are visible before the decision, so a crash repeats {again}")
    if RANK[first[0]] == RANK[second[0]] == RANK["exactly-once"]:
        return PathGuarantee(source, sink, "exactly-once", f"{source}: {first[1]}; {sink}: {second[1]}")
    weaker, name = (first, source) if RANK[first[0]] < RANK[second[0]] else (second, sink)
    return PathGuarantee(source, sink, weaker[0], f"{name}: {weaker[1]}")
