"""Operators as calls: arithmetic, comparisons, AND and OR, questions behind IS, BETWEEN, IN and LIKE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.coercion import BOOLEAN, INTERVALS
from poundlock.sql.errors import shown
from poundlock.sql.expressions import literals
from poundlock.sql.expressions.part import Handlers, WholeAnalysis
from poundlock.sql.expressions.tree import FEW, Expression, Literal, SqlCall, bound_by
from poundlock.sql.functions.operators.comparison import aligned, compared_as, may_be_null
from poundlock.sql.functions.operators.intervals import DATETIMES
from poundlock.sql.types import SqlType

_BINARY: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.Add: "+", exp.Sub: "-",
    exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.And: "AND", exp.Or: "OR", exp.DPipe: "||",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip


class OperatorAnalysis:
    """Makes calls of operators."""

    def __init__(self, of: WholeAnalysis) -> None:
        self._of = of
        self.by_node: Handlers = {
            exp.Neg: self._negative,
            exp.Not: self._not,
            exp.Is: self._is,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Like: self._like,
            exp.SimilarTo: self._like,
            exp.Escape: self._like,
            **dict.fromkeys(_BINARY, self._binary),
        }

    def _binary(self, node: exp.Binary) -> Expression:
        name = _BINARY[type(node)]
        if isinstance(node, exp.Connector | exp.DPipe) and len(chained := _chained(node)) > FEW:
            made = [self._of.expression(each) for each in chained]
            return bound_by(lambda a, b: self._of.call(name, (a, b), node), made)
        a, b = self._of.expression(node.this), self._of.expression(node.expression)
        if name not in ("+", "-", "*", "/"):
            return self._of.call(name, (a, b), node)
        a_is, b_is = a.type.root in INTERVALS, b.type.root in INTERVALS
        if name == "+" and a_is and not b_is:
            a, b, a_is, b_is = b, a, b_is, a_is
        if name == "*" and b_is:
            a, b, a_is, b_is = b, a, b_is, a_is
        if a_is:
            return self._of.call(f"INTERVAL {name}", (a, b), node)
        if b_is or (a.type.root in DATETIMES and name in ("+", "-")):
            return (
                self._of.call(f"DATETIME {name}", (a, b), node)
                if name in ("+", "-")
                else self._no_operator(node, a, name, b)
            )
        return self._of.call(name, (a, b), node)

    def _no_operator(self, node: exp.Expr, a: Expression, name: str, b: Expression) -> NoReturn:
        self._of.refuse(
            node, f"{a.type} {name} {b.type}: there is no such operation", "CAST one of them", "type_mismatch"
        )

    def _negative(self, node: exp.Neg) -> Expression:
        made = self._of.expression(node.this)
        literal = literals.negative(made) if isinstance(made, Literal) else None
        if literal is not None:
            return literal
        return self._of.call("- INTERVAL" if made.type.root in INTERVALS else "- x", (made,), node)

    def _not(self, node: exp.Not) -> Expression:
        inner = node.this
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return self._of.call("IS NOT NULL", (self._of.expression(inner.this),), node)
        return self._of.call("NOT", (self._of.expression(inner),), node)

    def _is(self, node: exp.Is) -> Expression:
        value, asked = self._of.expression(node.this), node.expression
        if isinstance(asked, exp.Null):
            return self._of.call("IS NULL", (value,), node)
        if isinstance(asked, exp.Boolean):
            return self._of.call(f"IS {str(bool(asked.this)).upper()}", (value,), node)
        if isinstance(asked, exp.JSON):
            kind = asked.this
            return self._of.call("IS_JSON", (value,), node, (kind.upper(),) if isinstance(kind, str) else ())
        return self._of.refuse(
            node,
            f"{shown(node)}: there is no such question",
            "write IS [NOT] NULL, TRUE, FALSE, UNKNOWN or JSON",
            "syntax",
        )

    def _between(self, node: exp.Between) -> Expression:
        value, low, high = (self._of.expression(each) for each in (node.this, node.args["low"], node.args["high"]))

        def inside(least: Expression, most: Expression) -> Expression:
            return self._of.call(
                "AND", (self._of.call(">=", (value, least), node), self._of.call("<=", (value, most), node)), node
            )

        made = inside(low, high)
        return self._of.call("OR", (made, inside(high, low)), node) if node.args.get("symmetric") else made

    def _in(self, node: exp.In) -> Expression:
        if node.args.get("query") is not None or not node.expressions:
            self._of.refuse(node, "a sub-query is not possible here", "write it in WHERE", "unsupported_query")
        sought, *listed = (self._of.expression(each) for each in (node.this, *node.expressions))
        types = [sought.type, *(each.type for each in listed)]
        common: SqlType | None = sought.type
        try:
            for each in types[1:]:
                common = compared_as("IN", common or each, each)
        except DefinitionError as error:
            self._of.refuse(node, error.what, error.next, "type_mismatch")
        wanted = aligned(types, common or sought.type)
        pairs = zip((sought, *listed), wanted, strict=True)
        arguments = tuple(each if kind is None else self._of.converted(each, kind) for each, kind in pairs)
        return SqlCall("IN", arguments, BOOLEAN.with_null(any(map(may_be_null, types))))

    def _like(self, node: exp.Expr) -> Expression:
        inner, escape = (node.this, [node.expression]) if isinstance(node, exp.Escape) else (node, [])
        name = "LIKE" if isinstance(inner, exp.Like) else "SIMILAR_TO"
        made = self._of.call(
            name, [self._of.expression(each) for each in (inner.this, inner.expression, *escape)], node
        )
        return self._of.call("NOT", (made,), node) if inner.args.get("negate") else made


def _chained(node: exp.Binary) -> list[exp.Expr]:
    """Return what a chain of one operator binds, in its order."""
    parts: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node):
        parts.append(left.expression)
        left = left.this
    return [left, *reversed(parts)]
