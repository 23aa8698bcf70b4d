"""Lookup joins of rows that change: what was looked up is kept with its row, so that just what came out is taken back.

Asking the table again would not do: it may have other rows by then, and what came out before would stay for ever. So a row's key has the
row and what was looked up for it in state: a row that is deleted or replaced is taken back as it came out, and nothing is looked up for it.
Rows without a key are counted, and each different one is a row of that key; a row whose number changes is looked up once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poundlock.errors import DefinitionError
from poundlock.sql.expressions.tree import columns_of
from poundlock.sql.relations.changes import Updates, is_updating, upsert_key
from poundlock.sql.relations.fields import ColumnNames, Field
from poundlock.sql.relations.renaming import with_inputs
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalChangelogNormalize,
    LogicalFilter,
    LogicalLookupJoin,
    LogicalProject,
    LogicalRelation,
    LogicalRepeat,
    LogicalUnnest,
    SqlAggregateCall,
)
from poundlock.sql.types import SqlType

_COLLECTED, _COUNT = "$looked_up", "$rows"
_NUMBER = SqlType("BIGINT", is_nullable=False)


@dataclass(frozen=True, eq=False)
class LogicalLookupRows(LogicalLookupJoin):
    """Each row that is added, with all rows that a table has for its keys in one column; rows that are taken away, without any.

    Args:
        collected: the columns of the right side that are kept, in the order of the fields of that column.
        replaced_by: the columns of the left side by which a row replaces the one before it.
    """

    collected: tuple[str, ...] = ()
    replaced_by: tuple[str, ...] = ()


class KeptLookups:
    """Has lookup joins keep what they looked up where their rows change. A relation that stands in two places stays one.

    Args:
        of_table: tells whether the rows of a table change.
    """

    def __init__(self, of_table: Updates) -> None:
        self._of_table = of_table
        self._made: dict[int, tuple[LogicalRelation, LogicalRelation]] = {}

    def of(self, relation: LogicalRelation) -> LogicalRelation:
        """Return a relation with the same columns and rows.

        Raises:
            DefinitionError: the clock of rows that change, and have no key, is asked for.
        """
        known = self._made.get(id(relation))
        if known is None:
            whole = _without_unread_clock(relation) if isinstance(relation, LogicalProject) else relation
            made = with_inputs(whole, [self.of(each) for each in whole.inputs])
            if isinstance(made, LogicalLookupJoin) and is_updating(made.left, self._of_table):
                made = _kept(made)
            known = self._made[id(relation)] = relation, made
        return known[1]


def _without_unread_clock(project: LogicalProject) -> LogicalProject:
    """Return a projection of a lookup join without the time of the clock, where it is not read: it is another one for each row."""
    filters, join = [], project.input
    while isinstance(join, LogicalFilter):
        filters.append(join)
        join = join.input
    if not isinstance(join, LogicalLookupJoin):
        return project
    expressions = (*project.expressions, *(each.condition for each in filters))
    read = {column for each in expressions for column in columns_of(each)}
    fields = tuple(each for each in join.fields if each.time != "proctime" or each.column in read)
    if len(fields) == len(join.fields):
        return project
    made: LogicalRelation = replace(join, fields=fields)
    for each in reversed(filters):
        made = LogicalFilter(fields, made, each.condition)
    return replace(project, input=made)


def _kept(join: LogicalLookupJoin) -> LogicalRelation:
    """Return a lookup join of rows that change as what keeps the rows that were looked up."""
    key = upsert_key(join.left)
    left, times = (join.left, None) if key is not None else _counted(join)
    right = {each.column: each for each in join.right.fields}
    wanted = [each for each in join.fields if each.column in right] or [right[join.keys[0][1]]]
    names = ColumnNames()
    row = SqlType("ROW", of=tuple(f.type for f in wanted), names=tuple(names.fresh(f.name) for f in wanted))
    matched = Field(_COLLECTED, _COLLECTED, SqlType("ARRAY", of=(row,)))
    keys = key if key is not None else tuple(each.column for each in left.fields if each.column != times)
    asked = LogicalLookupRows(
        (*left.fields, matched),
        join.kind,
        left,
        join.right,
        join.keys,
        join.condition,
        looked_up=join.looked_up,
        collected=tuple(each.column for each in wanted),
        replaced_by=keys,
    )
    whole = LogicalChangelogNormalize(asked.fields, asked, keys)
    own = tuple(replace(each, type=replace(each.type, is_nullable=True)) for each in wanted)
    made: LogicalRelation = LogicalUnnest((*left.fields, *own), whole, matched.column, is_outer=join.kind == "left")
    if times is not None:
        made = LogicalRepeat(tuple(each for each in made.fields if each.column != times), made, times)
    return LogicalProject(join.fields, made, tuple(each.ref for each in join.fields))


def _counted(join: LogicalLookupJoin) -> tuple[LogicalRelation, str]:
    """Return the different rows of the left side with how often there is each, and the column of that number.

    Raises:
        DefinitionError: their clock is asked for.
    """
    shown = {each.column for each in join.fields}
    clock = next((each for each in join.left.fields if each.time == "proctime" and each.column in shown), None)
    if clock is not None:
        raise DefinitionError(
            f"a lookup join that gives {clock.name}, the time of the clock, of rows that change and have no key: "
            "another time is taken back than came out",
            next=f"leave {clock.name} out of SELECT, or GROUP BY a key before the join",
        )
    kept = tuple(each.plain() for each in join.left.fields if each.time != "proctime")
    call = SqlAggregateCall("count", (), _COUNT, _NUMBER)
    fields = (*kept, Field(_COUNT, _COUNT, _NUMBER))
    return LogicalAggregate(fields, join.left, tuple(each.column for each in kept), (call,)), _COUNT
