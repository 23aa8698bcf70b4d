"""Tables in FROM: their rows with computed columns, the event time that WATERMARK gives them, of upserts the whole changelog, and hints."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.upserts import gives_upserts
from poundlock.sql.expressions.tree import Expression, SqlCall
from poundlock.sql.relations.fields import Field, TimeKind
from poundlock.sql.relations.state_ttl import StateTtl
from poundlock.sql.relations.tree import (
    LogicalAssignWatermark,
    LogicalChangelogNormalize,
    LogicalProject,
    LogicalRelation,
    LogicalScan,
)
from poundlock.sql.tables import ComputedColumn, ConnectorColumn, PhysicalColumn, TableDefinition
from poundlock.values import duration, span_ms

_TTL = "write such as SELECT /*+ STATE_TTL('o' = '1 d', 'c' = '12 h') */"
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ")
_MOST_DIGITS = 3  # of a second, of a time attribute


def hinted(analysis: Analysis, node: exp.Expr, definition: TableDefinition) -> TableDefinition:
    """Return a table with the options that hints behind its name give it.

    Raises:
        SqlError: there is another hint than OPTIONS.
    """
    options = dict(definition.options)
    for hint in node.args.get("hints") or ():
        given = hint.args.get("options")
        if not given:
            raise analysis.error(
                node,
                f"the hint {hint.name or '/*+ */'} is not there",
                "write /*+ OPTIONS('key' = 'value') */, or leave it out",
                "unsupported_query",
            )
        options.update(given)
    return definition if options == definition.options else replace(definition, options=options)


def state_ttl_of(analysis: Analysis, select: exp.Select, scope: QueryScope) -> StateTtl | None:
    """Return how long state of single tables in FROM is kept, as the hint STATE_TTL behind SELECT says; None without hints.

    Args:
        scope: what stands in FROM.

    Raises:
        SqlError: there is another hint, or one that names no table of FROM or no span of time.
    """
    hint = select.args.get("hint")
    if hint is None:
        return None
    names = {each.name for each in scope.relations if each.name is not None}
    spans: dict[str, int] = {}
    for each in hint.expressions:
        if each.name.upper() != "STATE_TTL":
            raise analysis.missing(select, f"the hint {each.name.upper()}")
        pairs = [(part.this, part.expression) for part in each.expressions if isinstance(part, exp.EQ)]
        are_texts = all(isinstance(text, exp.Literal) and text.is_string for pair in pairs for text in pair)
        if not pairs or len(pairs) < len(each.expressions) or not are_texts:
            raise analysis.error(select, "STATE_TTL without names and spans of time", _TTL, "wrong_arguments")
        for name, text in ((key.name, value.name) for key, value in pairs):
            if name not in names:
                raise analysis.error(
                    select,
                    f"STATE_TTL of {name}, which does not stand in FROM",
                    f"name one of {', '.join(sorted(names)) or 'its tables, which need an alias'}",
                    "unknown_table",
                )
            try:
                spans.setdefault(name, span_ms(duration(text)))
            except DefinitionError as error:
                raise analysis.error(select, error.what, _TTL, "bad_option_value") from None
    return StateTtl(spans, {f.column: each.name for each in scope.relations if each.name for f in each.fields})


def kept_for(analysis: Analysis, select: exp.Select, ttl: StateTtl, relation: LogicalRelation) -> LogicalRelation:
    """Return a query with the times to live of its hint.

    Raises:
        SqlError: one of them has no effect.
    """
    made = ttl.given_to(relation)
    for name in ttl.unused:
        raise analysis.error(
            select,
            f"STATE_TTL of {name} has no effect: it is neither a side of a regular join nor what is aggregated",
            "leave it out, or SET 'table.exec.state.ttl', which is for all state",
            "unsupported_query",
        )
    return made


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
