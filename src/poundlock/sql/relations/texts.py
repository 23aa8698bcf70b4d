"""Expressions, aggregates and windows as texts, as they could be written in a script."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal
from poundlock.sql.relations.tree import OrderKey, SqlAggregateCall, SqlWindow
from poundlock.values import format_duration

Column = Callable[[str], str]
"""Says what a column is called."""


def expression_text(expression: Expression, column: Column) -> str:
    """Return an expression as a text."""
    if isinstance(expression, ColumnRef):
        return column(expression.name)
    if isinstance(expression, Literal):
        if expression.type.root == "INTERVAL_DAY_TIME" and expression.value is not None:
            return f"INTERVAL '{_span(int(expression.value))}'"
        return "NULL" if expression.value is None else _quoted(expression.value)
    name = expression.function.removeprefix("DATETIME ")
    parts = [expression_text(each, column) for each in expression.arguments]
    if name in ("CAST", "TRY_CAST"):
        return f"{name}({parts[0]} AS {expression.type})"
    if name.startswith("IS ") and len(parts) == 1:
        return f"{parts[0]} {name}"
    if len(parts) > 1 and (name in ("AND", "OR") or not (name[0].isalpha() or name[0] == "$")):
        return "(" + f" {name} ".join(parts) + ")"
    return f"{name}({', '.join([*parts, *expression.options])})"


def _quoted(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def call_text(call: SqlAggregateCall, column: Column) -> str:
    """Return an aggregate as a text."""
    arguments = ", ".join([*map(column, call.arguments), *(repr(each) for each in call.options)]) or "*"
    chosen = "" if call.filter is None else f" FILTER (WHERE {column(call.filter)})"
    return f"{call.kind.upper()}({'DISTINCT ' if call.is_distinct else ''}{arguments}){chosen}"


def order_text(key: OrderKey, column: Column) -> str:
    """Return a column of an order as a text."""
    usual = key.nulls_first is not key.is_descending
    nulls = "" if usual else f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
    return f"{column(key.column)}{' DESC' if key.is_descending else ''}{nulls}"


def window_text(window: SqlWindow, column: Column) -> str:
    """Return a window as a text."""
    spans = [window.size] if window.kind in ("tumble", "session") else [window.step, window.size]
    parts = [column(window.time), *map(_span, spans)]
    parts += [f"offset {_span(window.offset)}"] if window.offset else []
    parts += [f"by {', '.join(map(column, window.partition))}"] if window.partition else []
    return f"{window.kind.upper()}({', '.join(parts)})"


def _span(ms: int) -> str:
    return f"{'-' if ms < 0 else ''}{format_duration(timedelta(milliseconds=abs(ms)))}"
