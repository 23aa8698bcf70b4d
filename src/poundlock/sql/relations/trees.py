"""Relations as a tree of lines, in the form of Flink's EXPLAIN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from poundlock.sql.expressions.tree import ColumnRef, Literal, SqlCall
from poundlock.sql.relations.meanings import table_text
from poundlock.sql.relations.renaming import COLUMN_ATTRIBUTES
from poundlock.sql.relations.texts import Column, call_text, expression_text, order_text, window_text
from poundlock.sql.relations.tree import (
    LogicalProject,
    LogicalRelation,
    LogicalScan,
    LogicalValues,
    MatchValue,
    OrderKey,
    SqlAggregateCall,
    SqlWindow,
)

_NOT_SHOWN = ("fields", "input", "left", "right", "parts", "definition", "of_updates", "values")


def tree_lines(relation: LogicalRelation, note: Callable[[LogicalRelation], str | None]) -> Iterator[str]:
    """Yield a line for each relation, those that it is made of below it.

    Args:
        note: says what else stands in the line of a relation.
    """
    more = note(relation)
    parts = [*_attributes(relation), *([] if more is None else [more])]
    yield f"{type(relation).__name__}({', '.join(parts)})"
    yield from below(relation.inputs, note)


def below(relations: tuple[LogicalRelation, ...], note: Callable[[LogicalRelation], str | None]) -> Iterator[str]:
    """Yield the trees of relations, drawn below a line."""
    for place, inner in enumerate(relations):
        is_last = place == len(relations) - 1
        for number, line in enumerate(tree_lines(inner, note)):
            yield (("+- " if is_last else ":- ") if not number else "   " if is_last else ":  ") + line


def _attributes(relation: LogicalRelation) -> Iterator[str]:
    if isinstance(relation, LogicalScan):
        yield f"table=[{table_text(relation.table)}], fields=[{', '.join(f.name for f in relation.fields)}]"
        return
    if isinstance(relation, LogicalValues):
        yield f"{len(relation.rows)} rows, fields=[{', '.join(f.name for f in relation.fields)}]"
        return
    names = {f.column: f.name for inner in relation.inputs for f in inner.fields}
    names |= {f.column: f.name for f in relation.fields if f.column not in names}

    def column(name: str) -> str:
        return names.get(name, name)

    if isinstance(relation, LogicalProject):
        for field, expression in zip(relation.fields, relation.expressions, strict=True):
            yield f"{field.name}=[{expression_text(expression, column)}]"
        return
    for each in fields(relation):
        value = vars(relation)[each.name]
        if each.name in _NOT_SHOWN or value is None or value == () or value is False:
            continue
        text = _column(value, column) if each.name in COLUMN_ATTRIBUTES else _text(value, column)
        yield f"{each.name}=[{text}]"


def _column(value: Any, column: Column) -> str:
    if isinstance(value, tuple):
        return ", ".join(
            f"({_column(each, column)})" if isinstance(each, tuple) else _column(each, column) for each in value
        )
    return "-" if value is None else column(value)


def _text(value: Any, column: Column) -> str:
    if isinstance(value, tuple):
        return ", ".join(_text(each, column) for each in value)
    if isinstance(value, ColumnRef | Literal | SqlCall):
        return expression_text(value, column)
    if isinstance(value, SqlAggregateCall):
        return call_text(value, column)
    if isinstance(value, OrderKey):
        return order_text(value, column)
    if isinstance(value, SqlWindow):
        return window_text(value, column)
    return value.column if isinstance(value, MatchValue) else str(value)
