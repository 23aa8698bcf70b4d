"""From a parsed expression to a tree with types: names resolved, functions and operators looked up, implicit casts written out.

Names, literals and the looking up stand here; operators, choices, containers and calls are parts with modules of their own. What is no expression of one row (aggregates, OVER, sub-queries, PROCTIME()) is the query analysis's: its hook is asked for each part first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol

from sqlglot import exp

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.coercion import BOOLEAN, INTEGERS, TEXTS
from poundlock.sql.dialect import TypedLiteral
from poundlock.sql.errors import SqlError, place_of, shown, too_deep
from poundlock.sql.expressions import literals
from poundlock.sql.expressions.calls import CallAnalysis
from poundlock.sql.expressions.choices import ChoiceAnalysis
from poundlock.sql.expressions.containers import ContainerAnalysis
from poundlock.sql.expressions.operators import OperatorAnalysis
from poundlock.sql.expressions.own_calls import OwnCalls, OwnFunctions, names_before
from poundlock.sql.expressions.tree import Expression, Literal, SqlCall
from poundlock.sql.functions.function import Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.table import FUNCTIONS
from poundlock.sql.functions.time_fields import EXTRACT_UNITS, ROUND_UNITS, SUM_UNITS, unit_in
from poundlock.sql.types import SqlType

Hook = Callable[[exp.Expr], Expression | None]
"""Returns the expression of a part that is not of one row, None of all others."""


class Scope(Protocol):
    """What names mean."""

    def resolve(self, parts: tuple[str, ...], node: exp.Expr) -> tuple[Expression, tuple[str, ...]]:
        """Return what a name means, and the parts behind it, which are fields of rows: of `t.r.a.b` the column r of t, and a, b.

        Raises:
            SqlError: there is no such column, or there are several; it has the nearest name.
        """


_UNITS: Mapping[str, frozenset[str]] = {
    "EXTRACT": EXTRACT_UNITS, "FLOOR_TO": ROUND_UNITS, "CEIL_TO": ROUND_UNITS, "TIMESTAMPADD": SUM_UNITS, "TIMESTAMPDIFF": SUM_UNITS,
}  # fmt: skip


_DEEPEST = 100
"""Levels of functions in an expression: tasks compute one within the other, and Python has room for so many, with a cast around each."""


class ExpressionAnalysis:
    """Makes trees of the expressions of a script.

    Args:
        script: the whole of it, for errors.
        hook: is asked for each part first.
        own: the functions of the user's own.
        database: the current one.
    """

    def __init__(
        self,
        script: str,
        scope: Scope,
        hook: Hook | None = None,
        functions: Mapping[str, SqlFunction] = FUNCTIONS,
        own: OwnFunctions | None = None,
        database: str = "",
    ) -> None:
        self._script = script
        self._scope = scope
        self._hook = hook
        self._depth = 0
        self.functions = functions
        self.own = own
        self.database = database
        self.own_calls = OwnCalls(self.converted, self.refuse)
        """Makes calls of functions of the user's own."""
        self._containers, self._calls = ContainerAnalysis(self), CallAnalysis(self)
        self._by_node: Mapping[type[exp.Expr], Callable[..., Expression]] = {
            exp.Column: self._column,
            exp.Dot: self._dot,
            exp.Paren: self._paren,
            exp.Literal: self._literal,
            exp.Null: lambda node: literals.null(),
            exp.Boolean: literals.truth,
            exp.HexString: self._checked(literals.byte_string),
            exp.Interval: self._checked(literals.interval),
            TypedLiteral: self._typed_literal,
            exp.Concat: self._adjacent,
            **OperatorAnalysis(self).by_node,
            **ChoiceAnalysis(self).by_node,
            **self._containers.by_node,
            **self._calls.by_node,
        }

    def expression(self, node: exp.Expr) -> Expression:
        """Return the tree of an expression.

        Raises:
            SqlError: a name, a function or a type is wrong; it says where.
        """
        if isinstance(node, exp.Paren):
            return self._made(node)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise too_deep(place_of(node, self._script), self._script)
        try:
            return self._made(node)
        finally:
            self._depth -= 1

    def _made(self, node: exp.Expr) -> Expression:
        if self._hook is not None:
            made = self._hook(node)
            if made is not None:
                return made
        analyse = self._by_node.get(type(node))
        if analyse is not None:
            return analyse(node)
        if isinstance(node, exp.AggFunc):
            self.refuse(
                node,
                f"{shown(node)}: an aggregate is not possible here",
                "write it in SELECT or HAVING",
                "illegal_aggregate",
            )
        if isinstance(node, exp.Func):
            self.unknown_function(node, node.sql_name())
        return self.refuse(
            node, f"{shown(node)} is no expression of one row", "write it as a column of a query", "unsupported_query"
        )

    def condition(self, node: exp.Expr, clause: str = "WHERE") -> Expression:
        """Return the tree of a condition.

        Raises:
            SqlError: it is none.
        """
        made = self.expression(node)
        if made.type.root == "NULL":
            return self.converted(made, BOOLEAN)
        if made.type.root != "BOOLEAN":
            self.refuse(
                node,
                f"{clause} needs a condition, and this is {made.type}",
                "compare it, such as x <> 0",
                "type_mismatch",
            )
        return made

    def call(
        self, name: str, arguments: Sequence[Expression], node: exp.Expr, options: Sequence[str] = ()
    ) -> Expression:
        """Return the call of a function of the table, with the casts that it needs.

        Raises:
            SqlError: there is no such function, or it does not take such arguments.
        """
        function = self.functions.get(name)
        if function is None:
            self.unknown_function(node, name)
        try:
            if name in _UNITS:
                options = [unit_in(options[0] if options else "", _UNITS[name])]
            if function.accepts is not None:
                wanted = function.accepts([_given(each) for each in arguments])
                arguments = [
                    each if kind is None else self.converted(each, kind)
                    for each, kind in zip(arguments, wanted, strict=True)
                ]
            kind = function.returns([_given(each) for each in arguments])
        except DefinitionError as error:
            if isinstance(error, SqlError):
                raise
            is_operator = isinstance(error, TypeMismatch)
            self.refuse(node, error.what, error.next, "type_mismatch" if is_operator else "wrong_arguments")
        return SqlCall(name, tuple(arguments), kind, tuple(options))

    def converted(self, expression: Expression, kind: SqlType) -> Expression:
        """Return an expression as one of another type, by an implicit cast where its values are others."""
        if expression.type == kind:
            return expression
        if isinstance(expression, Literal):
            literal = _literal_as(expression, kind)
            if literal is not None:
                return literal
        return SqlCall("CAST", (expression,), kind.with_null(kind.is_nullable or expression.type.is_nullable))

    # --- names ----------------------------------------------------------------------------------------------------------

    def _column(self, node: exp.Column) -> Expression:
        made, fields = self._scope.resolve(tuple(part.name for part in node.parts), node)
        for field in fields:
            made = self.field(made, field, node)
        return made

    def _dot(self, node: exp.Dot) -> Expression:
        if isinstance(node.expression, exp.Anonymous):  # a function, with its database before it
            return self._calls.named(node.expression, names_before(node))
        if not isinstance(node.expression, exp.Identifier):
            self.unknown_function(node, shown(node))
        return self.field(self.expression(node.this), node.expression.name, node)

    def field(self, row: Expression, name: str, node: exp.Expr) -> Expression:
        """Return a field of a row.

        Raises:
            SqlError: it has none of that name.
        """
        return self._containers.field(row, name, node)

    # --- literals -------------------------------------------------------------------------------------------------------

    def _checked(self, make: Callable[..., Expression]) -> Callable[..., Expression]:
        def made(node: exp.Expr) -> Expression:
            try:
                return make(node)
            except DefinitionError as error:
                self.refuse(node, error.what, error.next, "bad_literal")

        return made

    def _literal(self, node: exp.Literal) -> Expression:
        if node.is_string:
            return literals.text(node.name)
        return self._checked(lambda each: literals.number(each.name))(node)

    def _adjacent(self, node: exp.Concat) -> Expression:
        """Return texts that stand one behind the other as the one text that they are."""
        return literals.text("".join(each.name for each in node.expressions))

    def _typed_literal(self, node: TypedLiteral) -> Expression:
        kind = node.args["to"].this
        made = self._checked(lambda each: literals.time_literal(each.name, kind))(node)
        zoned = kind is exp.DType.TIMESTAMPLTZ
        if made.type.root == "TIMESTAMP" and (zoned or made.type.sizes[0] > 6):
            root: SqlType = SqlType("TIMESTAMP_LTZ" if zoned else "TIMESTAMP", made.type.sizes, is_nullable=False)
            return SqlCall("CAST", (literals.text(node.name),), root)
        return made

    def _paren(self, node: exp.Paren) -> Expression:
        return self.expression(node.this)

    # --- errors ---------------------------------------------------------------------------------------------------------

    def unknown_function(self, node: exp.Expr, name: str) -> NoReturn:
        """Raise that there is no such function, with the nearest name."""
        words = [each for each in (*self.functions, "NULLIF") if each.replace("_", "").isalnum()]
        words += [] if self.own is None else self.own.names()
        near = did_you_mean(name, words, "SHOW FUNCTIONS has those there are")
        self.refuse(node, f"there is no function {name}", near, "unknown_function")

    def refuse(self, node: exp.Expr, what: str, next: str, kind: str) -> NoReturn:
        """Raise what is wrong with a node, and where it stands."""
        raise SqlError.at(node, what, script=self._script, next=next, kind=kind)


def _given(expression: Expression) -> Given:
    if isinstance(expression, Literal):
        return Given(expression.type, is_literal=True, value=expression.value)
    return Given(expression.type)


def _literal_as(literal: Literal, kind: SqlType) -> Literal | None:
    """Return a literal as one of another type, where that is sure to have the same value."""
    source, value = literal.type, literal.value
    if value is None:
        return Literal(None, kind.with_null())
    if source.root in INTEGERS and kind.root in ("BIGINT", "INT") and -(1 << 31) <= value < 1 << 31:
        return Literal(value, kind)
    if source.root in TEXTS and kind.root == "VARCHAR" and kind.sizes[0] >= len(value):
        return Literal(value, kind)
    if source.root in INTEGERS and kind.root == "DOUBLE":
        return Literal(float(value), kind)
    return None
