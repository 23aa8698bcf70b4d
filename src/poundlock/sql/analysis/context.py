"""What the analysis of a statement shares: the catalogs, the script for errors, names of columns, settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

from sqlglot import exp

from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.catalog import Catalogs, FullName, ViewDefinition
from poundlock.sql.errors import SqlError
from poundlock.sql.expressions.analysis import ExpressionAnalysis
from poundlock.sql.expressions.own_calls import names_before, own_function
from poundlock.sql.expressions.tree import Expression, Literal
from poundlock.sql.relations.fields import ColumnNames, Field
from poundlock.sql.relations.tree import JoinKind, LogicalRelation, LogicalRepeat
from poundlock.sql.types import SqlType
from poundlock.sql.user.function import SqlUserFunction

Special = Callable[[exp.Expr], Expression | None]
"""Is asked first what a part of an expression means: an aggregate, say."""
ScanKey: TypeAlias = tuple[FullName, tuple[tuple[str, str], ...]]
"""A table that is read, by name and options: a hint gives it others."""


class Queries(Protocol):
    """Makes relations of the queries of a statement."""

    def relation(self, query: exp.Expr, outer: QueryScope | None = None) -> LogicalRelation:
        """Return the relation of a query."""

    def common(self, name: str) -> LogicalRelation | None:
        """Return the query of WITH that has a name, None where there is none."""

    def view(self, view: ViewDefinition) -> LogicalRelation:
        """Return the relation of a view."""

    def lateral(
        self, left: LogicalRelation, scope: QueryScope, query: exp.Expr, kind: JoinKind
    ) -> tuple[LogicalRelation, tuple[Field, ...]]:
        """Return a relation joined with the result of a query for each of its rows, and the query's columns."""


@dataclass
class Analysis:
    """The analysis of one statement.

    Args:
        is_batch: whether the statement runs in batch mode: its results are final, and any order is allowed.
        names: of the columns of its batches.
        scans: the tables that are read, by name and options.
        notes: what the user is to know of the statement beside its result.
    """

    catalogs: Catalogs
    script: str
    is_batch: bool = False
    names: ColumnNames = field(default_factory=ColumnNames)
    scans: dict[ScanKey, LogicalRelation] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def of_script(self, script: str) -> Analysis:
        """Return the same for a part of the statement that another script has written: a view, a column of a table."""
        return replace(self, script=script)

    # --- errors -----------------------------------------------------------------------------------------------------------

    def error(self, node: exp.Expr, what: str, next: str, kind: str = "other") -> SqlError:
        """Return the error of a part of the statement."""
        return SqlError.at(node, what, script=self.script, next=next, kind=kind)

    def missing(self, node: exp.Expr, feature: str) -> SqlError:
        """Return the error of what Flink has and this does not."""
        return self.error(node, f"{feature} is not there yet", "write the query without it", "unsupported_query")

    # --- expressions ------------------------------------------------------------------------------------------------------

    def scope_of(self, relation: LogicalRelation) -> QueryScope:
        """Return the scope of a relation's own columns."""
        return QueryScope(self.script, (NamedFields(None, relation.fields),))

    def expression(self, node: exp.Expr, scope: QueryScope, special: Special | None = None) -> Expression:
        """Return an expression of some columns.

        Args:
            special: is asked first about each of its parts.

        Raises:
            SqlError: a name, a function or a type is wrong.
        """
        if isinstance(node, FieldNode):
            known = None if special is None else special(node)
            return node.field.ref if known is None else known
        return self._expressions(scope, special).expression(node)

    def condition(self, node: exp.Expr, scope: QueryScope, special: Special | None = None) -> Expression:
        """Return an expression that is true or false; raises as `expression`."""
        return self._expressions(scope, special).condition(node)

    def compared(self, node: exp.Expr, sign: str, left: Expression, right: Expression) -> Expression:
        """Return the comparison of two expressions; raises as `expression`."""
        return self._expressions(QueryScope(self.script), None).call(sign, [left, right], node)

    def equal(self, left: Expression, right: Expression) -> Expression:
        """Return whether two expressions are equal; raises as `expression`."""
        return self.compared(exp.Null(), "=", left, right)

    def call(self, name: str, arguments: Sequence[Expression]) -> Expression:
        """Return the call of a function; raises as `expression`."""
        return self._expressions(QueryScope(self.script), None).call(name, arguments, exp.Null())

    def interval_ms(self, node: exp.Expr) -> int | None:
        """Return how long an interval is that the script writes, ms; None where it is no interval, or one of months."""
        if not isinstance(node, exp.Interval):
            return None
        made = self.expression(node, QueryScope(self.script))
        is_span = isinstance(made, Literal) and made.type.root == "INTERVAL_DAY_TIME"
        return int(made.value) if isinstance(made, Literal) and is_span else None

    @staticmethod
    def literal(value: Any, kind: SqlType) -> Literal:
        """Return a constant."""
        return Literal(value, kind)

    @staticmethod
    def repeated(relation: LogicalRelation, fields: Sequence[Field], times: str) -> LogicalRelation:
        """Return each row of a relation as often as a column of it says."""
        return LogicalRepeat(tuple(fields), relation, times)

    def _expressions(self, scope: QueryScope, special: Special | None) -> ExpressionAnalysis:
        return ExpressionAnalysis(
            self.script, scope, special, own=self.catalogs.functions, database=self.catalogs.database
        )

    # --- functions of the user's own --------------------------------------------------------------------------------------

    def own_function(self, node: exp.Expr) -> SqlUserFunction | None:
        """Return the function of the user's own that a node calls, None where it calls another one or none."""
        called = node.expression if isinstance(node, exp.Dot) else node
        if not isinstance(called, exp.Anonymous | exp.AggFunc):
            return None
        name = called.name if isinstance(called, exp.Anonymous) else called.sql_name()
        return own_function(self.catalogs.functions, (*names_before(node), name))

    def own_rows(self, function: SqlUserFunction, node: exp.Expr, scope: QueryScope) -> Expression:
        """Return the call of a table function: an array of the rows that it gives; raises as `expression`."""
        expressions = self._expressions(scope, None)
        called = node.expression if isinstance(node, exp.Dot) else node
        arguments = [expressions.expression(each) for each in called.expressions]
        return expressions.own_calls.rows(function, arguments, node)

    def own_arguments(
        self, function: SqlUserFunction, arguments: Sequence[Expression], node: exp.Expr
    ) -> Sequence[Expression]:
        """Return the arguments of a function with the casts that it needs; raises as `expression`."""
        return self._expressions(QueryScope(self.script), None).own_calls.arguments(function, arguments, node)


class FieldNode(exp.Expression):
    """A column that * stands for, which is known already."""

    arg_types: ClassVar = {}

    def __init__(self, field: Field) -> None:
        super().__init__()
        self.field = field
