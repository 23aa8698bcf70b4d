"""Functions as calls: those that are called by their names, and those with a syntax of their own, such as EXTRACT and JSON_VALUE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.expressions import literals
from poundlock.sql.expressions.own_calls import own_function
from poundlock.sql.expressions.part import Handlers, WholeAnalysis
from poundlock.sql.expressions.tree import Expression, Literal, SqlCall
from poundlock.sql.functions.json import check_returning
from poundlock.sql.types import type_of


class CallAnalysis:
    """Makes calls of functions."""

    def __init__(self, of: WholeAnalysis) -> None:
        self._of = of
        self.by_node: Handlers = {
            exp.Anonymous: self.named,
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
        }

    def named(self, node: exp.Anonymous, before: tuple[str, ...] = ()) -> Expression:
        """Return the call of a function by its name; `before` are the names of its catalog and database."""
        own = own_function(self._of.own, (*before, node.name))
        if own is not None:
            return self._of.own_calls.value(own, [self._of.expression(each) for each in node.expressions], node)
        if before:
            self._of.unknown_function(node, ".".join((*before, node.name)))
        name = node.name.upper()
        if name == "CURRENT_DATABASE" and not node.expressions:
            return literals.text(self._of.database)
        if name not in self._of.functions and name != "NULLIF" and name != "TYPEOF":
            self._of.unknown_function(node, name)
        options = [each.name.upper() for each in node.expressions if isinstance(each, exp.Var)]
        declared = [each for each in node.expressions if isinstance(each, exp.DataType)]
        arguments = [
            self._of.expression(each) for each in node.expressions if not isinstance(each, exp.Var | exp.DataType)
        ]
        if name == "NULLIF":
            return self._null_if(arguments, node)
        if name == "TYPEOF" and arguments:
            return literals.text(f"{arguments[0].type}{'' if arguments[0].type.is_nullable else ' NOT NULL'}")
        return self._returning(self._of.call(name, arguments, node, options), declared[0] if declared else None, node)

    def _null_if(self, arguments: Sequence[Expression], node: exp.Expr) -> Expression:
        if len(arguments) != 2:
            self._of.refuse(node, f"NULLIF with {len(arguments)} arguments", "write NULLIF(x, y)", "wrong_arguments")
        value = arguments[0]
        same = self._of.call("=", arguments, node)
        return SqlCall("CASE", (same, Literal(None, value.type.with_null()), value), value.type.with_null())

    def _extract(self, node: exp.Extract) -> Expression:
        return self._of.call("EXTRACT", (self._of.expression(node.expression),), node, (node.this.name.upper(),))

    def _to_unit(self, node: exp.Expr) -> Expression:
        name, unit = "FLOOR" if isinstance(node, exp.Floor) else "CEIL", node.args.get("to")
        if unit is not None:
            return self._of.call(f"{name}_TO", (self._of.expression(node.this),), node, (unit.name.upper(),))
        return self._of.call(name, self._present(node.this, node.args.get("decimals")), node)

    def _trim(self, node: exp.Trim) -> Expression:
        position = node.args.get("position")
        arguments = self._present(node.this, node.expression)
        return self._of.call("TRIM", arguments, node, (str(position).upper(),) if position else ())

    def _substring(self, node: exp.Substring) -> Expression:
        return self._of.call(
            "SUBSTRING", self._present(node.this, node.args.get("start"), node.args.get("length")), node
        )

    def _position(self, node: exp.StrPosition) -> Expression:
        return self._of.call(
            "POSITION", self._present(node.args.get("substr"), node.this, node.args.get("position")), node
        )

    def _overlay(self, node: exp.Overlay) -> Expression:
        parts = (node.this, node.expression, node.args.get("from_"), node.args.get("for_"))
        return self._of.call("OVERLAY", self._present(*parts), node)

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
        return self._of.call(name, self._present(*parts), node, (handling, *raw))

    def _json_value(self, node: exp.JSONValue) -> Expression:
        arguments, options = self._present(node.this, node.args["path"]), []
        condition = node.args.get("on_condition")
        for when in ("empty", "error"):
            do = condition.args.get(when) if condition is not None else None
            if isinstance(do, exp.Expr):
                arguments.append(self._of.expression(do))
                options.append(f"DEFAULT ON {when.upper()}")
            elif do:
                options.append(str(do).upper())
        return self._returning(self._of.call("JSON_VALUE", arguments, node, options), node.args.get("returning"), node)

    def _returning(self, call: Expression, declared: exp.Expr | None, node: exp.Expr) -> Expression:
        """Return a call with the type that stands behind RETURNING."""
        if not isinstance(declared, exp.DataType) or not isinstance(call, SqlCall):
            return call
        try:
            kind = type_of(declared)
            check_returning(call.function, kind)
        except DefinitionError as error:
            self._of.refuse(node, error.what, error.next, "wrong_arguments")
        return replace(call, type=kind.with_null())

    def _present(self, *nodes: exp.Expr | None) -> list[Expression]:
        return [self._of.expression(each) for each in nodes if each is not None]


def _calls(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == name
