"""MATCH_RECOGNIZE: patterns of rows."""

from __future__ import annotations

from poundlock.sql.lowering.match_rows import MatchColumns, output_schema
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.lowering.watermarks import refuse_watermark
from poundlock.sql.lowering.windows import keys_text
from poundlock.sql.relations.tree import LogicalMatch
from poundlock.stream.matching import MatchNode
from poundlock.stream.nodes import SortColumn
from poundlock.stream.stream import DataStream


def match(lowering: Lowering, relation: LogicalMatch) -> DataStream:
    """Return the stream of the matches of a pattern.

    Raises:
        DefinitionError: rows change, or something of the pattern is not there.
    """
    inner = relation.input
    if lowering.is_updating(inner):
        raise relation.of_updates
    refuse_watermark([each for _, each in relation.conditions], "DEFINE")
    stream, columns = lowering.stream(inner), MatchColumns(relation, lowering.context)
    program = columns.program()
    if columns.computed:
        fields = (*inner.fields, *(own for own, _ in columns.computed))
        expressions = (*(f.ref for f in inner.fields), *(computed for _, computed in columns.computed))
        step = CalcStep(tuple(f.column for f in fields), expressions)
        stream = lowering.calc(stream, CalcProgram((step,), lowering.context), fields, kinds=False)
    node = MatchNode(
        lowering.job.operator_id("match", None),
        [stream.node],
        [keys_text(relation.keys)],
        [None if relation.by_clock else relation.order[0].column],
        output_schema(program),
        {},
        pattern=relation.pattern,
        after=relation.after,
        program=program,
        order=[SortColumn(key.column, key.is_descending, key.nulls_first) for key in relation.order[1:]],
        within_ms=relation.within_ms,
    )
    step = CalcStep(tuple(f.column for f in relation.fields), relation.measures)
    return lowering.calc(stream.then(node), CalcProgram((step,), lowering.context), relation.fields, kinds=False)
