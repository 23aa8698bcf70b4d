"""From a parsed expression to a tree with types: names resolved, functions and operators looked up, implicit casts written out.

What is no expression of one row (aggregates, OVER, sub-queries, PROCTIME()) is the query analysis's: its hook is asked for each part first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol

from sqlglot import exp

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.coercion import (
    BOOLEAN,
    INTEGERS,
    INTERVALS,
    NUMBERS,
    TEXTS,
    TIMESTAMPS,
    can_cast,
    common_type,
)
from poundlock.sql.dialect import TypedLiteral
from poundlock.sql.errors import SqlError, place_of, shown, too_deep
from poundlock.sql.expressions import literals
from poundlock.sql.expressions.own_calls import OwnCalls, OwnFunctions, names_before, own_function
from poundlock.sql.expressions.tree import FEW, Expression, Literal, SqlCall, bound_by
from poundlock.sql.functions.function import Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.json import check_returning
from poundlock.sql.functions.operators.comparison import aligned, compared_as, may_be_null
from poundlock.sql.functions.operators.intervals import DATETIMES
from poundlock.sql.functions.table import FUNCTIONS
from poundlock.sql.functions.time_fields import EXTRACT_UNITS, ROUND_UNITS, SUM_UNITS, unit_in
from poundlock.sql.types import SqlType, type_of

Hook = Callable[[exp.Expr], Expression | None]
"""Returns the expression of a part that is not of one row, None of all others."""


class Scope(Protocol):
    """What names mean."""

    def resolve(self, parts: tuple[str, ...], node: exp.Expr) -> tuple[Expression, tuple[str, ...]]:
        """Return what a name means, and the parts behind it, which are fields of rows: of `t.r.a.b` the column r of t, and a, b.

        Raises:
            SqlError: there is no such column, or there are several; it has the nearest name.
        """


_BINARY: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.Add: "+", exp.Sub: "-",
    exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.And: "AND", exp.Or: "OR", exp.DPipe: "||",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
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
    """

    def __init__(
        self,
        script: str,
        scope: Scope,
        hook: Hook | None = None,
        functions: Mapping[str, SqlFunction] = FUNCTIONS,
        own: OwnFunctions | None = None,
    ) -> None:
        self._script = script
        self._scope = scope
        self._hook = hook
        self._depth = 0
        self._functions = functions
        self._own = own
        self.own_calls = OwnCalls(self.converted, self._refuse)
        """Makes calls of functions of the user's own."""
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
            exp.Neg: self._negative,
            exp.Not: self._not,
            exp.Is: self._is,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Like: self._like,
            exp.SimilarTo: self._like,
            exp.Escape: self._like,
            exp.Case: self._case,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Array: self._array,
            exp.Tuple: self._array,
            exp.Bracket: self._bracket,
            exp.Anonymous: self._anonymous,
            exp.Concat: self._adjacent,
            exp.Extract: self._extract,
            exp.Floor: self._to_unit,
            exp.Ceil: self._to_unit,
            exp.Trim: self._trim,
            exp.Substring: self._substring,
            exp.StrPosition: self._position,
            exp.Overlay: self._overlay,
            exp.JSONObject: self._json_object,
            exp.JSONArray: self._json_array,
            exp.JSONValue: self._json_value,
            **dict.fromkeys(_BINARY, self._binary),
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
            self._refuse(
                node,
                f"{shown(node)}: an aggregate is not possible here",
                "write it in SELECT or HAVING",
                "illegal_aggregate",
            )
        if isinstance(node, exp.Func):
            self._unknown_function(node, node.sql_name())
        return self._refuse(
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
            self._refuse(
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
        function = self._functions.get(name)
        if function is None:
            self._unknown_function(node, name)
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
            self._refuse(node, error.what, error.next, "type_mismatch" if is_operator else "wrong_arguments")
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
            made = self._field(made, field, node)
        return made

    def _dot(self, node: exp.Dot) -> Expression:
        if isinstance(node.expression, exp.Anonymous):  # a function, with its database before it
            return self._anonymous(node.expression, names_before(node))
        if not isinstance(node.expression, exp.Identifier):
            self._unknown_function(node, shown(node))
        return self._field(self.expression(node.this), node.expression.name, node)

    def _field(self, row: Expression, name: str, node: exp.Expr) -> Expression:
        if row.type.root != "ROW":
            self._refuse(node, f"{name} is no field: {row.type} is no row", "leave it out", "unknown_column")
        if name not in row.type.names:
            near = did_you_mean(name, row.type.names, f"use one of {', '.join(row.type.names)}")
            self._refuse(node, f"there is no field {name} in the row", near, "unknown_column")
        kind = row.type.of[row.type.names.index(name)]
        return SqlCall(".field", (row,), kind.with_null(kind.is_nullable or row.type.is_nullable), (name,))

    # --- literals -------------------------------------------------------------------------------------------------------

    def _checked(self, make: Callable[..., Expression]) -> Callable[..., Expression]:
        def made(node: exp.Expr) -> Expression:
            try:
                return make(node)
            except DefinitionError as error:
                self._refuse(node, error.what, error.next, "bad_literal")

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

    # --- operators ------------------------------------------------------------------------------------------------------

    def _paren(self, node: exp.Paren) -> Expression:
        return self.expression(node.this)

    def _binary(self, node: exp.Binary) -> Expression:
        name = _BINARY[type(node)]
        if isinstance(node, exp.Connector | exp.DPipe) and len(chained := _chained(node)) > FEW:
            made = [self.expression(each) for each in chained]
            return bound_by(lambda a, b: self.call(name, (a, b), node), made)
        a, b = self.expression(node.this), self.expression(node.expression)
        if name not in ("+", "-", "*", "/"):
            return self.call(name, (a, b), node)
        a_is, b_is = a.type.root in INTERVALS, b.type.root in INTERVALS
        if name == "+" and a_is and not b_is:
            a, b, a_is, b_is = b, a, b_is, a_is
        if name == "*" and b_is:
            a, b, a_is, b_is = b, a, b_is, a_is
        if a_is:
            return self.call(f"INTERVAL {name}", (a, b), node)
        if b_is or (a.type.root in DATETIMES and name in ("+", "-")):
            return (
                self.call(f"DATETIME {name}", (a, b), node)
                if name in ("+", "-")
                else self._no_operator(node, a, name, b)
            )
        return self.call(name, (a, b), node)

    def _no_operator(self, node: exp.Expr, a: Expression, name: str, b: Expression) -> NoReturn:
        self._refuse(node, f"{a.type} {name} {b.type}: there is no such operation", "CAST one of them", "type_mismatch")

    def _negative(self, node: exp.Neg) -> Expression:
        made = self.expression(node.this)
        literal = literals.negative(made) if isinstance(made, Literal) else None
        if literal is not None:
            return literal
        return self.call("- INTERVAL" if made.type.root in INTERVALS else "- x", (made,), node)

    def _not(self, node: exp.Not) -> Expression:
        inner = node.this
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return self.call("IS NOT NULL", (self.expression(inner.this),), node)
        return self.call("NOT", (self.expression(inner),), node)

    def _is(self, node: exp.Is) -> Expression:
        value, asked = self.expression(node.this), node.expression
        if isinstance(asked, exp.Null):
            return self.call("IS NULL", (value,), node)
        if isinstance(asked, exp.Boolean):
            return self.call(f"IS {str(bool(asked.this)).upper()}", (value,), node)
        if isinstance(asked, exp.JSON):
            kind = asked.this
            return self.call("IS_JSON", (value,), node, (kind.upper(),) if isinstance(kind, str) else ())
        return self._refuse(
            node,
            f"{shown(node)}: there is no such question",
            "write IS [NOT] NULL, TRUE, FALSE, UNKNOWN or JSON",
            "syntax",
        )

    def _between(self, node: exp.Between) -> Expression:
        value, low, high = (self.expression(each) for each in (node.this, node.args["low"], node.args["high"]))

        def inside(least: Expression, most: Expression) -> Expression:
            return self.call("AND", (self.call(">=", (value, least), node), self.call("<=", (value, most), node)), node)

        made = inside(low, high)
        return self.call("OR", (made, inside(high, low)), node) if node.args.get("symmetric") else made

    def _in(self, node: exp.In) -> Expression:
        if node.args.get("query") is not None or not node.expressions:
            self._refuse(node, "a sub-query is not possible here", "write it in WHERE", "unsupported_query")
        sought, *listed = (self.expression(each) for each in (node.this, *node.expressions))
        types = [sought.type, *(each.type for each in listed)]
        common: SqlType | None = sought.type
        try:
            for each in types[1:]:
                common = compared_as("IN", common or each, each)
        except DefinitionError as error:
            self._refuse(node, error.what, error.next, "type_mismatch")
        wanted = aligned(types, common or sought.type)
        pairs = zip((sought, *listed), wanted, strict=True)
        arguments = tuple(each if kind is None else self.converted(each, kind) for each, kind in pairs)
        return SqlCall("IN", arguments, BOOLEAN.with_null(any(map(may_be_null, types))))

    def _like(self, node: exp.Expr) -> Expression:
        inner, escape = (node.this, [node.expression]) if isinstance(node, exp.Escape) else (node, [])
        name = "LIKE" if isinstance(inner, exp.Like) else "SIMILAR_TO"
        made = self.call(name, [self.expression(each) for each in (inner.this, inner.expression, *escape)], node)
        return self.call("NOT", (made,), node) if inner.args.get("negate") else made

    # --- choices and casts ----------------------------------------------------------------------------------------------

    def _case(self, node: exp.Case) -> Expression:
        conditions, values = [], []
        for branch in node.args["ifs"]:
            if node.this is None:
                conditions.append(self.condition(branch.this, "WHEN"))
            else:
                conditions.append(self.call("=", (self.expression(node.this), self.expression(branch.this)), branch))
            values.append(self.expression(branch.args["true"]))
        otherwise = node.args.get("default")
        values.append(literals.null() if otherwise is None else self.expression(otherwise))
        return self._chosen(conditions, values, node, "CASE")

    def _chosen(
        self, conditions: Sequence[Expression], values: Sequence[Expression], node: exp.Expr, what: str
    ) -> Expression:
        common = common_type((each.type for each in values), to_text=True)
        if common is None or common.root == "NULL":
            types = ", ".join(str(each.type) for each in values)
            self._refuse(
                node,
                f"{what} of ({types}): these types have none in common",
                "CAST the values to one type",
                "type_mismatch",
            )
        *chosen, otherwise = (self.converted(each, common.with_null(each.type.is_nullable)) for each in values)
        branches = tuple(each for pair in zip(conditions, chosen, strict=True) for each in pair)
        return SqlCall("CASE", (*branches, otherwise), common)

    def _cast(self, node: exp.Cast) -> Expression:
        value = self.expression(node.this)
        try:
            kind = type_of(node.args["to"])
        except DefinitionError as error:
            self._refuse(node, error.what, error.next, "unknown_type")
        if not can_cast(value.type, kind):
            between = {value.type.root, kind.root}
            is_time = between & set(TIMESTAMPS) and between & set(NUMBERS)
            how = (
                "use TO_TIMESTAMP_LTZ(number, 0 or 3), or UNIX_TIMESTAMP(text)"
                if is_time
                else "CAST to STRING, and that to the type"
            )
            self._refuse(node, f"{value.type} cannot be CAST to {kind}", how, "type_mismatch")
        is_try = isinstance(node, exp.TryCast)
        if isinstance(value, Literal) and value.value is None:
            return Literal(None, kind.with_null())
        return SqlCall("TRY_CAST" if is_try else "CAST", (value,), kind.with_null(is_try or value.type.is_nullable))

    # --- rows, arrays, maps ---------------------------------------------------------------------------------------------

    def _array(self, node: exp.Expr) -> Expression:
        return self.call(
            "ARRAY" if isinstance(node, exp.Array) else "ROW",
            [self.expression(each) for each in node.expressions],
            node,
        )

    def _bracket(self, node: exp.Bracket) -> Expression:
        name, of = node.this, [self.expression(each) for each in node.expressions]
        if isinstance(name, exp.Column) and not name.table and not name.this.quoted and name.name.upper() == "MAP":
            return self.call("MAP", of, node)
        if len(of) != 1:
            self._refuse(
                node, f"{len(of)} places of one element", "write one number or key between [ and ]", "wrong_arguments"
            )
        container = self.expression(name)
        if container.type.root == "ROW" and isinstance(of[0], Literal) and of[0].type.root in (*INTEGERS, *TEXTS):
            place = of[0].value
            names = container.type.names
            field = place if isinstance(place, str) else names[place - 1] if 1 <= place <= len(names) else str(place)
            return self._field(container, field, node)
        return self.call("[]", (container, of[0]), node)

    # --- functions ------------------------------------------------------------------------------------------------------

    def _anonymous(self, node: exp.Anonymous, before: tuple[str, ...] = ()) -> Expression:
        own = own_function(self._own, (*before, node.name))
        if own is not None:
            return self.own_calls.value(own, [self.expression(each) for each in node.expressions], node)
        if before:
            self._unknown_function(node, ".".join((*before, node.name)))
        name = node.name.upper()
        if name not in self._functions and name != "NULLIF" and name != "TYPEOF":
            self._unknown_function(node, name)
        options = [each.name.upper() for each in node.expressions if isinstance(each, exp.Var)]
        declared = [each for each in node.expressions if isinstance(each, exp.DataType)]
        arguments = [self.expression(each) for each in node.expressions if not isinstance(each, exp.Var | exp.DataType)]
        if name == "NULLIF":
            return self._null_if(arguments, node)
        if name == "TYPEOF" and arguments:
            return literals.text(f"{arguments[0].type}{'' if arguments[0].type.is_nullable else ' NOT NULL'}")
        return self._returning(self.call(name, arguments, node, options), declared[0] if declared else None, node)

    def _null_if(self, arguments: Sequence[Expression], node: exp.Expr) -> Expression:
        if len(arguments) != 2:
            self._refuse(node, f"NULLIF with {len(arguments)} arguments", "write NULLIF(x, y)", "wrong_arguments")
        value = arguments[0]
        same = self.call("=", arguments, node)
        return SqlCall("CASE", (same, Literal(None, value.type.with_null()), value), value.type.with_null())

    def _extract(self, node: exp.Extract) -> Expression:
        return self.call("EXTRACT", (self.expression(node.expression),), node, (node.this.name.upper(),))

    def _to_unit(self, node: exp.Expr) -> Expression:
        name, unit = "FLOOR" if isinstance(node, exp.Floor) else "CEIL", node.args.get("to")
        if unit is not None:
            return self.call(f"{name}_TO", (self.expression(node.this),), node, (unit.name.upper(),))
        return self.call(name, self._present(node.this, node.args.get("decimals")), node)

    def _trim(self, node: exp.Trim) -> Expression:
        position = node.args.get("position")
        arguments = self._present(node.this, node.expression)
        return self.call("TRIM", arguments, node, (str(position).upper(),) if position else ())

    def _substring(self, node: exp.Substring) -> Expression:
        return self.call("SUBSTRING", self._present(node.this, node.args.get("start"), node.args.get("length")), node)

    def _position(self, node: exp.StrPosition) -> Expression:
        return self.call("POSITION", self._present(node.args.get("substr"), node.this, node.args.get("position")), node)

    def _overlay(self, node: exp.Overlay) -> Expression:
        parts = (node.this, node.expression, node.args.get("from_"), node.args.get("for_"))
        return self.call("OVERLAY", self._present(*parts), node)

    def _present(self, *nodes: exp.Expr | None) -> list[Expression]:
        return [self.expression(each) for each in nodes if each is not None]

    # --- JSON ----------------------------------------------------------------------------------------------------------

    def _json_object(self, node: exp.JSONObject) -> Expression:
        pairs = [part for each in node.expressions for part in (each.this, each.expression)]
        handling = str(node.args.get("null_handling") or "NULL ON NULL").upper()
        return self._json_made("JSON_OBJECT", pairs, node, handling)

    def _json_array(self, node: exp.JSONArray) -> Expression:
        handling = node.args.get("null_handling")
        return self._json_made("JSON_ARRAY", node.expressions, node, handling.name if handling else "ABSENT ON NULL")

    def _json_made(self, name: str, parts: Sequence[exp.Expr], node: exp.Expr, handling: str) -> Expression:
        """Return the call of what makes JSON: parts that are JSON themselves are put in as they are, not as texts."""
        inner = [isinstance(each, exp.JSONObject | exp.JSONArray) or _calls(each, "JSON") for each in parts]
        raw = [f"RAW {number}" for number, is_raw in enumerate(inner) if is_raw]
        return self.call(name, self._present(*parts), node, (handling, *raw))

    def _json_value(self, node: exp.JSONValue) -> Expression:
        arguments, options = self._present(node.this, node.args["path"]), []
        condition = node.args.get("on_condition")
        for when in ("empty", "error"):
            do = condition.args.get(when) if condition is not None else None
            if isinstance(do, exp.Expr):
                arguments.append(self.expression(do))
                options.append(f"DEFAULT ON {when.upper()}")
            elif do:
                options.append(str(do).upper())
        return self._returning(self.call("JSON_VALUE", arguments, node, options), node.args.get("returning"), node)

    def _returning(self, call: Expression, declared: exp.Expr | None, node: exp.Expr) -> Expression:
        """Return a call with the type that stands behind RETURNING."""
        if not isinstance(declared, exp.DataType) or not isinstance(call, SqlCall):
            return call
        try:
            kind = type_of(declared)
            check_returning(call.function, kind)
        except DefinitionError as error:
            self._refuse(node, error.what, error.next, "wrong_arguments")
        return replace(call, type=kind.with_null())

    # --- errors ---------------------------------------------------------------------------------------------------------

    def _unknown_function(self, node: exp.Expr, name: str) -> NoReturn:
        words = [each for each in (*self._functions, "NULLIF") if each.replace("_", "").isalnum()]
        words += [] if self._own is None else self._own.names()
        near = did_you_mean(name, words, "SHOW FUNCTIONS has those there are")
        self._refuse(node, f"there is no function {name}", near, "unknown_function")

    def _refuse(self, node: exp.Expr, what: str, next: str, kind: str) -> NoReturn:
        raise SqlError.at(node, what, script=self._script, next=next, kind=kind)


def condition(analysis: ExpressionAnalysis, node: exp.Expr, clause: str = "WHERE") -> Expression:
    """Return the tree of a condition; see ExpressionAnalysis.condition."""
    return analysis.condition(node, clause)


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


def _calls(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == name


def _chained(node: exp.Binary) -> list[exp.Expr]:
    """Return what a chain of one operator binds, in its order."""
    parts: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node):
        parts.append(left.expression)
        left = left.this
    return [left, *reversed(parts)]
