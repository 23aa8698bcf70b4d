"""CASE and CAST: values of one of several branches, and values as another type."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.coercion import NUMBERS, TIMESTAMPS, can_cast, common_type
from poundlock.sql.expressions import literals
from poundlock.sql.expressions.part import Handlers, WholeAnalysis
from poundlock.sql.expressions.tree import Expression, Literal, SqlCall
from poundlock.sql.types import type_of


class ChoiceAnalysis:
    """Makes choices and casts."""

    def __init__(self, of: WholeAnalysis) -> None:
        self._of = of
        self.by_node: Handlers = {exp.Case: self._case, exp.Cast: self._cast, exp.TryCast: self._cast}

    def _case(self, node: exp.Case) -> Expression:
        conditions, values = [], []
        for branch in node.args["ifs"]:
            if node.this is None:
                conditions.append(self._of.condition(branch.this, "WHEN"))
            else:
                conditions.append(
                    self._of.call("=", (self._of.expression(node.this), self._of.expression(branch.this)), branch)
                )
            values.append(self._of.expression(branch.args["true"]))
        otherwise = node.args.get("default")
        values.append(literals.null() if otherwise is None else self._of.expression(otherwise))
        return self._chosen(conditions, values, node, "CASE")

    def _chosen(
        self, conditions: Sequence[Expression], values: Sequence[Expression], node: exp.Expr, what: str
    ) -> Expression:
        common = common_type((each.type for each in values), to_text=True)
        if common is None or common.root == "NULL":
            types = ", ".join(str(each.type) for each in values)
            self._of.refuse(
                node,
                f"{what} of ({types}): these types have none in common",
                "CAST the values to one type",
                "type_mismatch",
            )
        *chosen, otherwise = (self._of.converted(each, common.with_null(each.type.is_nullable)) for each in values)
        branches = tuple(each for pair in zip(conditions, chosen, strict=True) for each in pair)
        return SqlCall("CASE", (*branches, otherwise), common)

    def _cast(self, node: exp.Cast) -> Expression:
        value = self._of.expression(node.this)
        try:
            kind = type_of(node.args["to"])
        except DefinitionError as error:
            self._of.refuse(node, error.what, error.next, "unknown_type")
        if not can_cast(value.type, kind):
            between = {value.type.root, kind.root}
            is_time = between & set(TIMESTAMPS) and between & set(NUMBERS)
            how = (
                "use TO_TIMESTAMP_LTZ(number, 0 or 3), or UNIX_TIMESTAMP(text)"
                if is_time
                else "CAST to STRING, and that to the type"
            )
            self._of.refuse(node, f"{value.type} cannot be CAST to {kind}", how, "type_mismatch")
        is_try = isinstance(node, exp.TryCast)
        if isinstance(value, Literal) and value.value is None:
            return Literal(None, kind.with_null())
        return SqlCall("TRY_CAST" if is_try else "CAST", (value,), kind.with_null(is_try or value.type.is_nullable))
