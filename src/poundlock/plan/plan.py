"""The cut: which steps of a job run in Spark's own operators and which in the tasks' Python, and why.

Pure: it looks at the graph only, so `explain` and the tests need no Spark. A step is on the task side exactly if
everything that reads from it is, so that no row goes back into the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from poundlock.checkpoint.participant import DEAD_LETTER
from poundlock.connectors.base import SparkSource, SplitSource
from poundlock.errors import DefinitionError
from poundlock.stream.nodes import (
    ApplyNode,
    Node,
    PythonNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    SqlNode,
    UnionNode,
    WatermarkNode,
    WindowNode,
    walk,
)
from poundlock.stream.process_nodes import KeyedNode

if TYPE_CHECKING:
    from poundlock.job import Job

__all__ = ["DEAD_LETTER", "Branch", "Placement", "Plan", "is_ours", "make_plan", "may_reject"]

Placement = Literal["fused", "direct", "spread"]


@dataclass(frozen=True)
class Branch:
    """One stream of rows into one sink stage.

    Args:
        head: the last step outside the stage; its rows come in.
        placement: "fused" = our reader runs inside the stage; "direct" = Spark's connector hands its rows straight to it;
            "spread" = Spark operators stand between.
        reason: why, one line.
        nodes: the steps inside the stage, inputs before readers, sinks included.
        sources: the sources whose rows come in.
        row_wise: whether everything between sources and head is row-wise SQL, so that rows that vanish were filtered.
        shared: whether other branches read the same source, so that one pass over it serves them all.
    """

    head: Node
    placement: Placement
    reason: str
    nodes: Sequence[Node]
    sources: Sequence[SourceNode]
    row_wise: bool
    shared: bool = False

    @property
    def sinks(self) -> list[SinkNode]:
        """Return the sinks this branch feeds."""
        return [node for node in self.nodes if isinstance(node, SinkNode)]


@dataclass(frozen=True)
class Plan:
    """A job, cut into branches that run as one query.

    Args:
        job: the job.
        branches: in the order of the graph.
        sources: by name.
        sinks: every participant by name, dead letters included.
    """

    job: Job
    branches: Sequence[Branch]
    sources: Mapping[str, Any]
    sinks: Mapping[str, Any]

    @property
    def bounded(self) -> bool:
        """Return whether every source ends."""
        return all(bool(getattr(source, "bounded", False)) for source in self.sources.values())

    @property
    def batch(self) -> bool:
        """Return whether only what is known at the end of the input is wanted: the job's `runtime_mode`, "automatic" resolved."""
        return self.bounded and self.job.runtime_mode != "streaming"

    @property
    def stateless(self) -> bool:
        """Return whether Spark can keep nothing between two checkpoints; what a DataFrame function does is not known."""
        return not any(
            isinstance(node, (ApplyNode, WindowNode, KeyedNode))
            for branch in self.branches
            for node in walk([branch.head])
        )

    @property
    def windowed(self) -> bool:
        """Whether event time closes something: windows, or what waits for timers."""
        return any(
            isinstance(node, (WindowNode, KeyedNode)) for branch in self.branches for node in walk([branch.head])
        )

    @property
    def hosted(self) -> bool:
        """Whether a step of ours keeps state in Spark: its key groups are told the time in every batch."""
        return any(is_ours(node) for branch in self.branches for node in walk([branch.head]))

    @property
    def timed(self) -> bool:
        """Return whether Spark keeps a watermark, or may: what a DataFrame function does is not known."""
        return not self.stateless or any(
            isinstance(node, WatermarkNode) for branch in self.branches for node in walk([branch.head])
        )

    @property
    def shared(self) -> Mapping[str, str]:
        """Return, per head of a branch that shares a pass over its source, that source."""
        return {branch.head.id: branch.sources[0].id for branch in self.branches if branch.shared}

    @property
    def only_split(self) -> bool:
        """Return whether the driver itself plans all there is to read."""
        return all(isinstance(source, SplitSource) for source in self.sources.values())

    @property
    def only_fused(self) -> bool:
        """Return whether no record ever enters the JVM."""
        return all(branch.placement == "fused" for branch in self.branches)


def make_plan(job: Job) -> Plan:
    """Cut a job into branches.

    Raises:
        DefinitionError: no sink, or a source or sink that is not one.
    """
    sinks = [_with_computed_columns(sink) for sink in job.graph()]
    order = list(walk(sinks))
    readers: dict[int, list[Node]] = {}
    for node in order:
        for parent in node.inputs:
            readers.setdefault(id(parent), []).append(node)
    task_side: dict[int, bool] = {}
    for node in reversed(order):
        inside = isinstance(node, SinkNode) or (
            isinstance(node, (PythonNode, SideOutputNode, UnionNode))
            and all(task_side[id(r)] for r in readers[id(node)])
        )
        task_side[id(node)] = inside
    branches = [
        _branch(node, readers, task_side)
        for node in order
        if not task_side[id(node)] and any(task_side[id(r)] for r in readers.get(id(node), ()))
    ]
    sources = {node.id: node.source for node in order if isinstance(node, SourceNode)}
    participants = {sink.id: sink.sink for sink in sinks}
    if DEAD_LETTER in participants:
        raise DefinitionError(
            f"the name {DEAD_LETTER!r} is taken by the dead letters", next="name the sink otherwise", job=job.name
        )
    if job.on_error == "dead_letter":
        participants[DEAD_LETTER] = _dead_letter_sink(job, participants)
    _check_places(participants, job.name)
    _check_mode(job, sources)
    return Plan(job, _share(branches), sources, participants)


def _check_mode(job: Job, sources: Mapping[str, Any]) -> None:
    """Refuse to wait for the end of what has none."""
    endless = [name for name, source in sources.items() if not getattr(source, "bounded", False)]
    if job.runtime_mode == "batch" and endless:
        raise DefinitionError(
            f'runtime_mode="batch" needs sources that end; {endless[0]!r} does not',
            next='make it bounded, or use runtime_mode="automatic"',
            job=job.name,
        )


def _check_places(participants: Mapping[str, Any], job: str) -> None:
    """Refuse two file sinks whose files would have the same names."""
    seen: dict[tuple[str, str], str] = {}
    for name, sink in participants.items():
        path = getattr(sink, "path", None)
        if isinstance(path, str):
            place = (path.rstrip("/"), str(getattr(sink, "prefix", "")))
            if place in seen:
                raise DefinitionError(
                    f"sinks {seen[place]!r} and {name!r} both write {place[1]}-… files to {path}",
                    next="give one of them another folder or another prefix=",
                    job=job,
                )
            seen[place] = name


def _share(branches: Sequence[Branch]) -> list[Branch]:
    """Mark the branches that one pass over their common source can serve."""
    by_source: dict[str, list[Branch]] = {}
    for branch in branches:
        for source in branch.sources:
            by_source.setdefault(source.id, []).append(branch)
    shared: set[str] = set()
    for found in by_source.values():
        if len(found) > 1 and all(_is_line(branch) for branch in found):
            shared |= {branch.head.id for branch in found}
    together = "one pass over the source serves several branches"
    return [
        replace(branch, placement="spread", shared=True, reason=_both(together, branch))
        if branch.head.id in shared
        else branch
        for branch in branches
    ]


def _both(together: str, branch: Branch) -> str:
    return together if isinstance(branch.head, SourceNode) else f"{together}; {branch.reason}"


def _is_line(branch: Branch) -> bool:
    """Return whether nothing but row-wise SQL stands between one source and the head."""
    return len(branch.sources) == 1 and all(isinstance(node, (SourceNode, SqlNode)) for node in walk([branch.head]))


def is_ours(node: Node) -> bool:
    """Return whether a step keeps its state in our own operators: Spark has none that do the same."""
    return isinstance(node, KeyedNode) or (isinstance(node, WindowNode) and not node.native)


def may_reject(source: Any) -> bool:
    """Return whether reading a source can meet records that do not decode."""
    if isinstance(source, SparkSource):
        return source.decoder() is not None
    return getattr(source, "format", "raw") not in ("raw", "text", "parquet")


def _with_computed_columns(sink: SinkNode) -> SinkNode:
    """Put columns before a sink that it wants computed by Spark SQL, such as a bucket or a topic."""
    before = list(sink.inputs)
    for column, expression in getattr(sink.sink, "computed_columns", {}).items():
        before = [SqlNode(f"{sink.id}.{column.strip('_')}", before, "with_column", [column, expression])]
    return sink if before == list(sink.inputs) else SinkNode(sink.id, before, sink.sink)


def _branch(head: Node, readers: Mapping[int, Sequence[Node]], task_side: Mapping[int, bool]) -> Branch:
    inside: dict[int, Node] = {}
    todo = [head]
    while todo:
        for reader in readers.get(id(todo.pop()), ()):
            if task_side[id(reader)] and id(reader) not in inside:
                inside[id(reader)] = reader
                todo.append(reader)
    last = [node for node in inside.values() if isinstance(node, SinkNode)]
    nodes = [node for node in walk(last) if id(node) in inside]
    before = list(walk([head]))
    sources = [node for node in before if isinstance(node, SourceNode)]
    row_wise = all(isinstance(node, (SourceNode, SqlNode, UnionNode, WatermarkNode)) for node in before)
    placement, reason = _place(head, before)
    return Branch(head, placement, reason, nodes, sources, row_wise)


def _place(head: Node, before: Sequence[Node]) -> tuple[Placement, str]:
    if isinstance(head, SourceNode):
        if isinstance(head.source, SplitSource):
            return "fused", "the source is split-planned and nothing needs a Spark operator: rows never enter the JVM"
        return (
            "direct",
            "Spark's connector reads the source and nothing needs a Spark operator: values go over as one buffer",
        )
    needs = [f"{node.id} ({_kind(node)})" for node in before if not isinstance(node, SourceNode)]
    return "spread", f"Spark operators are needed: {', '.join(needs)}"


def _kind(node: Node) -> str:
    if isinstance(node, SqlNode):
        return f"Spark SQL {node.kind}"
    if isinstance(node, ApplyNode):
        return "a DataFrame function"
    if isinstance(node, WatermarkNode):
        return "event time"
    if isinstance(node, WindowNode):
        return (
            f"{node.describe()}: our own operator, by key group: {node.why_ours}" if is_ours(node) else node.describe()
        )
    if isinstance(node, KeyedNode):
        return f"{node.describe()}: our own operator, by key group"
    if isinstance(node, PythonNode):
        return f"Python {node.kind} before a Spark operator"
    return "union before a Spark operator" if isinstance(node, UnionNode) else "side output before a Spark operator"


def _dead_letter_sink(job: Job, participants: Mapping[str, Any]) -> Any:
    from poundlock.connectors.files.sink import FileSink, RollingPolicy

    path = job.dead_letters
    if path is None:
        first = next((getattr(p, "path", None) for p in participants.values() if isinstance(p, FileSink)), None)
        path = f"{first}/_dead_letters" if first else None
    if path is None:
        raise DefinitionError(
            "there is no place for dead letters: the job has no file sink",
            next='say Job(…, dead_letters="/a/folder"), or on_error="fail"',
            job=job.name,
        )
    return FileSink(path, row="value", prefix="dead", suffix=".jsonl", rolling=RollingPolicy(on_checkpoint=True))
