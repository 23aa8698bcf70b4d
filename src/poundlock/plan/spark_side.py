"""What Spark does of a job: the rows of a node by Spark's operators, and by steps of ours between them that run in stages of their own.

Records that do not decode go to the sink stage by a second way where a step would not let them through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from poundlock.connectors.base import SplitSource
from poundlock.formats import ddl
from poundlock.operators.chain import MAIN
from poundlock.plan.arrow import map_in_arrow
from poundlock.plan.event_time import (
    TimeChannel,
    measured,
    refuse_other_watermarks,
    timeless_apart,
    with_event_time,
    without_watermark,
)
from poundlock.plan.keyed import KEYED, Emitted, emitted, unpacked
from poundlock.plan.plan import Plan, is_ours, may_reject
from poundlock.plan.reading import Reading, ddl_of
from poundlock.plan.rows import BAD, EVENT_TIME, HIDDEN, PARTITION, SPLIT
from poundlock.plan.sql import apply_sql
from poundlock.plan.steps import operator_of, schema_after
from poundlock.plan.tasks import python_task
from poundlock.plan.timestamps import timestamps
from poundlock.plan.uses import nth_use, source_of
from poundlock.plan.windows import windowed
from poundlock.stream.nodes import (
    ApplyNode,
    Node,
    PythonNode,
    SideOutputNode,
    SourceNode,
    SqlNode,
    UnionNode,
    WatermarkNode,
    WindowNode,
)
from poundlock.stream.process_nodes import IntervalJoinNode

__all__ = ["SparkSide", "selected"]


@dataclass
class SparkSide:
    """Spark's side of one query.

    Args:
        plan: the cut.
        reading: where rows come from.
        partitions: per source of Kafka, the (topic, partition) whose event time is told apart.
    """

    plan: Plan
    reading: Reading
    partitions: Mapping[str, Sequence[tuple[str, int]]]
    times: list[TimeChannel] = field(default_factory=list, init=False)
    """Where event time is measured."""
    observed: dict[str, list[str]] = field(default_factory=dict, init=False)
    """Per branch head, the names of what Spark counts for it."""
    _bad_frames: list[DataFrame] = field(default_factory=list, init=False)

    def take_bad(self) -> list[DataFrame]:
        """Return the second ways of undecodable records that were led apart since this was last asked."""
        taken, self._bad_frames = self._bad_frames, []
        return taken

    def rows(self, node: Node, head: str | None) -> DataFrame:
        """Return the rows of a node on Spark's side. `head` names the branch that counts; None = not counted."""
        if isinstance(node, SourceNode):
            frame = self.reading.rows(node, sized=head is not None)
            if head is not None:
                name = f"{head}/{self.reading.newest}"
                self.observed.setdefault(head, []).append(name)
                frame = frame.observe(name, F.count(F.lit(1)).alias("rows"))
            return frame
        if is_ours(node):
            return unpacked(self.emitted(node, head), MAIN, selected(node))
        if isinstance(node, SideOutputNode) and is_ours(node.inputs[0]):
            return unpacked(self.emitted(node.inputs[0], head), node.tag)
        before = len(self.reading.uses)
        # On the way of undecodable records those that bring none are left out: a step of ours would be there twice.
        parents = [each for each in node.inputs if head is not None or len(node.inputs) == 1 or _brings_bad(each)]
        inputs = [self.rows(parent, head) for parent in parents]
        if isinstance(node, SqlNode):
            return apply_sql(inputs[0], node)
        if isinstance(node, UnionNode):
            return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), inputs)
        if isinstance(node, WatermarkNode):
            frame = with_event_time(inputs[0], node, lambda frame: _python_stage(frame, timestamps(frame, node)))
            if _brings_bad(node):
                frame = timeless_apart(frame, node)
            if head is None:
                return frame  # records that do not decode: they have no time
            for channel in self._channels(node, frame, self.reading.uses[before:]):
                frame = measured(frame, channel)
                self.times.append(channel)
            return without_watermark(frame, node.strategy)
        if isinstance(node, (ApplyNode, WindowNode)):
            if head is not None:
                self._set_bad_apart(node)
            frames = [_without_bad(frame) for frame in inputs]
            if isinstance(node, WindowNode):
                return windowed(frames[0], node)
            made: DataFrame = node.function(*frames)
            if self.reading.timed or self.plan.hosted:
                refuse_other_watermarks(made, node.id)
            return made
        if isinstance(node, (PythonNode, SideOutputNode)):
            return _python_stage(inputs[0], node)
        raise TypeError(f"{type(node).__name__} has no Spark side")

    def emitted(self, node: Any, head: str | None) -> Emitted:
        """Return what a step of ours emits; its undecodable records go to the stage by a way of their own."""
        if head is not None:
            self._set_bad_apart(node)
        inputs = [self.rows(parent, head) for parent in node.inputs]
        control = self.reading.control(self.plan.job.max_parallelism)
        return emitted(
            node,
            inputs,
            control=control,
            groups=self.plan.job.max_parallelism,
            bounded=self.plan.batch,
            counted_as=f"{KEYED}{head}/{self.reading.controls}",
        )

    def _channels(self, node: WatermarkNode, frame: DataFrame, uses: Sequence[str]) -> Iterator[TimeChannel]:
        """Yield where the event time of a step is measured: rows of Kafka by partition, others by split, or all as one."""
        split = [use for use in uses if isinstance(self.reading.sources[source_of(use)], SplitSource)]
        kafka = [use for use in uses if source_of(use) in self.partitions]
        places = sorted({p for use in kafka for p in self.partitions[source_of(use)]})
        by_partition, by_split = PARTITION in frame.columns and bool(kafka), SPLIT in frame.columns and bool(split)
        name = nth_use(node.id, 1 + sum(1 for c in self.times if source_of(c.name) == node.id))
        if by_partition:
            others = SPLIT if by_split else None
            yield TimeChannel(name, node.strategy, kafka, places, None, others=others)
        if by_split:
            named = f"{name}/splits" if by_partition else name
            others = PARTITION if by_partition else None
            yield TimeChannel(named, node.strategy, split, None, split, self.reading.slots[split[0]].start, others)
        if not by_partition and not by_split:
            yield TimeChannel(name, node.strategy, uses, None, None)

    def _set_bad_apart(self, node: Node) -> None:
        """Lead undecodable records to the stage by a second way: what a function does with them is not ours to say."""
        for parent in dict.fromkeys(node.inputs):
            if _brings_bad(parent):
                again = self.rows(parent, None)
                if BAD in again.columns:
                    self._bad_frames.append(again.where(f"{BAD} IS NOT NULL").select(BAD))


def selected(node: Node) -> Sequence[str]:
    """Return the Spark SQL that makes rows of what a step of ours emits."""
    return node.select if isinstance(node, IntervalJoinNode) else ()


def _without_bad(frame: DataFrame) -> DataFrame:
    """Return the good rows of a frame, without the columns that are poundlock's."""
    return (frame.where(f"{BAD} IS NULL") if BAD in frame.columns else frame).drop(*HIDDEN)


def _brings_bad(node: Node) -> bool:
    """Return whether undecodable records come out of a node. A step with state leads its own ones past itself."""
    if isinstance(node, SourceNode):
        return may_reject(node.source)
    if isinstance(node, (ApplyNode, WindowNode)) or is_ours(node):
        return False
    if isinstance(node, PythonNode) and node.on_error == "bad_record":
        return True
    return any(_brings_bad(parent) for parent in node.inputs)


def _python_stage(frame: DataFrame, node: PythonNode | SideOutputNode) -> DataFrame:
    """Run a user's Python function in a stage of its own, because Spark operators follow."""
    frame = frame.drop(EVENT_TIME)
    python = node.inputs[0] if isinstance(node, SideOutputNode) else node
    assert isinstance(python, PythonNode)
    fields = [f for f in frame.schema.fields if f.name not in HIDDEN]
    hidden = [BAD, *(f.name for f in frame.schema.fields if f.name in HIDDEN and f.name != BAD)]
    before = ddl.parse(", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields))
    after = schema_after(node, before)
    assert after is not None
    tag = node.tag if isinstance(node, SideOutputNode) else ""
    task = python_task(operator_of(python, before), tag, after, python.id, hidden)
    return map_in_arrow(frame, task, ddl_of(ddl.render(after), hidden))
