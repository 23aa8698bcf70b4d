"""What is done to rows one by one: projections, filters, UNION ALL, UNNEST, and what rows are made of."""

from __future__ import annotations

from poundlock.connectors.datagen.source import DatagenSource
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.expressions.tree import Literal
from poundlock.sql.lowering.programs import (
    CalcProgram,
    CalcStep,
    ExpandProgram,
    RepeatProgram,
    UnnestProgram,
    ValuesProgram,
    needed_steps,
)
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.relations.tree import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalRelation,
    LogicalRepeat,
    LogicalUnionAll,
    LogicalUnnest,
    LogicalValues,
)
from poundlock.sql.types import SqlType
from poundlock.stream.nodes import UnionNode
from poundlock.stream.stream import DataStream


def calc(lowering: Lowering, relation: LogicalRelation) -> DataStream:
    """Return the stream of projections and filters that follow each other, as one step."""
    steps: list[CalcStep] = []
    inner = relation
    while isinstance(inner, LogicalProject | LogicalFilter) and (inner is relation or not lowering.is_made(inner)):
        steps.append(step_of(inner))
        inner = inner.input
    kept = needed_steps([*reversed(steps)])
    stream = lowering.stream(inner)
    program = CalcProgram(kept, lowering.context)
    return lowering.calc(stream, program, relation.fields, kinds=lowering.is_updating(relation))


def step_of(relation: LogicalProject | LogicalFilter) -> CalcStep:
    """Return what a projection or a filter does to rows."""
    if isinstance(relation, LogicalFilter):
        return CalcStep(condition=relation.condition)
    return CalcStep(tuple(f.column for f in relation.fields), relation.expressions)


def values(lowering: Lowering, relation: LogicalValues) -> DataStream:
    """Return the stream of rows that are written in a script."""
    source = DatagenSource("row bigint", fields={"row": "sequence"}, count=len(relation.rows))
    stream = lowering.job.from_source(source, name=None)
    program = ValuesProgram(tuple(f.column for f in relation.fields), relation.rows, lowering.context)
    if not relation.fields:
        return stream
    return lowering.calc(stream, program, relation.fields, kinds=False, name="values")


def union(lowering: Lowering, relation: LogicalUnionAll) -> DataStream:
    """Return the rows of several streams; insertions are changes where those of another stream are."""
    kinds = [lowering.is_updating(part) for part in relation.parts]
    streams = [
        _with_kind(lowering, lowering.stream(part), part) if any(kinds) and not updating else lowering.stream(part)
        for part, updating in zip(relation.parts, kinds, strict=True)
    ]
    return streams[0].then(UnionNode(lowering.job.operator_id("union", None), [each.node for each in streams]))


def _with_kind(lowering: Lowering, stream: DataStream, relation: LogicalRelation) -> DataStream:
    """Return a stream of insertions as one of changes."""
    kind = Literal("+I", SqlType("VARCHAR", (2,)))
    names = (*(f.column for f in relation.fields), ROW_KIND)
    step = CalcStep(names, (*(f.ref for f in relation.fields), kind))
    return lowering.calc(stream, CalcProgram((step,), lowering.context), relation.fields, kinds=True)


def unnest(lowering: Lowering, relation: LogicalUnnest) -> DataStream:
    """Return a stream with the elements of a collection beside its rows."""
    inner = relation.input
    kept = tuple(f.column for f in relation.fields if any(f.column == g.column for g in inner.fields))
    own = tuple(f for f in relation.fields if f.column not in kept)
    program = UnnestProgram(
        relation.collection,
        kept,
        tuple(f.type.arrow for f in own),
        tuple(f.column for f in own),
        relation.is_outer,
        relation.ordinality,
    )
    return lowering.calc(
        lowering.stream(inner), program, relation.fields, kinds=lowering.is_updating(inner), name="unnest"
    )


def expand(lowering: Lowering, relation: LogicalExpand) -> DataStream:
    """Return a stream with each row once for each set of grouping columns."""
    inner = relation.input
    program = ExpandProgram(tuple(f.column for f in inner.fields), relation.keys, relation.sets, relation.number)
    return lowering.calc(
        lowering.stream(inner), program, relation.fields, kinds=lowering.is_updating(inner), name="expand"
    )


def repeat(lowering: Lowering, relation: LogicalRepeat) -> DataStream:
    """Return a stream with each row as often as a column says."""
    program = RepeatProgram(tuple(f.column for f in relation.fields), relation.times)
    return lowering.calc(
        lowering.stream(relation.input), program, relation.fields, kinds=lowering.is_updating(relation), name="repeat"
    )
