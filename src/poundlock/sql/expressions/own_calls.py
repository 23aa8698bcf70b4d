"""Calls of functions of the user's own: which one a name calls, whether it takes such arguments, and with which casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.coercion import common_type
from poundlock.sql.expressions.tree import Expression, UserCall
from poundlock.sql.functions.table import FUNCTIONS
from poundlock.sql.types import SqlType
from poundlock.sql.user.function import SqlUserFunction, check_arguments, signature_of

_OTHERS = ("NULLIF", "TYPEOF", "LISTAGG", "COLLECT", "SINGLE_VALUE", "VARIANCE", "STDDEV")
"""What is called like a function of the table of functions, and is not in it."""


class OwnFunctions(Protocol):
    """The functions of the user's own, by name."""

    def of_system(self, name: str) -> SqlUserFunction | None:
        """Return the one that stands before SQL's of the same name, None where there is none."""

    def find(self, name: Sequence[str]) -> SqlUserFunction | None:
        """Return the one of a database, None where there is none."""

    def names(self) -> list[str]:
        """Return the names of those that can be called by them alone."""


def own_function(own: OwnFunctions | None, name: Sequence[str]) -> SqlUserFunction | None:
    """Return the function of the user's own that a name calls, None where it calls one of SQL's or none."""
    if own is None:
        return None
    if len(name) == 1:
        known = own.of_system(name[0])
        if known is not None or name[0].upper() in FUNCTIONS or name[0].upper() in _OTHERS:
            return known
    return own.find(name)


def names_before(node: exp.Expr) -> tuple[str, ...]:
    """Return the names that stand before the dots of a call, none of a call without."""
    if isinstance(node, exp.Dot):
        return (*_names_in(node.this), *names_before(node.expression))
    return ()


def _names_in(node: exp.Expr) -> tuple[str, ...]:
    if isinstance(node, exp.Dot):
        return (*_names_in(node.this), *_names_in(node.expression))
    return tuple(each.name for each in node.parts) if isinstance(node, exp.Column) else (node.name,)


class OwnCalls:
    """Makes calls.

    Args:
        converted: returns an expression as one of another type.
        refuse: raises the error of a part of the script: what is wrong, what to write, and the kind of error.
    """

    def __init__(
        self,
        converted: Callable[[Expression, SqlType], Expression],
        refuse: Callable[[exp.Expr, str, str, str], NoReturn],
    ) -> None:
        self._converted, self._refuse = converted, refuse

    def value(self, function: SqlUserFunction, arguments: Sequence[Expression], node: exp.Expr) -> Expression:
        """Return the call of a function that gives a value for a row.

        Raises:
            SqlError: it gives none, or does not take such arguments.
        """
        self._no_aggregate(function, node)
        if function.kind == "table":
            self._refuse(
                node,
                f"{function.name} gives rows, and no value",
                f"write LATERAL TABLE({function.name}(…)) in FROM",
                "unsupported_query",
            )
        return self._call(function, arguments, node, function.result)

    def rows(self, function: SqlUserFunction, arguments: Sequence[Expression], node: exp.Expr) -> Expression:
        """Return the call of a table function as the array of the rows that it gives; raises as `value`."""
        self._no_aggregate(function, node)
        if function.kind == "scalar":
            self._refuse(
                node,
                f"{function.name} gives a value, and no rows",
                f"write {function.name}(…) in SELECT or WHERE, or declare it with @udtf",
                "unsupported_query",
            )
        return self._call(function, arguments, node, SqlType("ARRAY", of=(function.result,)))

    def arguments(
        self, function: SqlUserFunction, arguments: Sequence[Expression], node: exp.Expr
    ) -> Sequence[Expression]:
        """Return the arguments of a function with the casts that it needs.

        Raises:
            SqlError: it does not take them.
        """
        types = [each.type for each in arguments]
        try:
            check_arguments(function, types)
        except DefinitionError as error:
            self._refuse(node, error.what, error.next, "wrong_arguments")
        if function.arguments is None:
            return arguments
        if not all(map(_takes, function.arguments, types)):
            shown = ", ".join(map(str, types))
            self._refuse(
                node, f"{function.name} does not take ({shown})", f"write {signature_of(function)}", "wrong_arguments"
            )
        return [
            self._converted(each, wanted.with_null(each.type.is_nullable))
            for each, wanted in zip(arguments, function.arguments, strict=True)
        ]

    def _call(
        self, function: SqlUserFunction, arguments: Sequence[Expression], node: exp.Expr, result: SqlType
    ) -> Expression:
        converted = tuple(self.arguments(function, arguments, node))
        if function.is_by_columns and not converted:
            self._refuse(
                node,
                f"{function.name} is computed by columns, and is given none",
                'give it an argument, or declare it without func_type="arrow"',
                "wrong_arguments",
            )
        return UserCall(function.path, converted, result, user=function)

    def _no_aggregate(self, function: SqlUserFunction, node: exp.Expr) -> None:
        if function.kind == "aggregate":
            self._refuse(
                node,
                f"{function.name}: an aggregate is not possible here",
                "write it in SELECT or HAVING",
                "illegal_aggregate",
            )


def _takes(wanted: SqlType, given: SqlType) -> bool:
    """Return whether a value is of a type, or becomes one of it without losing what it is."""
    if given.root == "NULL":
        return wanted.is_nullable
    shared = common_type((given.with_null(), wanted.with_null()))
    return shared is not None and shared.root == wanted.root
