"""How long joins and aggregates keep what comes from one table, where a query says so for that table (the hint STATE_TTL)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from poundlock.sql.relations.renaming import with_inputs
from poundlock.sql.relations.tree import LogicalAggregate, LogicalFilter, LogicalJoin, LogicalProject, LogicalRelation

__all__ = ["StateTtl"]


class StateTtl:
    """The times to live that one query gives.

    Args:
        spans: of what stands in FROM, by name, ms; 0 = for ever.
        owners: what in FROM each column is of. Columns have other names outside of the query, and in what stands in FROM.
    """

    def __init__(self, spans: Mapping[str, int], owners: Mapping[str, str]) -> None:
        self._spans, self._owners = spans, owners
        self._made: dict[int, tuple[LogicalRelation, LogicalRelation]] = {}
        self._used: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """The names whose time to live nothing has by now."""
        return sorted(self._spans.keys() - self._used)

    def given_to(self, relation: LogicalRelation) -> LogicalRelation:
        """Return a relation with them: those of the sides of its regular joins, and of what its aggregates are of."""
        known = self._made.get(id(relation))
        if known is None:
            known = self._made[id(relation)] = relation, self._given_to(relation)
        return known[1]

    def _given_to(self, relation: LogicalRelation) -> LogicalRelation:
        made = with_inputs(relation, [self.given_to(each) for each in relation.inputs])
        if isinstance(made, LogicalAggregate):
            span = self._span(made.input)
            return made if span is None else replace(made, state_ttl=span)
        if type(made) is LogicalJoin:
            sides = self._span(made.left), self._span(made.right)
            return made if sides == (None, None) else replace(made, state_ttl=sides)
        return made

    def _span(self, relation: LogicalRelation) -> int | None:
        """Return what is given for the rows of a relation, None where they are of several or of none."""
        names = self._names(relation)
        while isinstance(relation, LogicalProject | LogicalFilter):  # a projection may have left columns out
            relation = relation.input
            names |= self._names(relation)
        if len(names) != 1 or not names <= self._spans.keys():
            return None
        self._used |= names
        return self._spans[names.pop()]

    def _names(self, relation: LogicalRelation) -> set[str]:
        return {self._owners[each.column] for each in relation.fields if each.column in self._owners}
