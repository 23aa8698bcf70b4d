"""A job's plan as text: stages, where each step runs, and what is promised. Needs neither Spark nor data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from poundlock.arguments import function_name
from poundlock.checkpoint.capabilities import Describable, HasPlace, prepares_ahead
from poundlock.connectors.base import SparkSource, SplitSource
from poundlock.operators.factory import by_record, check_columns_do, join_by_record, process_by_record
from poundlock.operators.windows.aggregates import SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.plan.at_least_once import check_mode, is_at_least_once
from poundlock.plan.guarantees import guarantees
from poundlock.plan.heads.source import made_straight
from poundlock.plan.outline import StageOutline, outline
from poundlock.plan.plan import DEAD_LETTER, make_plan
from poundlock.plan.segments import spark_streams
from poundlock.plan.sql_text import parse_aggregates
from poundlock.stream.changelog_nodes import (
    ChangelogNormalizeNode,
    ChangelogTopNNode,
    GroupAggregateNode,
    RegularJoinNode,
)
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.nodes import (
    ApplyNode,
    CalcNode,
    IntervalJoinNode,
    KeyedNode,
    Node,
    PartitionNode,
    ProcessNode,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    SqlNode,
    UnionNode,
    WatermarkNode,
    WindowJoinNode,
    WindowNode,
)
from poundlock.stream.over_nodes import OverNode, TemporalJoinNode
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode
from poundlock.values import duration, format_duration

if TYPE_CHECKING:
    from poundlock.job import Job

_BY_COLUMNS = (
    ChangelogNormalizeNode,
    ChangelogTopNNode,
    GroupAggregateNode,
    OverNode,
    RegularJoinNode,
    SqlIntervalJoinNode,
    SqlWindowJoinNode,
    TemporalJoinNode,
)
"""Steps that have no other way."""


def explain(job: Job) -> str:
    """Return the plan as text, a paragraph a stage. Raises DefinitionError if the job cannot be planned."""
    plan = make_plan(job)
    check_mode(plan)
    interval = f"checkpoint every {format_duration(duration(job.checkpoint_interval))}"
    if plan.bounded:
        interval = "one checkpoint after the other, since every source ends"
    elif is_at_least_once(plan):
        interval += ", of as many rounds as fit (AT_LEAST_ONCE): rows are written without waiting for it"
    stages = outline(plan)
    streams = spark_streams(list(job.graph())).steps
    lines = [f"job {job.name}: {len(stages)} stage{'' if len(stages) == 1 else 's'}, {interval}"]
    options = _checkpoint_options(job)
    if options:
        lines += ["checkpoints: " + ", ".join(options)]
    for number, stage in enumerate(stages, 1):
        lines += ["", *_stage(number, stage, plan.nodes)]
    for name, steps in streams.items():
        lines += ["", f"query of {name}: Spark reads it, and stages its batches for the tasks"]
        lines += [f"    {_step(node, plan.nodes)}" for node in steps]
    if unnamed := job.unnamed_operators():
        note = f'note: without a name: {", ".join(unnamed)}; a name="…" keeps its state findable when the job changes'
        lines += ["", note]
    if DEAD_LETTER in plan.sinks:
        lines += ["", f"dead letters: {describe_part(plan.sinks[DEAD_LETTER])}"]
    else:
        lines += ["", f"bad records: {'the job fails' if job.on_error == 'fail' else 'skipped and counted'}"]
    lines += ["decision: one ledger record per checkpoint for all sinks"]
    if waiting := [name for name, sink in plan.sinks.items() if not prepares_ahead(sink)]:
        lines += [f"commits: the next checkpoint's tasks wait for those of {', '.join(waiting)}"]
    lines += ["", "guarantees:"]
    for path in guarantees(plan):
        lines += [f"  {path.source} -> {path.sink}: {path.guarantee}", f"    {path.reason}"]
    return "\n".join(lines)


def _checkpoint_options(job: Job) -> list[str]:
    """Return what the job says of its checkpoints besides their interval, where that is not the default."""
    timeout = None if job.checkpoint_timeout is None else duration(job.checkpoint_timeout)
    options = {
        f"at least {format_duration(duration(job.checkpoint_min_pause))} between two": duration(
            job.checkpoint_min_pause
        ),
        f"at most {format_duration(timeout)} each" if timeout else "": timeout,
        f"{job.tolerable_failed_checkpoints} failures in a row tolerated": job.tolerable_failed_checkpoints,
        "deleted when cancelled": job.checkpoint_retention == "DELETE_ON_CANCELLATION",
        f"the newest {job.checkpoints_retained} kept": job.checkpoints_retained > 1,
    }
    return [text for text, differs in options.items() if differs]


def explain_json(job: Job) -> dict[str, Any]:
    """Return the plan as data, for --json."""
    plan = make_plan(job)
    streams = spark_streams(list(job.graph())).steps
    return {
        "job": job.name,
        "stages": [
            {
                "kind": stage.kind,
                "spark": [_step(node, plan.nodes) for node in stage.spark],
                "tasks": [_step(node, plan.nodes) for node in stage.steps],
            }
            for stage in outline(plan)
        ],
        "queries": {name: [_step(node, plan.nodes) for node in steps] for name, steps in streams.items()},
        "sinks": {name: describe_part(sink) for name, sink in plan.sinks.items()},
        "guarantees": [asdict(path) for path in guarantees(plan)],
    }


@dataclass(frozen=True)
class StepText:
    """A step in words.

    Args:
        id: its name.
        mark: "source", "sink" or "step".
        what: what it does and what runs it.
        inputs: the ids of the steps that it reads from.
    """

    id: str
    mark: str
    what: str
    inputs: Sequence[str]


def stage_texts(job: Job) -> list[tuple[str, list[StepText]]]:
    """Return the kind of each stage, and its steps in order. Raises DefinitionError if the job cannot be planned."""
    plan = make_plan(job)
    queries = [node for steps in spark_streams(list(job.graph())).steps.values() for node in steps]
    stages = [("query of Spark", queries)] if queries else []
    stages += [(stage.kind, [*stage.spark, *stage.steps]) for stage in outline(plan)]
    return [(kind, [_text(node, plan.nodes) for node in steps]) for kind, steps in stages if steps]


def _text(node: Node, nodes: Sequence[Node]) -> StepText:
    mark = "source" if isinstance(node, SourceNode) else "sink" if isinstance(node, SinkNode) else "step"
    return StepText(node.id, mark, describe_step(node) + _record(node, nodes), [parent.id for parent in node.inputs])


_STAGES = {
    "source": "its tasks read, decode and write in one pass; no record enters the JVM",
    "stream": "its tasks read, decode and write in one pass; what Spark reads has been through the JVM",
    "keyed": "its tasks have key groups each; blocks of rows come through Spark's shuffle",
    "partitioned": "rows are placed among its tasks; blocks of them come through Spark's shuffle",
    "spark": "rows enter the JVM once for Spark SQL, and come out to the tasks",
}


def _stage(number: int, stage: StageOutline, nodes: Sequence[Node]) -> list[str]:
    streamed = any(isinstance(node, SourceNode) and isinstance(node.source, SparkSource) for node in stage.steps)
    lines = [f"stage {number}: {stage.kind}", f"  {_STAGES['stream' if streamed else stage.kind]}"]
    if stage.spark:
        lines += ["  in Spark:"] + [f"    {_step(node, nodes)}" for node in stage.spark]
    return lines + (["  in tasks:"] + [f"    {_step(node, nodes)}" for node in stage.steps] if stage.steps else [])


def _step(node: Node, nodes: Sequence[Node]) -> str:
    """Return a step as text; `nodes` are all of the job."""
    inputs = f" <- {', '.join(parent.id for parent in node.inputs)}" if node.inputs else ""
    return f"{node.id}: {describe_step(node)}{_record(node, nodes)}{inputs}"


def _record(node: Node, nodes: Sequence[Node]) -> str:
    """Return what record of its own a function is given, and whether that is made without a dict."""
    if not isinstance(node, PythonNode) or node.record is None:
        return ""
    straight = any(isinstance(each, SourceNode) and made_straight(each, nodes, each.source) for each in node.inputs)
    return f", given a {node.record.cls.__name__}" + (" made straight from JSON" if straight else "")


def describe_step(node: Node) -> str:
    """Return what a step does, in words."""
    if isinstance(node, SourceNode):
        kind = "read by poundlock" if isinstance(node.source, SplitSource) else "read by Spark"
        return f"source {describe_part(node.source)}, {kind}"
    if isinstance(node, SqlNode):
        return f"{node.kind} {', '.join(node.arguments)}"
    if isinstance(node, PythonNode):
        name = function_name(node.function)
        calls = "" if node.asynchronous is None else f", {node.asynchronous.describe()}"
        return f"Python {node.kind} {name}{calls}" + (
            ", errors are bad records" if node.on_error == "bad_record" else ""
        )
    if isinstance(node, CalcNode):
        return node.program.describe()
    if isinstance(node, SideOutputNode):
        return f"side output {node.tag}"
    if isinstance(node, PartitionNode):
        return node.describe()
    if isinstance(node, UnionNode):
        return "union"
    if isinstance(node, WatermarkNode):
        return node.strategy.describe()
    if isinstance(node, WindowNode):
        keys = f"by {', '.join(node.keys)}, " if node.keys else ""
        own = node.function.aggregate if isinstance(node.function, ArrowAggregateWindow) else node.function
        what = ", ".join(node.aggregates) or type(own).__name__
        return f"{keys}{node.describe()}: {what}, {_way(_window_reason(node))}"
    if isinstance(node, KeyedNode):
        keys = ", ".join(dict.fromkeys(key for of_input in node.keys for key in of_input))
        what = node.describe()
        if isinstance(node, (IntervalJoinNode, WindowJoinNode)):
            what += f", {_way(join_by_record(node))}"
        elif isinstance(node, _BY_COLUMNS):
            what += f", {_way(None)}"
        elif not isinstance(node, ProcessNode):
            what += f", {_way(process_by_record(node))}"
        return f"by {keys}, {what}" if keys else what
    if isinstance(node, SinkNode):
        return f"sink {describe_part(node.sink)}"
    return f"DataFrame function {function_name(node.function)}" if isinstance(node, ApplyNode) else "DataFrame function"


@dataclass(frozen=True)
class Ways:
    """What runs the steps of a job, by their ids.

    Args:
        spark: those of Spark's SQL engine.
        columns: those that tasks compute by columns.
        records: those that tasks compute record by record, and why.
    """

    spark: Sequence[str]
    columns: Sequence[str]
    records: Mapping[str, str]


def ways(job: Job) -> Ways:
    """Return what runs the steps of a job. Raises DefinitionError if it cannot be planned."""
    stages = outline(make_plan(job))
    steps = {node.id: node for stage in stages for node in stage.steps if not isinstance(node, SourceNode | SinkNode)}
    reasons = {id: _reason(node) for id, node in steps.items()}
    return Ways(
        [node.id for stage in stages for node in stage.spark],
        [id for id, reason in reasons.items() if reason is None],
        {id: reason for id, reason in reasons.items() if reason is not None},
    )


def _reason(node: Node) -> str | None:
    """Return why tasks compute a step record by record; None where they do so by columns."""
    if isinstance(node, WindowNode):
        return _window_reason(node)
    if isinstance(node, ProcessNode) or (isinstance(node, PythonNode) and node.kind != "map_batches"):
        return "it is a function of records"
    if isinstance(node, (IntervalJoinNode, WindowJoinNode)):
        return join_by_record(node)
    return process_by_record(node) if isinstance(node, KeyedNode) and not isinstance(node, _BY_COLUMNS) else None


def _window_reason(node: WindowNode) -> str | None:
    if not node.aggregates:
        spec = WindowSpec.of(node, None)
        check_columns_do(node.id, spec)
        return by_record(spec)
    aggregates = SqlAggregates(parse_aggregates(node.aggregates, node.id).aggregates)
    return by_record(WindowSpec.of(node, aggregates))


def _way(reason: str | None) -> str:
    """Return by columns, or by record and why."""
    return "by columns" if reason is None else f"record by record, since {reason}"


def describe_part(part: Any) -> str:
    """Return a sink by its own `describe()`, a source by its class and where it reads."""
    if isinstance(part, SplitSource | SparkSource):
        return f"{type(part).__name__} {part.place if isinstance(part, HasPlace) else ''}".rstrip()
    return part.describe() if isinstance(part, Describable) else type(part).__name__
