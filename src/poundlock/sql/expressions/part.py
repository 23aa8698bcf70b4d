"""What the analysis of expressions is cut into: parts that know some kinds of nodes each, and ask the whole for the nodes below them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol, TypeAlias

from sqlglot import exp

from poundlock.sql.expressions.own_calls import OwnCalls, OwnFunctions
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.functions.function import SqlFunction
from poundlock.sql.types import SqlType

Handlers: TypeAlias = Mapping[type[exp.Expr], Callable[..., Expression]]
"""Make trees of nodes, by their type."""


class WholeAnalysis(Protocol):
    """The analysis that a part is of. What raises raises SqlError, which says where."""

    functions: Mapping[str, SqlFunction]
    own: OwnFunctions | None
    own_calls: OwnCalls
    database: str

    def expression(self, node: exp.Expr) -> Expression:
        """Return the tree of an expression."""

    def condition(self, node: exp.Expr, clause: str = "WHERE") -> Expression:
        """Return the tree of a condition."""

    def call(
        self, name: str, arguments: Sequence[Expression], node: exp.Expr, options: Sequence[str] = ()
    ) -> Expression:
        """Return the call of a function of the table, with the casts that it needs."""

    def converted(self, expression: Expression, kind: SqlType) -> Expression:
        """Return an expression as one of another type."""

    def field(self, row: Expression, name: str, node: exp.Expr) -> Expression:
        """Return a field of a row."""

    def unknown_function(self, node: exp.Expr, name: str) -> NoReturn:
        """Raise that there is no such function."""

    def refuse(self, node: exp.Expr, what: str, next: str, kind: str) -> NoReturn:
        """Raise what is wrong with a node."""
