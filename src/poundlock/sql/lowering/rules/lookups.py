"""Joins with a table that is asked for the rows of keys."""

from __future__ import annotations

from poundlock.sql.lowering.lookup_changes import LookupRowsProgram
from poundlock.sql.lowering.lookup_rows import LookupJoinProgram
from poundlock.sql.lowering.programs import CalcProgram, CalcStep, needed_steps
from poundlock.sql.lowering.rules.calc import step_of
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.relations.lookups import LogicalLookupRows
from poundlock.sql.relations.tree import LogicalFilter, LogicalLookupJoin, LogicalProject
from poundlock.stream.stream import DataStream


def lookup_join(lowering: Lowering, relation: LogicalLookupJoin) -> DataStream:
    """Return the stream of rows with those of a table at the time of the clock.

    Raises:
        OptionError: the table cannot be asked.
    """
    left_columns = {f.column for f in relation.left.fields}
    shown = [f.column for f in relation.fields]
    left = tuple(column for column in shown if column in left_columns)
    right = tuple(column for column in shown if column not in left_columns)
    program = _program(lowering, relation, left, right, is_outer=relation.kind == "left")
    return lowering.calc(lowering.stream(relation.left), program, relation.fields, kinds=False, name="lookup-join")


def lookup_rows(lowering: Lowering, relation: LogicalLookupRows) -> DataStream:
    """Return the stream of changes with the rows that a table has for those that are added; raises as `lookup_join`."""
    names = tuple(f.column for f in relation.left.fields)
    matched = relation.fields[-1]
    pairs = _program(lowering, relation, (), relation.collected, is_outer=False)
    program = LookupRowsProgram(pairs, names, matched.column, matched.type.arrow, relation.replaced_by)
    return lowering.calc(lowering.stream(relation.left), program, relation.fields, kinds=True, name="lookup-join")


def _program(
    lowering: Lowering, relation: LogicalLookupJoin, left: tuple[str, ...], right: tuple[str, ...], *, is_outer: bool
) -> LookupJoinProgram:
    """Return what joins rows with those of a table; `left` and `right` are the columns that come out."""
    steps: list[CalcStep] = []
    of = relation.right
    while isinstance(of, LogicalProject | LogicalFilter):
        steps.append(step_of(of))
        of = of.input
    return LookupJoinProgram(
        lowering.lookup(relation),
        relation.keys,
        tuple(column for column, _ in relation.looked_up),
        CalcProgram(needed_steps([*reversed(steps)]), lowering.context),
        left,
        right,
        is_outer,
        relation.condition,
        lowering.context,
    )
