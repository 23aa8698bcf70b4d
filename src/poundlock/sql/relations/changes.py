"""How a relation changes: whether rows, once they came, are taken back, and which columns tell rows apart.

The rules are those of Flink's planner for streams; in batch mode every result is final, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable

from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalAssignWatermark,
    LogicalChangelogNormalize,
    LogicalDeduplicate,
    LogicalFilter,
    LogicalIntervalJoin,
    LogicalJoin,
    LogicalLookupJoin,
    LogicalMatch,
    LogicalOver,
    LogicalProject,
    LogicalRelation,
    LogicalScan,
    LogicalSort,
    LogicalTemporalJoin,
    LogicalTopN,
    LogicalUnionAll,
    LogicalValues,
    LogicalWindowAggregate,
    LogicalWindowJoin,
    LogicalWindowTopN,
    Unary,
)

Updates = Callable[[LogicalScan], bool]
"""Tells whether the rows of a table change."""


def is_updating(relation: LogicalRelation, of_table: Updates) -> bool:
    """Return whether rows of a relation are taken back or replaced later on."""
    if isinstance(relation, LogicalScan):
        return of_table(relation)
    if isinstance(
        relation,
        LogicalValues
        | LogicalWindowAggregate
        | LogicalWindowTopN
        | LogicalWindowJoin
        | LogicalIntervalJoin
        | LogicalTemporalJoin
        | LogicalMatch,
    ):
        return False
    if isinstance(relation, LogicalLookupJoin):
        return is_updating(relation.left, of_table)  # what is looked up is no stream, which could change
    if (
        isinstance(relation, LogicalTopN) and not relation.order
    ):  # of rows as they come, nothing is in the place of another
        return is_updating(relation.input, of_table)
    if isinstance(relation, LogicalAggregate | LogicalTopN | LogicalChangelogNormalize):
        return True
    if isinstance(relation, LogicalDeduplicate):
        return relation.keep == "last" or is_updating(relation.input, of_table)
    if isinstance(relation, LogicalSort):
        return is_updating(relation.input, of_table)
    if isinstance(relation, LogicalOver):
        numbered = any(call.kind in ("row_number", "rank", "dense_rank") for call in relation.calls)
        return (numbered and not _by_time(relation)) or is_updating(relation.input, of_table)
    if isinstance(relation, LogicalJoin):
        return _is_updating_join(relation, of_table)
    if isinstance(relation, LogicalUnionAll):
        return any(is_updating(each, of_table) for each in relation.parts)
    assert isinstance(relation, Unary)
    return is_updating(relation.input, of_table)


def _by_time(over: LogicalOver) -> bool:
    return bool(over.order) and over.input.field(over.order[0].column).time is not None


def _is_updating_join(join: LogicalJoin, of_table: Updates) -> bool:
    if join.kind in ("left", "right", "full", "anti"):
        return True
    return any(is_updating(each, of_table) for each in join.inputs)


def upsert_key(relation: LogicalRelation) -> tuple[str, ...] | None:
    """Return columns whose values no two rows of a relation share at a time, None where none are known; () where there is one row."""
    if isinstance(relation, LogicalAggregate | LogicalWindowAggregate | LogicalChangelogNormalize):
        return relation.keys
    if isinstance(relation, LogicalTopN):
        return None if relation.rank is None else (*relation.keys, relation.rank)
    if isinstance(relation, LogicalDeduplicate):
        return relation.keys
    if isinstance(relation, LogicalFilter | LogicalSort | LogicalAssignWatermark):
        return upsert_key(relation.input)
    if isinstance(relation, LogicalScan):
        key = relation.definition.primary_key
        there = {f.name: f.column for f in relation.fields}  # the columns that are read
        return tuple(there[name] for name in there if name in key) if key and there.keys() >= {*key} else None
    if isinstance(relation, LogicalLookupJoin):
        inner, shown = upsert_key(relation.left), {f.column for f in relation.fields}
        is_one = bool(key := relation.table.definition.primary_key) and _asked_by(relation) >= {*key}
        return inner if is_one and inner is not None and shown >= {*inner} else None
    if isinstance(relation, LogicalProject):
        inner = upsert_key(relation.input)
        if inner is None:
            return None
        called = relation.passed
        return tuple(called[each] for each in inner) if all(each in called for each in inner) else None
    return None


def _asked_by(join: LogicalLookupJoin) -> set[str]:
    """Return the columns by which a table is looked up in, as the table calls them."""
    table = join.table
    return {table.field(column).name for _, column in join.looked_up}
