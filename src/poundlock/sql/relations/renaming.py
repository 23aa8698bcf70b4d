"""A relation with other names for the columns of its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from poundlock.sql.expressions.tree import ColumnRef, SqlCall, replaced
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalRelation, MatchValue, OrderKey, SqlAggregateCall, SqlWindow

Names = Mapping[str, str]
"""What columns are called; those that are not there keep their names."""
COLUMN_ATTRIBUTES = frozenset({"keys", "bounds", "rank", "time", "times", "sets", "number", "collection", "ordinality"})
"""The attributes of relations that are columns, or tuples of them."""


def renamed(relation: LogicalRelation, names: Names, inputs: Sequence[LogicalRelation]) -> LogicalRelation:
    """Return a relation whose columns have other names.

    Args:
        inputs: in the place of its own, with those names.
    """
    instead = {id(old): new for old, new in zip(relation.inputs, inputs, strict=True)}
    made: dict[str, Any] = {}
    for each in fields(relation):
        value = vars(relation)[each.name]
        if isinstance(value, LogicalRelation):
            made[each.name] = instead[id(value)]
        elif value is relation.inputs and value:
            made[each.name] = tuple(inputs)
        elif each.name in COLUMN_ATTRIBUTES:
            made[each.name] = _column(value, names)
        else:
            made[each.name] = _part(value, names)
    return replace(relation, **made)


def with_inputs(relation: LogicalRelation, inputs: Sequence[LogicalRelation]) -> LogicalRelation:
    """Return the same relation of other inputs, which have the same columns; itself where they are its own."""
    if all(old is new for old, new in zip(relation.inputs, inputs, strict=True)):
        return relation
    return renamed(relation, {}, inputs)


def _column(value: Any, names: Names) -> Any:
    if isinstance(value, tuple):
        return tuple(_column(each, names) for each in value)
    return names.get(value, value)


def _part(value: Any, names: Names) -> Any:
    if isinstance(value, tuple):
        return tuple(_part(each, names) for each in value)
    if isinstance(value, Field | OrderKey):
        return replace(value, column=names.get(value.column, value.column))
    if isinstance(value, ColumnRef | SqlCall):
        return replaced(value, lambda part: _referred(part, names))
    if isinstance(value, SqlAggregateCall):
        return replace(
            value,
            arguments=_column(value.arguments, names),
            column=names.get(value.column, value.column),
            filter=_column(value.filter, names),
        )
    if isinstance(value, SqlWindow):
        return replace(value, time=names.get(value.time, value.time), partition=_column(value.partition, names))
    if isinstance(value, MatchValue):
        return replace(value, column=names.get(value.column, value.column), expression=_part(value.expression, names))
    return value


def _referred(part: Any, names: Names) -> Any:
    return ColumnRef(names.get(part.name, part.name), part.type) if isinstance(part, ColumnRef) else None
