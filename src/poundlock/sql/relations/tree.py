"""The relations that a query is made of. Frozen, compared by identity: one that stands in two places is computed once.

Keys, arguments of aggregates and the columns of an order are columns here: what has to be computed for them is a projection before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.sql.catalog import FullName
from poundlock.sql.errors import SqlError
from poundlock.sql.expressions.tree import ColumnRef, Expression
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import SqlType
from poundlock.sql.user.function import SqlUserFunction
from poundlock.stream.matching import AfterMatch, PatternVariable

WindowKind = Literal["tumble", "hop", "cumulate", "session"]
JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, eq=False)
class LogicalRelation:
    """Rows.

    Args:
        fields: their columns.
    """

    fields: tuple[Field, ...]

    @property
    def inputs(self) -> tuple[LogicalRelation, ...]:
        """What it is made of."""
        return ()

    def field(self, column: str) -> Field:
        """Return the field of a column of the batches."""
        return next(field for field in self.fields if field.column == column)

    @property
    def rowtime(self) -> Field | None:
        """The first column of event time, None where there is none."""
        return next((field for field in self.fields if field.time == "rowtime"), None)


@dataclass(frozen=True, eq=False)
class LogicalScan(LogicalRelation):
    """The rows of a table, with its computed columns."""

    table: FullName
    definition: Any  # TableDefinition; typed where it is read


@dataclass(frozen=True, eq=False)
class LogicalValues(LogicalRelation):
    """Rows that are written in the script."""

    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, eq=False)
class Unary(LogicalRelation):
    """What is made of one relation."""

    input: LogicalRelation

    @property
    def inputs(self) -> tuple[LogicalRelation, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class LogicalAssignWatermark(Unary):
    """The rows with their event time.

    Args:
        time: the column.
        watermark: how far it has come behind a row.
    """

    time: str
    watermark: Expression


@dataclass(frozen=True, eq=False)
class LogicalChangelogNormalize(Unary):
    """The whole changelog of a table that gives upserts by its primary key.

    Args:
        keys: the columns of the primary key.
    """

    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LogicalProject(Unary):
    """An expression for each column."""

    expressions: tuple[Expression, ...]

    @property
    def passed(self) -> dict[str, str]:
        """What columns of the input are called behind it, those that are still there."""
        names: dict[str, str] = {}
        for field, expression in zip(self.fields, self.expressions, strict=True):
            if isinstance(expression, ColumnRef):
                names.setdefault(expression.name, field.column)
        return names


@dataclass(frozen=True, eq=False)
class LogicalFilter(Unary):
    """The rows for which a condition is true."""

    condition: Expression


@dataclass(frozen=True, eq=False)
class LogicalUnnest(Unary):
    """A row for each element of an array or map; its columns stand behind those of the input.

    Args:
        collection: the column.
        is_outer: whether a row without elements stays, with nulls.
        ordinality: the column that numbers the elements, from 1.
    """

    collection: str
    is_outer: bool = False
    ordinality: str | None = None


@dataclass(frozen=True, eq=False)
class LogicalUnionAll(LogicalRelation):
    """The rows of all inputs, whose columns are called alike."""

    parts: tuple[LogicalRelation, ...]

    @property
    def inputs(self) -> tuple[LogicalRelation, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class SqlWindow:
    """A window of a table-valued function, ms.

    Args:
        time: the column that rows are placed by.
        size: of a session the gap.
        step: of hopping windows the slide, of cumulating ones the step.
        partition: the columns by which sessions are told apart.
        is_local: whether borders follow the session's time zone, as those over TIMESTAMP_LTZ do.
    """

    kind: WindowKind
    time: str
    by_clock: bool
    size: int
    step: int = 0
    offset: int = 0
    partition: tuple[str, ...] = ()
    is_local: bool = False


@dataclass(frozen=True, eq=False)
class LogicalWindowTable(Unary):
    """Each row with the windows that it is in: window_start, window_end and window_time stand behind its columns."""

    window: SqlWindow


@dataclass(frozen=True, slots=True)
class SqlAggregateCall:
    """An aggregate.

    Args:
        kind: its name in lower case, such as "sum".
        arguments: the columns; none for COUNT(*).
        filter: a column of booleans; rows where it is not true do not count.
        column: that the result is put into.
        own: of the kind "own" the function, whose arguments are the fields of one ROW.
    """

    kind: str
    arguments: tuple[str, ...]
    column: str
    type: SqlType
    is_distinct: bool = False
    filter: str | None = None
    options: tuple[str, ...] = ()
    own: SqlUserFunction | None = None


@dataclass(frozen=True, eq=False)
class LogicalAggregate(Unary):
    """One row for each key; unbounded, so that its rows change.

    Args:
        keys: columns of the input; none for one row of all.
        state_ttl: how long a group is kept after its last row, ms, 0 for ever; None as the settings have it.
    """

    keys: tuple[str, ...]
    calls: tuple[SqlAggregateCall, ...]
    state_ttl: int | None = None


@dataclass(frozen=True, eq=False)
class LogicalWindowAggregate(Unary):
    """One row for each key and window, once the window is over.

    Args:
        bounds: the columns that window_start, window_end and window_time are put into; None where one is not wanted.
        is_attached: whether rows have the bounds of their window as columns, which are among the keys.
    """

    window: SqlWindow
    keys: tuple[str, ...]
    calls: tuple[SqlAggregateCall, ...]
    bounds: tuple[str | None, str | None, str | None]
    is_attached: bool = False


@dataclass(frozen=True, eq=False)
class LogicalExpand(Unary):
    """Each row once for each set of GROUPING SETS: keys that are not in it are null, and a number tells the sets apart.

    Args:
        sets: the keys of each.
        keys: all of them.
        number: the column of the set's number, in whose bits a key that is not in it is 1.
    """

    sets: tuple[tuple[str, ...], ...]
    keys: tuple[str, ...]
    number: str


@dataclass(frozen=True, eq=False)
class LogicalJoin(LogicalRelation):
    """Pairs of rows.

    Args:
        keys: columns that are equal; null equals nothing.
        condition: what else has to be true of a pair.
        state_ttl: how long rows of the left and of the right side are kept, each as that of an aggregate.
    """

    kind: JoinKind
    left: LogicalRelation
    right: LogicalRelation
    keys: tuple[tuple[str, str], ...]
    condition: Expression | None = None
    state_ttl: tuple[int | None, int | None] | None = None

    @property
    def inputs(self) -> tuple[LogicalRelation, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class LogicalIntervalJoin(LogicalJoin):
    """Pairs whose times lie near each other: left + lower <= right <= left + upper, ms."""

    times: tuple[str, str] = ("", "")
    lower: int = 0
    upper: int = 0


@dataclass(frozen=True, eq=False)
class LogicalWindowJoin(LogicalJoin):
    """Pairs of the same window."""

    window: SqlWindow | None = None


@dataclass(frozen=True, eq=False)
class LogicalTemporalJoin(LogicalJoin):
    """Each left row with the right row of its key that was valid at its time."""

    times: tuple[str, str] = ("", "")


@dataclass(frozen=True, eq=False)
class LogicalLookupJoin(LogicalJoin):
    """Each left row with the rows that a table has for its keys when the row is processed.

    The right side projects and filters the rows of the table, and is never read as a stream.

    Args:
        looked_up: for each key by which the table can be asked the left column and that of the table.
    """

    looked_up: tuple[tuple[str, str], ...] = ()

    @property
    def table(self) -> LogicalScan:
        """The table that is looked up in."""
        relation = self.right
        while not isinstance(relation, LogicalScan):
            (relation,) = relation.inputs
        return relation


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A column of an order."""

    column: str
    is_descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, eq=False)
class LogicalTopN(Unary):
    """The rows of each key that come first in an order.

    Args:
        first: the first place that is wanted, from 1; `last`: the last one.
        rank: the column of the place; None where it is not wanted.
    """

    keys: tuple[str, ...]
    order: tuple[OrderKey, ...]
    first: int
    last: int
    rank: str | None


@dataclass(frozen=True, eq=False)
class LogicalWindowTopN(LogicalTopN):
    """The same of each window, once it is over; the bounds of the window are among the keys."""


@dataclass(frozen=True, eq=False)
class LogicalRepeat(Unary):
    """Each row as often as a column says, without that column."""

    times: str


@dataclass(frozen=True, eq=False)
class LogicalDeduplicate(Unary):
    """The first or the last row of each key by its time."""

    keys: tuple[str, ...]
    time: str
    by_clock: bool
    keep: Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class Frame:
    """What rows an OVER aggregate is of.

    Args:
        preceding: how many rows or ms before the current one; None: all.
        following: after it, in batch mode.
    """

    unit: Literal["rows", "range"]
    preceding: int | None
    following: int | None = 0


@dataclass(frozen=True, eq=False)
class LogicalOver(Unary):
    """Each row with aggregates of those around it; their columns stand behind its own."""

    keys: tuple[str, ...]
    order: tuple[OrderKey, ...]
    frame: Frame
    calls: tuple[SqlAggregateCall, ...]


@dataclass(frozen=True, slots=True)
class MatchValue:
    """A value of the rows of a match.

    Args:
        column: that it is put into.
        kind: "row" of one row, "rowtime" when the match was complete, else an aggregate.
        variable: whose rows it is of; None for all rows.
        expression: of a row: a column where it is of one row; None of "rowtime".
        offset: how many rows before the last one of the variable, or behind the first one.
    """

    column: str
    type: SqlType
    kind: Literal["row", "rowtime", "count", "sum", "min", "max"]
    variable: str | None = None
    expression: Expression | None = None
    offset: int = 0
    from_first: bool = False


@dataclass(frozen=True, eq=False)
class LogicalMatch(Unary):
    """A row for each match of a pattern in the rows of a key; its fields are the keys, then the measures.

    Args:
        order: of the rows, by their time first.
        by_clock: whether that time is the clock.
        conditions: of variables, over the values; one without a condition takes any row.
        measures: over the values.
        of_updates: is raised where rows of the input change, which the job knows.
    """

    keys: tuple[str, ...]
    order: tuple[OrderKey, ...]
    by_clock: bool
    pattern: tuple[PatternVariable, ...]
    after: AfterMatch
    within_ms: int | None
    conditions: tuple[tuple[str, Expression], ...]
    measures: tuple[Expression, ...]
    values: tuple[MatchValue, ...]
    of_updates: SqlError


@dataclass(frozen=True, eq=False)
class LogicalSort(Unary):
    """The rows in an order: by event time in a stream, by any columns in a bounded job."""

    order: tuple[OrderKey, ...]
    limit: int | None = None
    offset: int = 0


def walk_relations(root: LogicalRelation) -> Iterator[LogicalRelation]:
    """Yield every relation that one is made of, and itself, each once, inputs first."""
    seen: set[int] = set()

    def visit(relation: LogicalRelation) -> Iterator[LogicalRelation]:
        if id(relation) in seen:
            return
        seen.add(id(relation))
        for each in relation.inputs:
            yield from visit(each)
        yield relation

    yield from visit(root)
