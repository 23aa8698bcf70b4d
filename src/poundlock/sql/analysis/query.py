"""Queries: SELECT, set operations, WITH, ORDER BY and LIMIT, as relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.aggregate_calls import has_aggregates, mark_own, needs_over
from poundlock.sql.analysis.context import Analysis, FieldNode, Special
from poundlock.sql.analysis.from_clause import FromClause, renamed_fields
from poundlock.sql.analysis.grouping import Grouping
from poundlock.sql.analysis.hints import kept_for, state_ttl_of
from poundlock.sql.analysis.joins import conjuncts_of, filtered
from poundlock.sql.analysis.over import Overs, ranked
from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.analysis.set_operations import distinct_rows, parts_of, set_operation
from poundlock.sql.analysis.subqueries import Subqueries
from poundlock.sql.analysis.values import values_of
from poundlock.sql.catalog import ViewDefinition
from poundlock.sql.errors import cut
from poundlock.sql.expressions.tree import ColumnRef, Expression, SqlCall
from poundlock.sql.relations.fields import Field, distinct_names
from poundlock.sql.relations.tree import (
    JoinKind,
    LogicalProject,
    LogicalRelation,
    LogicalSort,
    LogicalTopN,
    LogicalValues,
    OrderKey,
)

_MOST = 1 << 62


class QueryAnalysis:
    """Makes relations of the queries of one statement."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._from = FromClause(analysis, self)
        self._with: list[dict[str, LogicalRelation]] = []
        self._views: dict[str, LogicalRelation] = {}
        self._open_views: tuple[ViewDefinition, ...] = ()

    def relation(self, query: exp.Expr, outer: QueryScope | None = None) -> LogicalRelation:
        """Return the relation of a query.

        Raises:
            SqlError: it cannot be run.
        """
        mark_own(self._analysis, query)
        with self._common(query, outer):
            if isinstance(query, exp.Subquery):
                relation = self.relation(query.this, outer)
                return self._ordered_behind(query, relation)
            if isinstance(query, exp.SetOperation):
                return self._ordered_behind(query, self._set(query, outer))
            if isinstance(query, exp.Values):
                return values_of(self._analysis, query)
            if isinstance(query, exp.Select):
                return self._select(query, outer)
        raise self._analysis.missing(query, f"{query.key.upper()} as a query")

    # --- WITH and views ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _common(self, query: exp.Expr, outer: QueryScope | None) -> Iterator[None]:
        written = query.args.get("with_")
        if written is None:
            yield
            return
        if written.args.get("recursive"):
            raise self._analysis.missing(query, "WITH RECURSIVE")
        self._with.append({})
        try:
            for each in written.expressions:
                made = self.relation(each.this, outer)
                fields = renamed_fields(self._analysis, made.fields, each.args["alias"])
                made = LogicalProject(fields, made, tuple(f.ref for f in made.fields)) if fields else made
                self._with[-1][each.alias] = made
            yield
        finally:
            self._with.pop()

    def common(self, name: str) -> LogicalRelation | None:
        """Return the query of WITH that has a name, None where there is none."""
        return next((known[name] for known in reversed(self._with) if name in known), None)

    def view(self, view: ViewDefinition) -> LogicalRelation:
        """Return the relation of a view; a view that is read twice is computed once."""
        known = self._views.get(view.text)
        if any(each is view for each in self._open_views):
            raise DefinitionError(
                f"a view reads itself: {cut(' '.join(view.text.split()))}",
                next="DROP the view, or give it another query",
            )
        if known is None:
            catalogs = self._analysis.catalogs.within(view.catalog, view.database)
            inner = QueryAnalysis(replace(self._analysis, script=view.script, catalogs=catalogs))
            inner._views, inner._open_views = self._views, (*self._open_views, view)
            known = self._views[view.text] = inner.relation(view.query)
        return known

    # --- set operations ---------------------------------------------------------------------------------------------------

    def _set(self, query: exp.SetOperation, outer: QueryScope | None) -> LogicalRelation:
        written = parts_of(query)
        return set_operation(self._analysis, query, written, [self.relation(each, outer) for each in written])

    # --- SELECT -----------------------------------------------------------------------------------------------------------

    def _select(self, select: exp.Select, outer: QueryScope | None) -> LogicalRelation:
        relation, scope = self._from.relation(select, outer)
        state_ttl = state_ttl_of(self._analysis, select, scope)
        subqueries = Subqueries(self._analysis, self, relation, scope)
        where = select.args.get("where")
        if where is not None:
            self._no_aggregates(where.this, "WHERE")
            conditions = subqueries.conditions(where.this)
            relation = ranked(self._analysis, filtered(subqueries.relation, conditions), where.this)
            if self._narrows(relation, subqueries):
                relation = LogicalProject(scope_fields(scope), relation, tuple(f.ref for f in scope_fields(scope)))
            scope = _refreshed(scope, relation)
        outputs = list(self._outputs(select, scope))
        having, order = select.args.get("having"), select.args.get("order")
        grouped = (
            select.args.get("group") is not None
            or having is not None
            or any(has_aggregates(node) for _, node in outputs)
            or (order is not None and any(has_aggregates(each) for each in order.expressions))
        )
        grouping = Grouping(self._analysis, relation, scope, select.args.get("group")) if grouped else None
        special: Special | None = grouping.special if grouping is not None else None
        behind = Subqueries(self._analysis, self, relation, scope, special)
        overs = Overs(self._analysis, scope, select.args.get("windows") or (), behind.special)
        typed = [(name, self._analysis.expression(node, scope, overs.special)) for name, node in outputs]
        condition = None if having is None else self._analysis.condition(having.this, scope, behind.special)
        sort = self._order(select, order, typed, scope, overs.special)
        if grouping is not None:
            relation = grouping.grouped()
            if behind.is_used:
                relation = behind.joined_to(relation)
            if condition is not None:
                relation = filtered(relation, list(conjuncts_of(condition)))
        elif behind.is_used:
            relation = behind.joined_to(relation)
        relation = overs.relation(relation)
        made = self._projected(select, relation, typed, sort)
        return made if state_ttl is None else kept_for(self._analysis, select, state_ttl, made)

    def _narrows(self, relation: LogicalRelation, subqueries: Subqueries) -> bool:
        return subqueries.is_used and any(
            each.column not in {f.column for f in relation.fields} for each in subqueries.scope_fields
        )

    def _outputs(self, select: exp.Select, scope: QueryScope) -> Iterator[tuple[str | None, exp.Expr]]:
        for node in select.expressions:
            if isinstance(node, exp.Star):
                fields = scope.star(None, node)
                if not fields:
                    raise self._analysis.error(node, "* without FROM", "name what is wanted", "unknown_column")
                yield from ((f.name, FieldNode(f)) for f in fields)
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                yield from ((f.name, FieldNode(f)) for f in scope.star(node.table, node))
            elif isinstance(node, exp.Alias):
                yield node.alias, node.this
            elif isinstance(node, exp.Column | exp.Dot):
                yield node.name, node
            else:
                yield None, node

    def _projected(
        self,
        select: exp.Select,
        relation: LogicalRelation,
        typed: Sequence[tuple[str | None, Expression]],
        sort: Sequence[tuple[Expression, OrderKey]],
    ) -> LogicalRelation:
        names = list(distinct_names(name or f"EXPR${place}" for place, (name, _) in enumerate(typed)))
        fields = tuple(
            self._field(relation, name, expression) for name, (_, expression) in zip(names, typed, strict=True)
        )
        expressions = tuple(expression for _, expression in typed)
        distinct = select.args.get("distinct")
        if not sort or distinct is not None:
            projected: LogicalRelation = LogicalProject(fields, relation, expressions)
            if distinct is not None:
                projected = distinct_rows(projected)
                sort = [(e, k) for e, k in ((self._named_again(e, typed, fields), k) for e, k in sort) if e is not None]
            if not sort:
                return self._limited(select, projected, ())
            relation, expressions = projected, tuple(f.ref for f in projected.fields)
            fields = projected.fields
        # What the order is by may be no column of the result: it is computed beside, and left out behind.
        keys, extra = [], []
        for expression, key in sort:
            place = next((n for n, each in enumerate(expressions) if each == expression), None)
            if place is not None:
                keys.append(replace(key, column=fields[place].column))
                continue
            own = self._field(relation, "order_key", expression)
            extra.append((own, expression))
            keys.append(replace(key, column=own.column))
        whole = LogicalProject(
            (*fields, *(own for own, _ in extra)), relation, (*expressions, *(expression for _, expression in extra))
        )
        ordered = self._limited(select, whole, keys)
        return LogicalProject(fields, ordered, tuple(f.ref for f in fields)) if extra else ordered

    @staticmethod
    def _named_again(
        expression: Expression, typed: Sequence[tuple[str | None, Expression]], fields: Sequence[Field]
    ) -> Expression | None:
        return next((f.ref for f, (_, each) in zip(fields, typed, strict=True) if each == expression), None)

    def _field(self, relation: LogicalRelation, name: str, expression: Expression) -> Field:
        time = None
        if isinstance(expression, ColumnRef):
            time = next((f.time for f in relation.fields if f.column == expression.name), None)
        elif isinstance(expression, SqlCall) and expression.function == "PROCTIME":
            time = "proctime"
        return Field(name, self._analysis.names.fresh(name), expression.type, time)

    # --- ORDER BY and LIMIT -------------------------------------------------------------------------------------------------

    def _order(
        self,
        select: exp.Expr,
        order: exp.Expr | None,
        typed: Sequence[tuple[str | None, Expression]],
        scope: QueryScope,
        special: Special,
    ) -> list[tuple[Expression, OrderKey]]:
        made = []
        for each in order.expressions if order is not None else ():
            node = each.this
            expression: Expression | None = None
            if isinstance(node, exp.Column) and not node.table:
                expression = next((e for name, e in typed if name == node.name), None)
            elif isinstance(node, exp.Literal) and not node.is_string and 0 < int(node.name) <= len(typed):
                expression = typed[int(node.name) - 1][1]
            if expression is None:
                expression = self._analysis.expression(node, scope, special)
            made.append((expression, _order_key(each)))
        return made

    def _ordered_behind(self, query: exp.Expr, relation: LogicalRelation) -> LogicalRelation:
        order = query.args.get("order")
        scope = self._analysis.scope_of(relation)
        typed = [(f.name, f.ref) for f in relation.fields]
        keys = []
        for expression, key in self._order(query, order, typed, scope, lambda node: None):
            if not isinstance(expression, ColumnRef):
                raise self._analysis.missing(query, "ORDER BY of an expression behind a set operation")
            keys.append(replace(key, column=expression.name))
        return self._limited(query, relation, keys)

    def _limited(self, query: exp.Expr, relation: LogicalRelation, keys: Sequence[OrderKey]) -> LogicalRelation:
        limit, offset = self._count(query, "limit"), self._count(query, "offset") or 0
        if limit is None and not offset and not keys:
            return relation
        if limit == 0:
            return LogicalValues(tuple(each.plain() for each in relation.fields), ())
        if self._analysis.is_batch:
            return LogicalSort(relation.fields, relation, tuple(keys), limit, offset)
        if limit is not None:
            plain = tuple(each.plain() for each in relation.fields)
            return LogicalTopN(plain, relation, (), tuple(keys), offset + 1, offset + limit, None)
        time = next((f for f in relation.fields if keys and f.column == keys[0].column), None)
        if time is None or time.time is None or keys[0].is_descending or offset:
            raise self._analysis.error(
                query,
                "ORDER BY in a stream begins with a time attribute, ascending, or has a LIMIT",
                "add LIMIT n, or SET 'execution.runtime-mode' = 'batch' for a bounded table",
                "order_by_not_time",
            )
        return LogicalSort(relation.fields, relation, tuple(keys))

    def _count(self, query: exp.Expr, kind: str) -> int | None:
        node = query.args.get(kind)
        if node is None:
            return None
        value = node.args.get("expression") or node.args.get("count")
        if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
            raise self._analysis.error(query, f"{kind.upper()} is a whole number", f"write {kind.upper()} 10")
        return int(value.name)

    # --- sub-queries ------------------------------------------------------------------------------------------------------

    def lateral(
        self, left: LogicalRelation, scope: QueryScope, query: exp.Expr, kind: JoinKind
    ) -> tuple[LogicalRelation, tuple[Field, ...]]:
        """Return a relation joined with the result of a query for each of its rows, and the query's columns."""
        return Subqueries(self._analysis, self, left, scope).lateral(query, kind)

    def _no_aggregates(self, node: exp.Expr, where: str) -> None:
        if has_aggregates(node):
            raise self._analysis.error(
                node, f"an aggregate in {where}", "write HAVING behind GROUP BY for it", "illegal_aggregate"
            )
        own = node.walk(prune=lambda part: isinstance(part, exp.Query))  # a sub-query may have them
        over = next((part for part in own if isinstance(part, exp.Window)), None)
        if over is not None:
            raise self._analysis.error(
                node,
                f"{needs_over(over.this) or 'an OVER'} in {where}",
                "compute it in a sub-query",
                "illegal_aggregate",
            )


def scope_fields(scope: QueryScope) -> tuple[Field, ...]:
    """Return all columns of a scope, each once."""
    fields: dict[str, Field] = {}
    for relation in scope.relations:
        for each in relation.fields:
            fields.setdefault(each.column, each)
    return tuple(fields.values())


def _refreshed(scope: QueryScope, relation: LogicalRelation) -> QueryScope:
    now = {each.column: each for each in relation.fields}
    relations = tuple(
        NamedFields(r.name, tuple(now[f.column].renamed(f.name) for f in r.fields if f.column in now), r.hidden)
        for r in scope.relations
    )
    return QueryScope(scope.script, relations, scope.outer)


def _order_key(node: exp.Expr) -> OrderKey:
    is_descending = bool(node.args.get("desc"))
    # Flink's default: NULL is the least value.
    nulls_first = node.args.get("nulls_first")
    return OrderKey("", is_descending, not is_descending if nulls_first is None else bool(nulls_first))
