"""Tables in FROM: their rows with computed columns, the event time that WATERMARK gives them, and of upserts the whole changelog."""

from __future__ import annotations

from dataclasses import replace

from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.upserts import gives_upserts
from poundlock.sql.expressions.tree import Expression, SqlCall
from poundlock.sql.relations.fields import Field, TimeKind
from poundlock.sql.relations.tree import (
    LogicalAssignWatermark,
    LogicalChangelogNormalize,
    LogicalProject,
    LogicalRelation,
    LogicalScan,
)
from poundlock.sql.tables import ComputedColumn, ConnectorColumn, PhysicalColumn, TableDefinition

_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ")
_MOST_DIGITS = 3  # of a second, of a time attribute


def scanned(analysis: Analysis, name: FullName, definition: TableDefinition) -> LogicalRelation:
    """Return the rows of a table; a table that a statement names twice with the same options is read once.

    Raises:
        SqlError: a computed column or the watermark cannot be computed.
    """
    key = (name, tuple(definition.options.items()))
    known = analysis.scans.get(key)
    if known is None:
        known = _scanned(analysis, name, definition)
        if gives_upserts(definition):
            # Behind the watermark, which each partition has as it is read.
            keys = tuple(each.column for each in known.fields if each.name in definition.primary_key)
            known = LogicalChangelogNormalize(known.fields, known, keys)
        analysis.scans[key] = known
    return known


def _scanned(analysis: Analysis, name: FullName, definition: TableDefinition) -> LogicalRelation:
    given: dict[str, Field] = {}
    for each in definition.columns:
        if isinstance(each, PhysicalColumn | ConnectorColumn):
            time: TimeKind | None = "rowtime" if each.name == definition.event_time else None
            given[each.name] = Field(each.name, analysis.names.fresh(each.name), each.type, time)
    relation: LogicalRelation = LogicalScan(tuple(given.values()), name, definition)
    scope = QueryScope(definition.script, (NamedFields(name.name, tuple(given.values())),))
    inner = analysis.of_script(definition.script)
    fields: list[Field] = []
    expressions: list[Expression] = []
    for each in definition.columns:
        if isinstance(each, ComputedColumn):
            typed = inner.expression(each.expression, scope)
            clock = isinstance(typed, SqlCall) and typed.function == "PROCTIME"
            made = Field(each.name, analysis.names.fresh(each.name), typed.type, "proctime" if clock else None)
            fields.append(made)
            expressions.append(typed)
        else:
            fields.append(given[each.name])
            expressions.append(given[each.name].ref)
    if any(isinstance(each, ComputedColumn) for each in definition.columns):
        relation = LogicalProject(tuple(fields), relation, tuple(expressions))
    if definition.watermark is None:
        return relation
    return _watermarked(inner, name, definition, relation)


def _watermarked(
    analysis: Analysis, name: FullName, definition: TableDefinition, relation: LogicalRelation
) -> LogicalRelation:
    clause = definition.watermark
    assert clause is not None
    scope = QueryScope(definition.script, (NamedFields(name.name, relation.fields),))
    field, rest = scope.find(clause.column, clause.expression)
    if rest or field.type.root not in _TIMES or field.type.sizes[0] > _MOST_DIGITS:
        raise analysis.error(
            clause.expression,
            f"WATERMARK FOR {'.'.join(clause.column)}, which is of type {field.type}",
            "give a column of type TIMESTAMP(3) or TIMESTAMP_LTZ(3)",
            "not_a_time_attribute",
        )
    watermark = analysis.expression(clause.expression, scope)
    if watermark.type.root != field.type.root:
        raise analysis.error(
            clause.expression,
            f"a watermark of type {watermark.type} for a column of type {field.type}",
            "write such as ts - INTERVAL '5' SECOND",
            "not_a_time_attribute",
        )
    timed = tuple(replace(each, time="rowtime") if each.column == field.column else each for each in relation.fields)
    return LogicalAssignWatermark(timed, relation, field.column, watermark)
