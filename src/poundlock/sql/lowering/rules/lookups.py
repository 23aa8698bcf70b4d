"""Joins with a table that is asked for the rows of keys."""

from __future__ import annotations

from poundlock.sql.lowering.lookup_rows import LookupJoinProgram
from poundlock.sql.lowering.programs import CalcProgram, CalcStep, needed_steps
from poundlock.sql.lowering.rules.calc import step_of
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.relations.tree import LogicalFilter, LogicalLookupJoin, LogicalProject
from poundlock.stream.stream import DataStream


def lookup_join(lowering: Lowering, relation: LogicalLookupJoin) -> DataStream:
    """Return the stream of rows with those of a table at the time of the clock.

    Raises:
        DefinitionError: the rows change.
        OptionError: the table cannot be asked.
    """
    lowering.no_updates(relation.left, "a lookup join")
    steps: list[CalcStep] = []
    right = relation.right
    while isinstance(right, LogicalProject | LogicalFilter):
        steps.append(step_of(right))
        right = right.input
    left_columns = {f.column for f in relation.left.fields}
    program = LookupJoinProgram(
        lowering.lookup(relation),
        relation.keys,
        tuple(left for left, _ in relation.looked_up),
        CalcProgram(needed_steps([*reversed(steps)]), lowering.context),
        tuple(f.column for f in relation.fields if f.column in left_columns),
        tuple(f.column for f in relation.fields if f.column not in left_columns),
        relation.kind == "left",
        relation.condition,
        lowering.context,
    )
    return lowering.calc(lowering.stream(relation.left), program, relation.fields, kinds=False, name="lookup-join")
