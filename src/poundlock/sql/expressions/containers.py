"""Rows, arrays and maps: how they are written, and what is taken out of them."""

from __future__ import annotations

from sqlglot import exp

from poundlock.errors import did_you_mean
from poundlock.sql.coercion import INTEGERS, TEXTS
from poundlock.sql.expressions.part import Handlers, WholeAnalysis
from poundlock.sql.expressions.tree import Expression, Literal, SqlCall


class ContainerAnalysis:
    """Makes rows, arrays and maps, and takes fields and elements out of them."""

    def __init__(self, of: WholeAnalysis) -> None:
        self._of = of
        self.by_node: Handlers = {exp.Array: self._array, exp.Tuple: self._array, exp.Bracket: self._bracket}

    def field(self, row: Expression, name: str, node: exp.Expr) -> Expression:
        """Return a field of a row."""
        if row.type.root != "ROW":
            self._of.refuse(node, f"{name} is no field: {row.type} is no row", "leave it out", "unknown_column")
        if name not in row.type.names:
            near = did_you_mean(name, row.type.names, f"use one of {', '.join(row.type.names)}")
            self._of.refuse(node, f"there is no field {name} in the row", near, "unknown_column")
        kind = row.type.of[row.type.names.index(name)]
        return SqlCall(".field", (row,), kind.with_null(kind.is_nullable or row.type.is_nullable), (name,))

    def _array(self, node: exp.Expr) -> Expression:
        return self._of.call(
            "ARRAY" if isinstance(node, exp.Array) else "ROW",
            [self._of.expression(each) for each in node.expressions],
            node,
        )

    def _bracket(self, node: exp.Bracket) -> Expression:
        name, of = node.this, [self._of.expression(each) for each in node.expressions]
        if isinstance(name, exp.Column) and not name.table and not name.this.quoted and name.name.upper() == "MAP":
            return self._of.call("MAP", of, node)
        if len(of) != 1:
            self._of.refuse(
                node, f"{len(of)} places of one element", "write one number or key between [ and ]", "wrong_arguments"
            )
        container = self._of.expression(name)
        if container.type.root == "ROW" and isinstance(of[0], Literal) and of[0].type.root in (*INTEGERS, *TEXTS):
            place = of[0].value
            names = container.type.names
            field = place if isinstance(place, str) else names[place - 1] if 1 <= place <= len(names) else str(place)
            return self.field(container, field, node)
        return self._of.call("[]", (container, of[0]), node)
