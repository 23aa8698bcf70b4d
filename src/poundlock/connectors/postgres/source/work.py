"""What a task of change data capture is given: a part of the log, or a chunk of a table at a place of it. JSON on the way."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import msgspec

from poundlock.connectors.changes.chunked_snapshot import Frontier
from poundlock.connectors.postgres.source.cdc_messages import Values
from poundlock.connectors.postgres.source.positions import HeldState
from poundlock.connectors.postgres.source.tables import PublishedTable
from poundlock.connectors.postgres.types import Column, no_place
from poundlock.storage.json_record import typed, untyped

Output = Literal["one table", "tables", "debezium"]
"""The form of rows: those of one table, those of several with the name of their table, or Debezium's."""


class DecodingWork(msgspec.Struct, frozen=True, tag="log"):
    """The changes of tables between two places of the log.

    Args:
        changes: SQL that gives the slot's messages.
        known: how much of each table is known at `start`.
        full: whether rows before a change must be there, whole.
    """

    changes: str
    start: int
    end: int
    tables: tuple[PublishedTable, ...]
    known: dict[str, Frontier]
    full: bool
    output: Output
    database: str


class SnapshotChunkWork(msgspec.Struct, frozen=True, tag="chunk"):
    """The rows of a table from a border to before another, as they were at a place of the log.

    Args:
        state: the state of the tables at that place, which somebody may hold still.
        files: what named the files with the table's rows then.
        slot, publication: what the log is read by where nobody does.
    """

    table: PublishedTable
    low: str | None
    high: str | None
    at: int
    state: HeldState
    files: str
    slot: str
    publication: str
    output: Output
    database: str


def payload_of(work: DecodingWork | SnapshotChunkWork) -> dict[str, Any]:
    """Return work as JSON."""
    return untyped(work)


def work_of(payload: Mapping[str, Any]) -> DecodingWork | SnapshotChunkWork:
    """Return what JSON says."""
    return typed(payload, DecodingWork) if payload["type"] == "log" else typed(payload, SnapshotChunkWork)


def knows(table: PublishedTable, frontier: Frontier) -> Callable[[Values], bool]:
    """Return whether a row, as the log has it, is known."""
    if frontier.whole:
        return lambda row: True
    return (lambda row: False) if frontier.below is None else inside(table, None, frontier.below)


def inside(table: PublishedTable, low: str | None, high: str | None) -> Callable[[Values], bool]:
    """Return whether a row, as the log has it, is in a chunk."""
    if table.cut_by is None or (low is None and high is None):
        return lambda row: True
    place = table.place_of(table.cut_by)
    column = table.columns[place]
    first, last = (None if border is None else _parsed(border, column, table.name) for border in (low, high))
    return partial(_is_inside, place, column, table.name, first, last)


def _is_inside(place: int, column: Column, what: str, low: Any, high: Any, row: Values) -> bool:
    value = _parsed(row[place], column, what)
    return (low is None or value >= low) and (high is None or value < high)


def _parsed(text: Any, column: Column, what: str) -> Any:
    """Return a value of a column that a table is cut by, in its order.

    Raises:
        TerminalError: it has no place in its column's Arrow type, such as the date "infinity".
    """
    try:
        return _PARSED.get(column.oid, int)(text)
    except (ValueError, TypeError) as error:
        raise no_place(f"{what}, column {column.name!r}", error) from None


_PARSED: Mapping[int, Callable[[str], Any]] = {
    1082: datetime.date.fromisoformat, 1114: datetime.datetime.fromisoformat, 1184: datetime.datetime.fromisoformat, 2950: str,
}  # fmt: skip
