"""Joins of two streams by event time as queries in SQL have them: of any kind, and final, so that nothing that came out is taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from poundlock.stream.changelog_nodes import JoinKind
from poundlock.stream.nodes import KeyedNode
from poundlock.values import format_duration

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class SqlIntervalJoinNode(KeyedNode):
    """Pairs of rows of equal keys whose times are between two bounds: left time + lower <= right time <= left time + upper.

    The columns of left come out, then those of right, whose names differ from them. A key with a null equals no other. A late row is
    matched with what there is.

    Args:
        kind: inner, left, right or full. A row that comes out without a match, with nulls for the other side, does so once the
            watermark is past its last possible match.
        condition: what else must hold of two rows, given a batch of pairs with the columns of both; null is false. Picklable. None:
            nothing.
    """

    kind: JoinKind
    lower_ms: int
    upper_ms: int
    condition: Callable[[pa.RecordBatch], pa.Array] | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        lower, upper = (
            f"{'-' if ms < 0 else ''}{format_duration(timedelta(milliseconds=abs(ms)))}"
            for ms in (self.lower_ms, self.upper_ms)
        )
        more = "" if self.condition is None else " with a condition"
        return f"{self.kind} interval join from {lower} to {upper}{more}"


@dataclass(frozen=True, eq=False)
class SqlWindowJoinNode(KeyedNode):
    """Pairs of rows of the same window and equal keys, once the watermark passes the end of the window; rows that come later are dropped.

    The bounds of the window are among the keys, and the column of event time, which does not come out, has the last ms of it. The other
    columns of left come out, then those of right, whose names differ from them; of a semi and an anti join those of left alone. A key
    with a null equals no other.

    Args:
        kind: of left, right and full joins, rows without a match come out with nulls for the other side; a semi join gives left rows
            that have a match, an anti join those that have none.
        condition: what else must hold of two rows, given a batch of pairs with the columns of both; null is false. Picklable. None:
            nothing.
    """

    kind: JoinKind
    condition: Callable[[pa.RecordBatch], pa.Array] | None = None

    def describe(self) -> str:
        """Return the step in words, for `explain`."""
        more = "" if self.condition is None else " with a condition"
        return f"{self.kind} join in windows{more}"
