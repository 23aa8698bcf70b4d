"""The choice of an operator for a node: the one place where what the user wrote meets what it means.

Every call makes a new operator; the user's function in it is the node's own, so a task makes one operator of one copy of the node.
Whichever window operator is taken, the results are those of the general one; only the cost differs.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.operators.asynchronous.operator import AsyncMapRecords
from poundlock.operators.chain import Edge, Operator, Pass
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS
from poundlock.operators.matching.operator import MatchOperator
from poundlock.operators.process.deduplicate import FirstRecordOperator, LastRecordOperator
from poundlock.operators.process.joins import IntervalJoinOperator, JoinedSides
from poundlock.operators.process.process import ProcessOperator
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.operators.process.top_n import TopN, TopNOperator
from poundlock.operators.records import record_maker
from poundlock.operators.user_functions import Filter, FlatMap, MapBatches, MapRecords
from poundlock.operators.windows.aggregates import SqlAggregates
from poundlock.operators.windows.aligned import AlignedWindowOperator, slice_of
from poundlock.operators.windows.base import WindowOperatorBase, WindowSpec
from poundlock.operators.windows.general import WindowOperator
from poundlock.operators.windows.sessions import CountWindowOperator, SessionWindowOperator
from poundlock.stream.functions.base import RichFunction
from poundlock.stream.functions.process import ArrowAggregateWindow, ProcessWindow
from poundlock.stream.matching import MatchNode
from poundlock.stream.nodes import (
    CalcNode,
    DeduplicateNode,
    IntervalJoinNode,
    KeyedNode,
    Node,
    ProcessNode,
    PythonNode,
    RollingNode,
    SideOutputNode,
    TopNNode,
    WindowJoinNode,
)
from poundlock.stream.windows.assigners import AlignedWindows, MergingWindowAssigner
from poundlock.stream.windows.builtin_assigners import (
    CountSlidingWindows,
    CountTumblingWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    Sliding,
    Tumbling,
)
from poundlock.stream.windows.builtin_triggers import EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger


def window_operator(spec: WindowSpec, *, chunk_rows: int = CHUNK_ROWS, general: bool = False) -> KeyedOperator:
    """Return an operator for windows.

    Args:
        general: whether to take the general operator whatever the windows are.

    Raises:
        DefinitionError: the trigger cannot be used with windows that merge.
    """
    trigger = spec.trigger or spec.assigner.default_trigger()
    if isinstance(spec.assigner, MergingWindowAssigner) and not trigger.can_merge():
        raise DefinitionError(
            f"{type(trigger).__name__} cannot be used with {spec.assigner.describe()}: it does not say what to do when windows merge",
            next="use a trigger whose can_merge() is true",
        )
    kind = WindowOperator if general else _kind(spec)
    return kind(spec, chunk_rows=chunk_rows)


def _kind(spec: WindowSpec) -> type[WindowOperatorBase]:
    if spec.evictor is not None or spec.assigner.default_evictor() is not None:
        return WindowOperator
    assigner = spec.assigner
    if isinstance(assigner, CountTumblingWindows):
        return CountWindowOperator if spec.trigger in (None, assigner.default_trigger()) else WindowOperator
    end = EventTimeTrigger if assigner.is_event_time() else ProcessingTimeTrigger
    trigger = spec.trigger or assigner.default_trigger()
    if isinstance(trigger, PurgingTrigger) and not spec.allowed_lateness_ms:
        trigger = trigger.inner  # a window that goes away when it fires has nothing left to purge
    if type(trigger) is not end:
        return WindowOperator
    if isinstance(assigner, AlignedWindows) and slice_of(assigner) is not None:
        return AlignedWindowOperator
    if type(assigner) in (EventTimeSessionWindows, ProcessingTimeSessionWindows):
        return SessionWindowOperator
    return WindowOperator


def _counts(spec: WindowSpec) -> bool:
    """Return whether windows are of a number of rows and nothing else tells when they fire, or what they hold."""
    assigner = spec.assigner
    if not isinstance(assigner, (CountTumblingWindows, CountSlidingWindows)):
        return False
    triggers, evictors = (None, assigner.default_trigger()), (None, assigner.default_evictor())
    return spec.trigger in triggers and spec.evictor in evictors


def by_record(spec: WindowSpec) -> str | None:
    """Return why windows need records one by one, None where they are computed by columns."""
    function = spec.function
    if not isinstance(function, (SqlAggregates, ArrowAggregateWindow)):
        return "a Python function is given its elements"
    kind = _kind(replace(spec, allowed_lateness_ms=0))  # by columns they purge whatever their lateness is
    if kind not in (AlignedWindowOperator, SessionWindowOperator) and not _counts(spec):
        return "its trigger, evictor or windows look at each element"
    return None


def process_by_record(node: KeyedNode) -> str | None:
    """Return why a step works record by record, None where it works by columns."""
    if isinstance(node, RollingNode):
        return "a Python function makes one record of two" if node.column is None else None
    if isinstance(node, MatchNode):
        return "what a row may be depends on those before it"
    return None if isinstance(node, (DeduplicateNode, TopNNode)) else "a function is given its records"


def check_columns_do(operator: str, spec: WindowSpec) -> None:
    """Raise DefinitionError where windows need records one by one, and the user's function takes columns."""
    reason = by_record(spec)
    if isinstance(spec.function, ArrowAggregateWindow) and reason is not None:
        raise DefinitionError(
            f"{operator}: {type(spec.function.aggregate).__name__} adds up columns, and these windows go record by record, since {reason}",
            next="give an AggregateFunction instead, or windows without that",
        )


def join_by_record(node: IntervalJoinNode | WindowJoinNode) -> str | None:
    """Return why a join needs records one by one, None where its rows are matched by columns."""
    if isinstance(node, IntervalJoinNode):
        return None
    if node.kind == "co_group":
        return "a function is given all records of a key"
    spec = WindowSpec.of(node, ProcessWindow(JoinedSides(node, ())))
    assigner = spec.assigner
    if _kind(spec) is SessionWindowOperator:
        return "its sessions merge as rows of either side come"
    if _kind(spec) is not AlignedWindowOperator:
        return "its trigger, evictor or windows look at each element"
    if spec.allowed_lateness_ms:
        return "windows that fired fire again as late elements come"
    if isinstance(assigner, Sliding) and assigner.slide_ms > assigner.size_ms:
        return "there are gaps between its windows"
    if not assigner.is_event_time() and not isinstance(assigner, Tumbling):
        return "its windows overlap and go by the clock"
    return None


def process_operator(node: KeyedNode, *, bounded: bool = False, chunk_rows: int = CHUNK_ROWS) -> KeyedOperator:
    """Return the operator of a node.

    Args:
        bounded: whether the job's input ends and only final results are wanted, which matters to rolling aggregates.
    """
    tags = tuple(tag for tag, schema in node.side_outputs.items() if schema is not None)
    if isinstance(node, ProcessNode):
        return ProcessOperator(node.function, tags=tags, broadcast=node.broadcast, chunk_rows=chunk_rows)
    if isinstance(node, RollingNode):
        fold = node.function or rolling_fold(node.kind, node.column, first=node.first)
        return RollingOperator(fold, bounded=bounded, chunk_rows=chunk_rows)
    if isinstance(node, DeduplicateNode):
        if node.keep == "first":
            return FirstRecordOperator(node.order, ttl_ms=node.ttl_ms, chunk_rows=chunk_rows)
        return LastRecordOperator(
            node.order,
            ttl_ms=node.ttl_ms,
            update_before=node.update_before,
            bounded=bounded,
            chunk_rows=chunk_rows,
        )
    if isinstance(node, TopNNode):
        return TopNOperator(TopN.of(node), bounded=bounded, chunk_rows=chunk_rows)
    if isinstance(node, MatchNode):
        return MatchOperator(node, chunk_rows=chunk_rows)
    if isinstance(node, IntervalJoinNode):
        bounds, late = (node.lower_ms, node.upper_ms), node.late_tags
        return IntervalJoinOperator(*bounds, node.function, late_tags=late, tags=tags, chunk_rows=chunk_rows)
    if isinstance(node, WindowJoinNode):
        spec = WindowSpec.of(node, ProcessWindow(JoinedSides(node, tags)))
        return window_operator(spec, chunk_rows=chunk_rows)
    raise DefinitionError(f"{node.id}: {type(node).__name__} has no operator", next="report this as a bug")


def edge(node: Node, step: str) -> Edge:
    """Return where a node's rows come from, given the step of its parent."""
    return Edge(step, node.tag if isinstance(node, SideOutputNode) else "")


def schema_after(node: Node, before: pa.Schema | None) -> pa.Schema | None:
    """Return the columns a node leaves behind, None if they are not known."""
    if not isinstance(node, (PythonNode, SideOutputNode, CalcNode)):
        return before
    return before if node.schema is None else ddl.parse(node.schema)


def operator_of(node: Node, before: pa.Schema | None) -> Operator:
    """Return what does a node's work in a task. `before` are the columns it is given, where known."""
    if not isinstance(node, PythonNode):
        return Pass()
    # One object may stand in several places of a job; each place opens and closes one of its own, as in Flink.
    function = copy(node.function) if isinstance(node.function, RichFunction) else node.function
    rejects = node.on_error == "bad_record"
    records = record_maker(node.record, before, node.id)
    if node.kind == "filter":
        return Filter(function, records, rejects=rejects)
    schema = ddl.parse(node.schema or "")
    if node.kind == "map_batches":
        return MapBatches(node.id, function, schema, before, node.batch_format, rejects=rejects)
    if node.asynchronous is not None:
        return AsyncMapRecords(node.id, function, schema, records, options=node.asynchronous, rejects=rejects)
    if node.kind == "map":
        return MapRecords(node.id, function, schema, records, rejects=rejects)
    schemas = {"": schema} | {tag: ddl.parse(text) for tag, text in node.side_outputs.items()}
    return FlatMap(node.id, function, schemas, records, rejects=rejects)
