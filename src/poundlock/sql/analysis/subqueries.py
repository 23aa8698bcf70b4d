"""Queries in conditions and expressions, as joins: IN, EXISTS, ANY and ALL, and those that give one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from poundlock.sql.analysis.context import Analysis, Queries, Special
from poundlock.sql.analysis.joins import conjunction, conjuncts_of, joined
from poundlock.sql.analysis.scope import QueryScope
from poundlock.sql.expressions.tree import ColumnRef, Expression, SqlCall, columns_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    JoinKind,
    LogicalAggregate,
    LogicalFilter,
    LogicalJoin,
    LogicalProject,
    LogicalRelation,
    SqlAggregateCall,
)
from poundlock.sql.types import SqlType

_BOOLEAN = SqlType("BOOLEAN")
_COUNT = SqlType("BIGINT", is_nullable=False)
_TURNED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_SIGNS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


class Subqueries:
    """Joins the queries of one query's expressions to its relation.

    Args:
        relation: the query's own, before the expressions are computed.
        before: is asked first about parts of expressions.
    """

    def __init__(
        self,
        analysis: Analysis,
        queries: Queries,
        relation: LogicalRelation,
        scope: QueryScope,
        before: Special | None = None,
    ) -> None:
        self._analysis, self._queries, self._scope, self._before = analysis, queries, scope, before
        self.relation = relation
        self.scope_fields: Sequence[Field] = relation.fields
        self._values: list[tuple[LogicalRelation, list[Expression]]] = []

    @property
    def is_used(self) -> bool:
        """Whether there is a query that has to be joined to get a value."""
        return bool(self._values)

    # --- conditions -------------------------------------------------------------------------------------------------------

    def conditions(self, where: exp.Expr) -> list[Expression]:
        """Join the queries of a condition; return what is left of it."""
        rest: list[exp.Expr] = []
        for node in _written_conjuncts(where):
            if not self._joined(node):
                rest.append(node)
        typed = [
            each for node in rest for each in conjuncts_of(self._analysis.condition(node, self._scope, self.special))
        ]
        self.relation = self.joined_to(self.relation)
        return typed

    def _joined(self, node: exp.Expr, *, negated: bool = False) -> bool:
        """Join a query that decides whether a row stays; return whether the node is one."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Not):
            return self._joined(node.this, negated=not negated)
        kind: JoinKind = "anti" if negated else "semi"
        if isinstance(node, exp.Exists):
            self._decide(kind, node.this, [])
            return True
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            inner = node.args["query"]
            left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
            self._decide(kind, inner.this if isinstance(inner, exp.Subquery) else inner, left, nulls_decide=negated)
            return True
        sign = _SIGNS.get(type(node))
        if sign is not None and isinstance(node.expression, exp.Any | exp.All):
            is_all = isinstance(node.expression, exp.All)
            inner = node.expression.this
            inner = inner.this if isinstance(inner, exp.Subquery) else inner
            # x >= ALL (…) is true unless a row is greater; a null among them makes it unknown, which is not true.
            self._decide(
                "anti" if is_all is not negated else "semi",
                inner,
                [node.this],
                sign=_TURNED[sign] if is_all else sign,
                nulls_decide=is_all is not negated,
            )
            return True
        return False

    def _decide(
        self,
        kind: JoinKind,
        query: exp.Expr,
        left: Sequence[exp.Expr],
        *,
        sign: str = "=",
        nulls_decide: bool = False,
    ) -> None:
        inner, conditions, outputs = self._inner(query)
        if left and len(left) != len(outputs):
            raise self._analysis.error(
                query, f"{len(left)} values against {len(outputs)} columns", "select as many", "column_count_mismatch"
            )
        for node, output in zip(left, outputs, strict=False):
            value = self._analysis.expression(node, self._scope, self._before)
            compared = self._analysis.compared(node, sign, value, output.ref)
            if nulls_decide and (value.type.is_nullable or output.type.is_nullable):
                compared = SqlCall("OR", (compared, SqlCall("IS NULL", (compared,), _BOOLEAN)), _BOOLEAN)
            conditions.append(compared)
        self.relation = joined(kind, self.relation, inner, conditions)

    # --- values -----------------------------------------------------------------------------------------------------------

    def special(self, node: exp.Expr) -> Expression | None:
        """Return what a part of an expression is, where it is a query that gives one value."""
        if self._before is not None:
            known = self._before(node)
            if known is not None:
                return known
        if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
            return self._value(node.this if isinstance(node, exp.Subquery) else node)
        if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None):
            raise self._analysis.missing(node, "IN or EXISTS within OR, CASE or another expression")
        return None

    def _value(self, query: exp.Expr) -> Expression:
        inner, conditions, (output,) = self._inner(query, single=True)
        self._values.append((inner, conditions))
        made: Expression = ColumnRef(output.column, replace(output.type, is_nullable=True))
        if _is_count(inner, output):
            return self._analysis.call("COALESCE", (made, self._analysis.literal(0, _COUNT)))
        return made

    def joined_to(self, relation: LogicalRelation) -> LogicalRelation:
        """Return a relation with the values of all queries as columns."""
        values, self._values = self._values, []
        for inner, conditions in values:
            relation = joined("left", relation, inner, conditions)
        return relation

    def lateral(self, query: exp.Expr, kind: JoinKind) -> tuple[LogicalRelation, tuple[Field, ...]]:
        """Return the relation joined with the result of a query for each of its rows, and the query's columns."""
        inner, conditions, own = self._inner(query)
        relation = joined(kind, self.relation, inner, conditions)
        now = {each.column: each for each in relation.fields}
        return relation, tuple(now[each.column].renamed(each.name) for each in own)

    # --- correlation ------------------------------------------------------------------------------------------------------

    def _inner(
        self, query: exp.Expr, *, single: bool = False
    ) -> tuple[LogicalRelation, list[Expression], tuple[Field, ...]]:
        """Return the relation of a query without the conditions that are of the query around it, those conditions, and its columns.

        Args:
            single: whether more than one row is an error.
        """
        relation = self._queries.relation(query, self._scope)
        own = relation.fields
        if single and len(own) != 1:
            raise self._analysis.error(
                query, f"a query of {len(own)} columns as one value", "select one", "column_count_mismatch"
            )
        relation, conditions, columns = self._lifted(query, relation)
        if single and not _gives_one(relation):
            relation = self._checked_single(relation, own[0], columns)
        extra = tuple(f for f in relation.fields if f.column not in {o.column for o in own})
        if tuple(f.column for f in relation.fields[: len(own)]) != tuple(f.column for f in own):
            fields = (*(relation.field(f.column) for f in own), *extra)
            relation = LogicalProject(fields, relation, tuple(f.ref for f in fields))
        return relation, conditions, tuple(relation.field(f.column) for f in own)

    def _lifted(
        self, query: exp.Expr, relation: LogicalRelation
    ) -> tuple[LogicalRelation, list[Expression], list[str]]:
        """Return a relation without conditions on columns that are not its own, those conditions, and its columns in them."""
        lifted, conditions, columns = _lift(relation)
        if any(_foreign(each) for each in _all_expressions(lifted)):
            raise self._analysis.missing(query, "a column of the query around it at this place of a sub-query")
        return lifted, conditions, columns

    def _checked_single(self, relation: LogicalRelation, output: Field, columns: Sequence[str]) -> LogicalRelation:
        """Return one value for each set of columns; a second one fails the job."""
        value = self._analysis.names.fresh("single_value")
        call = SqlAggregateCall("single_value", (output.column,), value, replace(output.type, is_nullable=True))
        keys = tuple(columns)
        grouped = LogicalAggregate(
            (*(relation.field(key).plain() for key in keys), Field(output.name, value, call.type)),
            relation,
            keys,
            (call,),
        )
        fields = (Field(output.name, output.column, call.type), *(grouped.field(key) for key in keys))
        return LogicalProject(fields, grouped, (ColumnRef(value, call.type), *(grouped.field(key).ref for key in keys)))


def _written_conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    left = [node]
    while left:
        node = left.pop()
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.And):
            left += [node.expression, node.this]
        else:
            yield node


def _lift(relation: LogicalRelation) -> tuple[LogicalRelation, list[Expression], list[str]]:
    if isinstance(relation, LogicalFilter):
        inner, conditions, columns = _lift(relation.input)
        known = {f.column for f in inner.fields}
        own: list[Expression] = []
        foreign: list[Expression] = []
        for each in conjuncts_of(relation.condition):
            (own if set(columns_of(each)) <= known else foreign).append(each)
        if not foreign:
            return (
                (relation if inner is relation.input else LogicalFilter(inner.fields, inner, relation.condition)),
                conditions,
                columns,
            )
        whole = conjunction(own)
        kept: LogicalRelation = inner if whole is None else LogicalFilter(inner.fields, inner, whole)
        used = [c for each in foreign for c in columns_of(each) if c in known]
        return kept, [*conditions, *foreign], list(dict.fromkeys([*columns, *used]))
    if isinstance(relation, LogicalProject):
        inner, conditions, columns = _lift(relation.input)
        if inner is relation.input:
            return relation, [], []
        passed = {
            e.name: f.column
            for f, e in zip(relation.fields, relation.expressions, strict=True)
            if isinstance(e, ColumnRef)
        }
        added = [inner.field(c) for c in columns if c not in passed]
        fields = (*relation.fields, *added)
        made = LogicalProject(fields, inner, (*relation.expressions, *(f.ref for f in added)))
        renamed = {c: passed.get(c, c) for c in columns}
        return made, [_renamed(each, renamed) for each in conditions], [renamed[c] for c in columns]
    if isinstance(relation, LogicalAggregate):
        inner, conditions, columns = _lift(relation.input)
        if inner is relation.input:
            return relation, [], []
        new = [c for c in columns if c not in relation.keys]
        fields = (*relation.fields, *(inner.field(c).plain() for c in new))
        return LogicalAggregate(fields, inner, (*relation.keys, *new), relation.calls), conditions, columns
    if type(relation) is LogicalJoin and relation.kind == "inner":
        left, of_left, left_columns = _lift(relation.left)
        right, of_right, right_columns = _lift(relation.right)
        known = {f.column for side in (left, right) for f in side.fields}
        own, foreign = [], []
        for each in () if relation.condition is None else conjuncts_of(relation.condition):
            (own if set(columns_of(each)) <= known else foreign).append(each)
        if not foreign and left is relation.left and right is relation.right:
            return relation, [], []
        made_join = joined("inner", left, right, own, keys=relation.keys)
        used = [c for each in foreign for c in columns_of(each) if c in known]
        every = list(dict.fromkeys([*left_columns, *right_columns, *used]))
        return made_join, [*of_left, *of_right, *foreign], every
    return relation, [], []


def _renamed(expression: Expression, names: dict[str, str]) -> Expression:
    if isinstance(expression, ColumnRef):
        return ColumnRef(names.get(expression.name, expression.name), expression.type)
    if isinstance(expression, SqlCall):
        return replace(expression, arguments=tuple(_renamed(each, names) for each in expression.arguments))
    return expression


def _all_expressions(relation: LogicalRelation) -> Iterator[tuple[Expression, set[str]]]:
    inputs = {f.column for each in relation.inputs for f in each.fields}
    if isinstance(relation, LogicalFilter):
        yield relation.condition, inputs
    elif isinstance(relation, LogicalProject):
        yield from ((each, inputs) for each in relation.expressions)
    elif isinstance(relation, LogicalJoin) and relation.condition is not None:
        yield relation.condition, inputs
    for each in relation.inputs:
        yield from _all_expressions(each)


def _foreign(pair: tuple[Expression, set[str]]) -> bool:
    return not set(columns_of(pair[0])) <= pair[1]


def _gives_one(relation: LogicalRelation) -> bool:
    """Return whether a relation has at most one row for each set of keys."""
    while isinstance(relation, LogicalProject | LogicalFilter):
        relation = relation.input
    return isinstance(relation, LogicalAggregate) and bool(relation.calls)


def _is_count(relation: LogicalRelation, output: Field) -> bool:
    column = output.column
    while isinstance(relation, LogicalProject):
        of = next((e for f, e in zip(relation.fields, relation.expressions, strict=True) if f.column == column), None)
        if not isinstance(of, ColumnRef):
            return False
        column, relation = of.name, relation.input
    return isinstance(relation, LogicalAggregate) and any(
        c.column == column and c.kind == "count" for c in relation.calls
    )
