"""Statements whose steps with state are called by what they are, and have columns of their own names.

What keeps state is put between two projections: before it columns get names that follow from it alone, behind it those that the
statement has. So state, its operator's name and what that says of itself stay the same when a column is added to a projection, or another
INSERT to a statement set. Projections cost nothing: they become one step with what stands beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poundlock.sql.expressions.tree import ColumnRef
from poundlock.sql.relations.fields import ColumnNames
from poundlock.sql.relations.meanings import Meanings, digest_of
from poundlock.sql.relations.renaming import renamed, with_inputs
from poundlock.sql.relations.texts import order_text, window_text
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalAssignWatermark,
    LogicalChangelogNormalize,
    LogicalDeduplicate,
    LogicalIntervalJoin,
    LogicalJoin,
    LogicalLookupJoin,
    LogicalMatch,
    LogicalOver,
    LogicalProject,
    LogicalRelation,
    LogicalSort,
    LogicalTemporalJoin,
    LogicalTopN,
    LogicalValues,
    LogicalWindowAggregate,
    LogicalWindowTable,
    SqlAggregateCall,
    Unary,
)

_WITH_STATE = (
    LogicalAggregate,
    LogicalChangelogNormalize,
    LogicalWindowAggregate,
    LogicalTopN,
    LogicalDeduplicate,
    LogicalJoin,
    LogicalOver,
    LogicalSort,
    LogicalMatch,
)
_WITH_CALLS = (LogicalAggregate, LogicalWindowAggregate)
_LONGEST = 40  # of the part of a name that says what the keys are


@dataclass(frozen=True)
class OperatorIdentity:
    """What an operator is.

    Args:
        label: for people, as a part of its name.
        digest: tells it from others with that label; "" where the label does.
        made_of: what its state is made of, in words.
    """

    label: str
    digest: str
    made_of: Mapping[str, Any]

    def name(self, kind: str) -> str:
        """Return the name of the operator, where the label stands behind the kind."""
        return "-".join(each for each in (kind, self.label, self.digest) if each)


class StableRelations:
    """Makes the relations of a job stable. One that stands in two places stays one."""

    def __init__(self) -> None:
        self._meanings = Meanings()
        self._made: dict[int, tuple[LogicalRelation, LogicalRelation]] = {}
        self._identities: dict[int, tuple[LogicalRelation, OperatorIdentity]] = {}

    def of(self, relation: LogicalRelation) -> LogicalRelation:
        """Return the stable form of a relation, which has the same columns."""
        known = self._made.get(id(relation))
        if known is None:
            known = self._made[id(relation)] = relation, self._stable(relation)
        return known[1]

    def identity(self, relation: LogicalRelation) -> OperatorIdentity | None:
        """Return what the operator of a stable relation is, None where it needs no name."""
        known = self._identities.get(id(relation))
        return None if known is None else known[1]

    def _stable(self, relation: LogicalRelation) -> LogicalRelation:
        inputs = [self.of(each) for each in relation.inputs]
        if _keeps_state(relation):
            return self._with_state(relation, inputs)
        made = with_inputs(relation, inputs)
        if isinstance(relation, LogicalAssignWatermark):
            self._identities[id(made)] = made, OperatorIdentity(_word(self._meanings.rows(relation)), "", {})
        elif isinstance(relation, LogicalValues):
            digest = digest_of(repr(relation.rows))
            self._identities[id(made)] = made, OperatorIdentity("values", digest, {})
        return made

    def _with_state(self, relation: LogicalRelation, inputs: Sequence[LogicalRelation]) -> LogicalRelation:
        calls = self._sorted_calls(relation)
        if calls is not None:
            relation = replace(relation, calls=calls)  # type: ignore[call-arg]
        names = ColumnNames()
        local: dict[str, str] = {}
        fields = {each.column: each for inner in inputs for each in inner.fields}
        for column in (*_asked_first(relation), *fields):
            if column in fields and column not in local:
                local[column] = names.fresh(fields[column].name)
        for column, name in _own_columns(relation, local):
            if column not in local:
                local[column] = names.fresh(name)
        made = renamed(relation, local, [_projected(each, local) for each in inputs])
        self._identities[id(made)] = made, self._identity_of(relation)
        return LogicalProject(relation.fields, made, tuple(ColumnRef(local[f.column], f.type) for f in relation.fields))

    def _sorted_calls(self, relation: LogicalRelation) -> tuple[SqlAggregateCall, ...] | None:
        """Return the aggregates in an order of their own, whatever the order of the columns of the query."""
        if not isinstance(relation, _WITH_CALLS):
            return None
        inner = relation.input
        return tuple(sorted(relation.calls, key=lambda call: self._meanings.call(call, inner)))

    # --- what an operator is ----------------------------------------------------------------------------------------------

    def _identity_of(self, relation: LogicalRelation) -> OperatorIdentity:
        meanings = self._meanings
        rows = [meanings.rows(each) for each in relation.inputs]
        keys = [[meanings.key(inner, key) for key in of] for inner, of in _keys_of(relation)]
        named = [inner.field(key).name for inner, of in _keys_of(relation)[:1] for key in of]
        label = _word("-".join(named)) if named else "all"
        parts = [type(relation).__name__, *rows]
        parts += [meanings.column(inner, key) for inner, of in _keys_of(relation) for key in of]
        if isinstance(relation, LogicalJoin):
            parts.append(relation.kind)
        made_of: dict[str, Any] = {"rows": rows, "keys": [key for of in keys for key in of]}
        return OperatorIdentity(label, digest_of("\n".join(parts), 3), {**made_of, **self._more(relation)})

    def _more(self, relation: LogicalRelation) -> dict[str, Any]:
        """Return what else state is made of."""
        meanings = self._meanings
        if isinstance(relation, LogicalAggregate):
            return {"aggregates": [meanings.call(each, relation.input) for each in relation.calls]}
        if isinstance(relation, LogicalWindowAggregate):
            inner = relation.input
            return {
                "window": window_text(relation.window, lambda column: meanings.column(inner, column)),
                "aggregates": [meanings.call(each, inner) for each in relation.calls],
            }
        if isinstance(relation, LogicalWindowTable):
            of = relation.input
            session = window_text(relation.window, lambda column: meanings.column(of, column))
            return {"window": session, "columns": [meanings.key(of, f.column) for f in of.fields]}
        more: dict[str, Any] = {"columns": [meanings.key(i, f.column) for i in relation.inputs for f in i.fields]}
        if isinstance(relation, LogicalTopN | LogicalSort | LogicalOver):
            of = relation.input
            more["order"] = [order_text(each, lambda column: meanings.column(of, column)) for each in relation.order]
        if isinstance(relation, LogicalTopN):
            more["places"] = f"{relation.first} to {relation.last}"
        if isinstance(relation, LogicalOver):
            more["frame"] = str(relation.frame)
            more["aggregates"] = [meanings.call(each, relation.input) for each in relation.calls]
        if isinstance(relation, LogicalDeduplicate):
            more["order"] = "arrival" if relation.by_clock else meanings.column(relation.input, relation.time)
            more["kept row"] = relation.keep
        if isinstance(relation, LogicalMatch):
            more["pattern"] = meanings.pattern(relation)
        if isinstance(relation, LogicalJoin):
            more["join"] = relation.kind
            more["condition"] = "" if relation.condition is None else meanings.text(relation.condition, relation)
        if isinstance(relation, LogicalIntervalJoin):
            more["interval"] = f"{relation.lower} to {relation.upper} ms"
        if isinstance(relation, LogicalTemporalJoin | LogicalIntervalJoin):
            sides = zip(relation.inputs, relation.times, strict=True)
            more["time"] = " and ".join(meanings.column(inner, time) for inner, time in sides)
        return more


def _keeps_state(relation: LogicalRelation) -> bool:
    if isinstance(relation, LogicalWindowTable):
        return relation.window.kind == "session"
    return isinstance(relation, _WITH_STATE) and not isinstance(relation, LogicalLookupJoin)


def _projected(relation: LogicalRelation, names: Mapping[str, str]) -> LogicalProject:
    """Return a relation with other names for its columns, in one projection with what it is."""
    fields = tuple(replace(each, column=names[each.column]) for each in relation.fields)
    if isinstance(relation, LogicalProject):
        return LogicalProject(fields, relation.input, relation.expressions)
    return LogicalProject(fields, relation, tuple(each.ref for each in relation.fields))


def _keys_of(relation: LogicalRelation) -> list[tuple[LogicalRelation, Sequence[str]]]:
    """Return the columns of the key, of each input."""
    if isinstance(relation, LogicalJoin):
        sides = zip(*relation.keys, strict=True) if relation.keys else ((), ())
        return [(inner, [*of]) for inner, of in zip(relation.inputs, sides, strict=True)]
    if isinstance(relation, LogicalWindowTable):
        return [(relation.input, relation.window.partition)]
    assert isinstance(relation, Unary)
    return [(relation.input, () if isinstance(relation, LogicalSort) else vars(relation)["keys"])]


def _asked_first(relation: LogicalRelation) -> Iterator[str]:
    """Yield the columns of the input that are named first, in an order that what stands beside them does not change."""
    if isinstance(relation, _WITH_CALLS):
        yield from relation.keys
        for call in relation.calls:
            yield from call.arguments
            if call.filter is not None:
                yield call.filter


def _own_columns(relation: LogicalRelation, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the columns that come into being with a relation, and what they are called."""
    if isinstance(relation, (*_WITH_CALLS, LogicalOver)):
        for call in relation.calls:
            yield call.column, "_".join([call.kind, *(names[each] for each in call.arguments[:1])])
    if isinstance(relation, LogicalMatch):
        for value in relation.values:
            yield value.column, value.kind
    yield from ((each.column, each.name) for each in relation.fields)


def _word(text: str) -> str:
    """Return a text as a part of the name of an operator."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._")[:_LONGEST].strip("-._") or "x"
