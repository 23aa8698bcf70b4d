"""Steps over rows in an order: aggregates of the rows around each, numbers of rows, sorting, and the version of a row that a time has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.stream.changelog_nodes import GroupFunction, ValuesName
from poundlock.stream.nodes import KeyedNode, SortColumn, living

if TYPE_CHECKING:
    import pyarrow as pa

OverName = Literal[
    ValuesName,
    "own",
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
]
RowOrder = Literal["event_time", "arrival", "any"]
OF_PLACES = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile")
"""What follows from the place of a row alone."""
RANKS = ("row_number", "rank", "dense_rank")
_AT_END = ("percent_rank", "cume_dist", "ntile", "lead")
_NAMES = get_args(OverName)


@dataclass(frozen=True)
class RowFrame:
    """Which rows of a key, by their order, an aggregate is of.

    Args:
        unit: whether bounds are numbers of rows or spans of the first column of the order, ms; by spans, equal rows see each other.
        preceding: how many before the row; None: all.
        following: behind it, below 0 where the frame ends before it; None: all.
    """

    unit: Literal["rows", "range"]
    preceding: int | None
    following: int | None = 0

    def describe(self) -> str:
        """Return it as SQL."""
        ends = [
            "unbounded" if bound is None else str(bound if self.unit == "rows" else f"{bound} ms")
            for bound in (self.preceding, self.following)
        ]
        last = "current row" if self.following == 0 else f"{ends[1]} following"
        return f"{self.unit} between {ends[0]} preceding and {last}"


@dataclass(frozen=True, kw_only=True)
class OverCall:
    """One aggregate of the rows around a row, by the rules of Flink SQL.

    Args:
        function: which.
        name: of the result's column.
        type: of the result.
        column: that it is of; None for `count` of rows and what follows from places.
        frame: of which rows. Of numbers of rows it says nothing, of `lag` and `lead` likewise.
        distinct: whether equal values count once.
        filter: a column of truth values: rows for which it is false or null do not count.
        separator: what stands between two texts of `listagg`.
        offset: of `lag` and `lead`, how many rows before or behind, by event time counted from the last row of equal time; of `ntile`,
            how many parts.
        default: the column of what `lag` and `lead` give where there is no such row; None: null.
        own: of `own` the function of the user's own, whose arguments are the fields of the column.

    Raises:
        DefinitionError: there is no such function, or it is of no column and needs one.
    """

    function: OverName
    name: str
    type: pa.DataType
    column: str | None = None
    frame: RowFrame = RowFrame("range", None)
    distinct: bool = False
    filter: str | None = None
    separator: str = ","
    offset: int = 1
    default: str | None = None
    own: GroupFunction | None = None

    def __post_init__(self) -> None:
        if self.function not in _NAMES:
            ways = did_you_mean(self.function, _NAMES, f"use one of {', '.join(_NAMES)}")
            raise DefinitionError(f"{self.function!r} is no aggregate", next=ways)
        if self.column is None and self.function not in (*OF_PLACES, "count"):
            raise DefinitionError(f"{self.function} of no column", next="give column=")
        if self.offset < (0 if self.function in ("lag", "lead") else 1):
            raise DefinitionError(f"{self.function} with {self.offset}", next="give a number above it")

    @property
    def columns(self) -> list[str]:
        """The columns that it looks at."""
        return [name for name in (self.column, self.filter, self.default) if name is not None]

    def resolved(self, resolve: Callable[[str], str]) -> OverCall:
        """Return it with the columns that a function gives for those that it names."""
        column, chosen, default = (
            None if name is None else resolve(name) for name in (self.column, self.filter, self.default)
        )
        return replace(self, column=column, filter=chosen, default=default)

    def describe(self) -> str:
        """Return it as SQL."""
        what = "" if self.function in OF_PLACES else f"{'DISTINCT ' if self.distinct else ''}{self.column or '*'}"
        more = f", {self.offset}" if self.function in ("lag", "lead") else ""
        chosen = "" if self.filter is None else f" FILTER (WHERE {self.filter})"
        framed = self.function not in (*OF_PLACES, "lag", "lead")
        frame = f" over {self.frame.describe()}" if framed else ""
        name = self.function if self.own is None else self.own.name
        return f"{name}({what}{more}){chosen}{frame} AS {self.name}"


@dataclass(frozen=True, eq=False)
class OverNode(KeyedNode):
    """The rows of each key in an order, with aggregates of those around each behind their columns; without aggregates, sorted rows.

    By event time a row comes out once the watermark has reached its time; by arrival at once. Where only final results are wanted, all
    come out at the end of the input, in whatever order. By any order in a stream there are numbers of rows alone, which change
    as rows come: a changelog.

    Late rows are dropped and counted: those that the watermark has reached, or, where all aggregates are of so many rows or so much
    time before a row, those that are not behind the last row of their key that came out.

    Args:
        order: what rows are ordered by; the event time, if it is by that, stands first.
        by: whether the first of `order` is the event time, or rows come in order as they arrive, or neither.
        limit: how many rows come out, without a key, at the end of the input; None: all.
        offset: how many of the first ones are left out then.
        ttl_ms: how long a key is known after its last row, by the clock; None for ever.
    """

    order: Sequence[SortColumn]
    by: RowOrder
    calls: Sequence[OverCall] = ()
    limit: int | None = None
    offset: int = 0
    ttl_ms: int | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        what = f"over {', '.join(each.describe() for each in self.calls)}" if self.calls else "sort"
        order = "as they arrive" if self.by == "arrival" else f"by {', '.join(each.describe() for each in self.order)}"
        limit = "" if self.limit is None else f", {self.limit} rows"
        skipped = "" if not self.offset else f" behind the first {self.offset}"
        return f"{what}, {order}{limit}{skipped}{living(self.ttl_ms)}"

    @property
    def gives_changes(self) -> bool:
        """Whether rows come out as a changelog though they came in without one."""
        return self.by == "any" and any(each.function in RANKS for each in self.calls)

    def check_stream(self) -> None:
        """Check that rows may come out before the end of the input.

        Raises:
            DefinitionError: they may not.
        """
        numbers_alone = bool(self.calls) and all(each.function in RANKS for each in self.calls)
        if (self.by == "any" and not numbers_alone) or any(_looks_ahead(each) for each in self.calls):
            raise DefinitionError(
                f"{self.id}: {self.describe()}: what comes out of it is certain at the end of the input alone",
                next='let the job be bounded: runtime_mode="batch", or order by the event time without rows that follow',
            )


def _looks_ahead(call: OverCall) -> bool:
    return call.function in _AT_END or (call.function not in (*OF_PLACES, "lag") and call.frame.following != 0)


@dataclass(frozen=True, eq=False)
class TemporalJoinNode(KeyedNode):
    """Each left row with the right row of its key that was true at its time, once the watermark has reached that.

    Of the right rows of a key that is the one with the greatest time that is not behind the left row's; none where that one was taken away
    (-D). The columns of left come out, then those of right. Late left rows are joined with the versions that are left.

    Args:
        times: the columns of event time, left and right.
        kind: whether left rows without a match come out, with nulls.
        condition: what else must hold of a pair, given a batch with the columns of both; null is false. Picklable. None: nothing.
    """

    times: tuple[str, str]
    kind: Literal["inner", "left"]
    condition: Callable[[pa.RecordBatch], pa.Array] | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        more = "" if self.condition is None else " with a condition"
        return f"temporal {self.kind} join{more}: the version of {self.times[1]} at {self.times[0]}"
