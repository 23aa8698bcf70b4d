"""The scope of the columns of one table, which is what computed columns, watermarks and simple queries see."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from poundlock.errors import did_you_mean
from poundlock.sql.errors import SqlError
from poundlock.sql.expressions.tree import ColumnRef, Expression
from poundlock.sql.types import SqlType


class TableScope:
    """The columns of a table.

    Args:
        table: its name or alias, which may stand before a column's.
        columns: name and type of each.
    """

    def __init__(self, script: str, table: str, columns: Mapping[str, SqlType]) -> None:
        self._script = script
        self._table = table
        self._columns = columns

    def resolve(self, parts: tuple[str, ...], node: exp.Expr) -> tuple[Expression, tuple[str, ...]]:
        """Return the column of a name, and the fields behind it; a table's name stands before a column's of the same name."""
        if len(parts) > 1 and parts[0] == self._table and parts[1] in self._columns:
            return ColumnRef(parts[1], self._columns[parts[1]]), parts[2:]
        if parts[0] in self._columns:
            return ColumnRef(parts[0], self._columns[parts[0]]), parts[1:]
        name = parts[1] if len(parts) > 1 and parts[0] == self._table else parts[0]
        raise SqlError.at(
            node,
            f"there is no column {'.'.join(parts)}",
            script=self._script,
            next=did_you_mean(name, self._columns, f"use one of {', '.join(self._columns)}"),
            kind="unknown_column",
        )
