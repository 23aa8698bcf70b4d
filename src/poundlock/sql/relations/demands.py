"""What queries want of the tables that they read: which rows, and how many. Connectors may leave out the rest.

Nothing is taken out of the query for it: a condition is computed once more behind a table that knew it already. Columns that nobody
reads have been left out before, by `pruning`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poundlock.sql.expressions.tree import ColumnRef, Expression, SqlCall, replaced
from poundlock.sql.relations.tree import (
    LogicalFilter,
    LogicalProject,
    LogicalRelation,
    LogicalScan,
    LogicalTopN,
)


@dataclass(frozen=True, slots=True)
class ScanDemand:
    """What is wanted of a table.

    Args:
        conditions: that all wanted rows meet.
        limit: rows that will do, whichever they are; None for all.
    """

    conditions: tuple[Expression, ...] = ()
    limit: int | None = None


def demands_of(relations: Sequence[LogicalRelation]) -> Mapping[int, ScanDemand]:
    """Return what is wanted of each scan below the relations of one job, by its identity."""
    walk = _Walk(relations)
    for each in relations:
        walk.visit(each, ScanDemand())
    return walk.demands


class _Walk:
    def __init__(self, relations: Sequence[LogicalRelation]) -> None:
        self.demands: dict[int, ScanDemand] = {}
        self._parents: Counter[int] = Counter()
        self._seen: set[int] = set()
        for each in relations:
            self._count(each)

    def _count(self, relation: LogicalRelation) -> None:
        self._parents[id(relation)] += 1
        if self._parents[id(relation)] == 1:
            for each in relation.inputs:
                self._count(each)

    def visit(self, relation: LogicalRelation, demand: ScanDemand) -> None:
        if isinstance(relation, LogicalScan):
            known = self.demands.get(id(relation))
            self.demands[id(relation)] = demand if known is None else _of_both(known, demand)
            return
        if self._parents[id(relation)] > 1:  # what others want of it is not known here
            demand = ScanDemand()
        if id(relation) in self._seen:
            return
        self._seen.add(id(relation))
        for each, wanted in zip(relation.inputs, self._of_inputs(relation, demand), strict=True):
            self.visit(each, wanted)

    @staticmethod
    def _of_inputs(relation: LogicalRelation, demand: ScanDemand) -> Sequence[ScanDemand]:
        if isinstance(relation, LogicalFilter):
            return [ScanDemand((*demand.conditions, *_conjuncts(relation.condition)))]
        if isinstance(relation, LogicalProject):
            given = {f.column: each for f, each in zip(relation.fields, relation.expressions, strict=True)}
            conditions = tuple(replaced(each, lambda part: _instead(part, given)) for each in demand.conditions)
            return [ScanDemand(conditions, demand.limit)]
        if isinstance(relation, LogicalTopN) and not relation.order and not relation.keys:
            return [ScanDemand(limit=relation.last)]
        return [ScanDemand() for _ in relation.inputs]


def _instead(part: Expression, given: Mapping[str, Expression]) -> Expression | None:
    return given[part.name] if isinstance(part, ColumnRef) else None


def _conjuncts(condition: Expression) -> tuple[Expression, ...]:
    if isinstance(condition, SqlCall) and condition.function == "AND":
        return tuple(each for part in condition.arguments for each in _conjuncts(part))
    return (condition,)


def _of_both(one: ScanDemand, other: ScanDemand) -> ScanDemand:
    """Return what serves two readers of a table, which is read once for both."""
    return ScanDemand(tuple(each for each in one.conditions if each in other.conditions))
