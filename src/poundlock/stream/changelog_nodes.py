"""Steps over changelogs, as queries in SQL have them: aggregates of groups, the first rows in an order, joins that are never complete.

A row of a changelog has the kind of change in the column `row_kind`: +I and +U add it, -U and -D take away one that is equal. An input
without that column is append-only: every row is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.stream.nodes import KeyedNode, SortColumn, living, places_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

ValuesName = Literal[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "first_value",
    "last_value",
    "array_agg",
    "collect",
    "listagg",
]
"""Aggregates of values, of a group as of the rows around each."""
AggregateName = Literal[ValuesName, "single_value", "own"]
JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
_NAMES = get_args(AggregateName)


class GroupFunction(Protocol):
    """An aggregate of a user's own. Picklable."""

    @property
    def name(self) -> str:
        """What it is called, for `explain`."""

    @property
    def types(self) -> Sequence[pa.DataType]:
        """The types of what is kept of a group."""

    @property
    def described(self) -> str:
        """What state has of it, as its manifest says it."""

    @property
    def retracts(self) -> bool:
        """Whether rows can be taken away."""

    def fold(
        self, held: Sequence[pa.Array], values: pa.Array, signs: npt.NDArray[np.int64], of: npt.NDArray[np.int64]
    ) -> list[pa.Array]:
        """Return what is kept of each group after some rows.

        Args:
            held: what was kept of each, null for a group that is new.
            values: of the rows, group after group.
            signs: 1 or -1 of each row; `of`: the number of its group, ascending.
        """

    def result(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return the result of each group."""

    def run_on(
        self, held: Sequence[pa.Array], values: pa.Array, shown: npt.NDArray[np.bool_], of: npt.NDArray[np.int64]
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Return the result of each row, of all rows of its group up to it, and what is kept of each group behind its last row.

        Args:
            held: as in `fold`; each group has rows.
            values: of the rows, group after group; `shown`: which of them count; `of`: the number of each one's group, ascending.
        """


@dataclass(frozen=True, kw_only=True)
class AggregateCall:
    """One aggregate of the rows of a group, by the rules of Flink SQL.

    Args:
        function: which. All pass over null but `array_agg`, `single_value` and a `count` of no column.
        name: of the result's column.
        type: of the result: sums and averages are cast to it, where whole numbers wrap around. `collect` gives a map of a value to how
            often there is it.
        column: that it is of; None for `count` of rows.
        distinct: whether equal values count once.
        filter: a column of truth values: rows for which it is false or null do not count; None: all rows do.
        separator: what stands between two texts of `listagg`.
        own: of "own" the function, which is given null too.

    Raises:
        DefinitionError: there is no such function, or it is of no column and needs one.
    """

    function: AggregateName
    name: str
    type: pa.DataType
    column: str | None = None
    distinct: bool = False
    filter: str | None = None
    separator: str = ","
    own: GroupFunction | None = None

    def __post_init__(self) -> None:
        if self.function not in _NAMES:
            ways = did_you_mean(self.function, _NAMES, f"use one of {', '.join(_NAMES)}")
            raise DefinitionError(f"{self.function!r} is no aggregate", next=ways)
        if self.column is None and (self.function != "count" or self.distinct):
            raise DefinitionError(f"{self.function} of no column", next="give column=")

    def resolved(self, resolve: Callable[[str], str]) -> AggregateCall:
        """Return it with the columns that a function gives for those that it names."""
        column, chosen = (None if name is None else resolve(name) for name in (self.column, self.filter))
        return replace(self, column=column, filter=chosen)

    def describe(self) -> str:
        """Return it as SQL."""
        what = f"{'DISTINCT ' if self.distinct else ''}{self.column or '*'}"
        chosen = "" if self.filter is None else f" FILTER (WHERE {self.filter})"
        name = self.function if self.own is None else self.own.name
        return f"{name}({what}){chosen} AS {self.name}"


@dataclass(frozen=True, eq=False)
class GroupAggregateNode(KeyedNode):
    """Aggregates of the rows of each key so far, as a changelog; none may be wanted, for the different keys alone.

    The columns of the key come out first, then the results, then the kind of change. With each checkpoint a key has one change at most:
    +I when its first row came, +U when a result changed, -D when its last row was taken away. Without a key all rows are one group, of
    which nothing comes out before its first row.

    Args:
        update_before: whether -U with the results that were comes before +U.
        ttl_ms: how long a key is known after its last row, by the clock; None for ever.
    """

    aggregates: Sequence[AggregateCall]
    update_before: bool = True
    ttl_ms: int | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        return f"group aggregate {', '.join(each.describe() for each in self.aggregates)}{living(self.ttl_ms)}".rstrip()


@dataclass(frozen=True, eq=False)
class ChangelogTopNNode(KeyedNode):
    """The rows of each key in some places of an order, as a changelog; of a changelog, which `TopNNode` does not take.

    With each checkpoint a place changes once at most: +I, -U and +U, or -D where it has no row any more. Without a column of the place
    rows come and go with +I and -D. Without a key all rows have one order.

    Args:
        last: the last place that is wanted, from 1; `first`: the first one.
        order_by: columns, the most important first; none for the order in which rows came.
        rank: the column with the place of a row; None where it is not wanted.
        newest_first: whether of rows that are equal in the order the one that came last is before, and not the first.
        update_before: whether -U with the row that had a place comes before +U.
        ttl_ms: how long a row is kept, by the clock; None for ever. The first rows live on with each change of their key.
    """

    last: int
    order_by: Sequence[SortColumn]
    first: int = 1
    rank: str | None = None
    newest_first: bool = False
    update_before: bool = True
    ttl_ms: int | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        newest = ", the newest first" if self.newest_first else ""
        return f"{places_text(self.first, self.last, self.order_by)}{newest} of a changelog{living(self.ttl_ms)}"


@dataclass(frozen=True, eq=False)
class ChangelogNormalizeNode(KeyedNode):
    """The whole changelog of upserts, of which one that deletes may have nothing but its key.

    The first row of a key comes out with +I, one that replaces another with +U, and -U with the one before it; a row that is deleted
    comes out with -D as it was. An upsert that is equal to the row of its key changes nothing, nor does a deletion of a key without
    a row.

    Args:
        ttl_ms: how long a key is known after its last upsert, by the clock; None for ever. An equal upsert comes out, too, where keys are
            forgotten, so that steps behind this one know that it is alive.
    """

    ttl_ms: int | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        return f"changelog of upserts{living(self.ttl_ms)}"


@dataclass(frozen=True, eq=False)
class RegularJoinNode(KeyedNode):
    """A join of all rows of two inputs that have equal keys, as a changelog.

    The columns of left come out, then those of right, whose names differ from them; of a semi and an anti join those of left alone.
    Behind them is the kind of change, unless both inputs are append-only and the join is an inner or a semi join, which takes nothing
    away again.

    Args:
        kind: of left, right and full joins, rows without a match come out with nulls for the other side, until there is one; a semi
            join gives left rows that have a match, an anti join those that have none.
        condition: what else must hold of two rows, given a batch of pairs with the columns of both; null is false. Picklable. None:
            nothing.
        null_equal: for each column of the key whether null equals null, as IS NOT DISTINCT FROM has it; none: null equals nothing.
        ttl_ms: of left and right, how long a row is known after it was last changed, by the clock; None for ever.
    """

    kind: JoinKind
    condition: Callable[[pa.RecordBatch], pa.Array] | None = None
    null_equal: Sequence[bool] = ()
    ttl_ms: tuple[int | None, int | None] = (None, None)

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        more = "" if self.condition is None else " with a condition"
        return f"regular {self.kind} join{more}"


def one_sided(kind: JoinKind) -> bool:
    """Return whether left rows alone come out of a join."""
    return kind in ("semi", "anti")


def gives_changes(kind: JoinKind, changes: Sequence[bool]) -> bool:
    """Return whether what comes out of a join may be taken away again; `changes` says it of what comes in, left and right."""
    return kind not in ("inner", "semi") or any(changes)
