"""Driver's half of a table that only grows: rows in the order of a column whose values rise, such as a serial number.

A transaction may commit later than another that took a greater value. So a value counts as reached only when every
transaction that was running when it was seen has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import Split
from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.connectors.postgres.source.positions import ColumnPosition
from poundlock.connectors.postgres.source.relation import Relation, as_planned, conditions_between, look_up
from poundlock.connectors.postgres.source.snapshot import copy_payload
from poundlock.errors import DefinitionError, TerminalError

if TYPE_CHECKING:
    from poundlock.connectors.postgres.source.source import PostgresSource


_MOST_LOOKS = 1000
_ENDLESS = ("NaN", "Infinity", "infinity")


@dataclass(frozen=True, slots=True)
class Seen:
    """The greatest value at one look.

    Args:
        next_transaction: every transaction that may still bring smaller values has a lower number than this.
    """

    value: str
    next_transaction: int
    at_ms: int


def settled(looks: Sequence[Seen], oldest_running: int, now_ms: int, settle_ms: int) -> Seen | None:
    """Return the newest look below whose value nothing can appear any more; None if there is none yet."""
    usable = [s for s in looks if s.next_transaction <= oldest_running and now_ms - s.at_ms >= settle_ms]
    return usable[-1] if usable else None


class IncrementalEnumerator:
    """Looks how far the column has grown, and cuts what is new."""

    def __init__(self, source: PostgresSource) -> None:
        self._source = source
        self._connection: Any = None
        self._relation: Relation | None = None
        self._kind = ""
        self._looks: list[Seen] = []
        self._looked_ms: int | None = None

    def initial(self) -> dict[str, Any]:
        return ColumnPosition(self._source.start, (), False).to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        source, at = self._source, self._position(start)
        now = source.clock.now_ms()
        if self.finished(start) or (self._looked_ms is not None and now - self._looked_ms < source.poll_ms):
            return start
        with source.login.errors(f"looking for new rows of {source.shown}"):
            reach = self._reach(now)
            end = at if reach is None else self._end(at, reach.value)
        # A backlog is read checkpoint after checkpoint; only when there is nothing new the table is left alone for a while.
        self._looked_ms = now if end == at else None
        return start if end == at else end.to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        with self._source.login.errors(f"planning the rows of {self._source.shown}"):
            _, relation = self._connect()
        before, last = self._position(start), self._position(end)
        borders = [before.value, *last.cuts, last.value]
        conditions = conditions_between(str(self._source.column), self._kind, borders)
        return [
            Split(
                f"{last.value}-{i:05d}",
                copy_payload(relation.select(condition), relation.columns),
                name=f"up to {borders[i + 1]}",
            )
            for i, condition in enumerate(conditions)
        ]

    def finished(self, position: dict[str, Any]) -> bool:
        at, until = self._position(position), self._source.until
        return until is not None and at.done and at.until in (None, until)

    def committed(self, position: dict[str, Any]) -> None:
        """Do nothing: the table keeps its rows."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _position(self, value: dict[str, Any]) -> ColumnPosition:
        return ColumnPosition.from_json(value, self._source.reads)

    def _connect(self) -> tuple[Any, Relation]:
        if self._connection is None or self._connection.closed or self._relation is None:
            self._connection = self._source.login.open()
            current = look_up(self._connection, self._source)
            self._relation = as_planned(current, self._source.schema(), self._source.shown)
            self._kind = column_kind(self._connection, self._relation, str(self._source.column))
        return self._connection, self._relation

    def _reach(self, now_ms: int) -> Seen | None:
        """Look at the table, and return how far it may be read."""
        connection, relation = self._connect()
        value, following, oldest = connection.execute(
            f"SELECT max({identifier(str(self._source.column))})::text, pg_snapshot_xmax(pg_current_snapshot())::text,"
            f" pg_snapshot_xmin(pg_current_snapshot())::text FROM {relation.source}"
        ).fetchone()
        if value is None:
            return None
        if value in _ENDLESS:
            raise TerminalError(
                f"column {self._source.column!r} of {self._source.shown} has the value {value}, behind which nothing"
                " new can come",
                next="mend that row, or read by another column",
            )
        if not self._looks or self._looks[-1].value != value:
            self._looks.append(Seen(value, int(following), now_ms))
            if len(self._looks) > _MOST_LOOKS:  # a transaction runs for long: coarser steps will do
                del self._looks[1:-1:2]
        reached = settled(self._looks, int(oldest), now_ms, self._source.settle_ms)
        if reached is not None:
            self._looks = self._looks[self._looks.index(reached) :]
        return reached

    def _end(self, at: ColumnPosition, reach: str) -> ColumnPosition:
        source, (connection, relation) = self._source, self._connect()
        name, kind = identifier(str(source.column)), self._kind
        high, last = f"{literal(reach)}::{kind}", False
        if source.until is not None:
            until = f"{literal(source.until)}::{kind}"
            last = bool(connection.execute(f"SELECT {high} >= {until}").fetchone()[0])
            high = until if last else high
        low = [f"{name} > {literal(at.value)}::{kind}"] if at.value is not None else []
        most, step = source.max_rows_per_checkpoint, source.rows_per_split
        rows, value, cuts = connection.execute(
            f"WITH a AS (SELECT {name} AS c FROM {relation.source}{relation.matching(*low, f'{name} <= {high}')}"
            f" ORDER BY 1 LIMIT {most}) SELECT (SELECT count(*) FROM a), (SELECT max(c)::text FROM a),"
            " ARRAY(SELECT c::text FROM (SELECT c, row_number() OVER (ORDER BY c) AS n FROM a) b"
            f" WHERE mod(n, {step}) = 0 ORDER BY n)"
        ).fetchone()
        done = last and rows < most
        if value is None and not done:
            return at
        end = value or at.value or source.until
        between = tuple(each for each in dict.fromkeys(cuts) if each != end)
        return ColumnPosition(end, between, done, source.until if done else None, read=source.reads)


def column_kind(connection: Any, relation: Relation, column: str) -> str:
    """Return the name of a growing column's type.

    Raises:
        DefinitionError: there is no such column, or its values have no order in time.
    """
    columns = connection.execute(f"SELECT * FROM {relation.source} LIMIT 0").description or ()
    by_name = {each.name: each for each in columns}
    if column not in by_name:
        raise DefinitionError(
            f"{relation.source} has no column {column!r} to read by", next=f"use one of {', '.join(by_name)}"
        )
    kind = str(connection.execute("SELECT format_type(%s, NULL)", [by_name[column].type_code]).fetchone()[0])
    if kind not in _GROWING:
        raise DefinitionError(
            f"column {column!r} is a {kind}, and a column to read by must be a number, a date or a time",
            next="name another column, one whose value only grows from row to row",
        )
    return kind


_GROWING = (
    "smallint", "integer", "bigint", "numeric", "date", "timestamp without time zone", "timestamp with time zone", "oid",
)  # fmt: skip
