"""What a task is given: a part of the log, or a chunk of a table at a place of it. JSON on the way."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from poundlock.connectors.changes.chunked_snapshot import Frontier
from poundlock.connectors.mysql.source.catalog import LoggedTable
from poundlock.connectors.mysql.source.positions import LogPlace
from poundlock.connectors.mysql.types import MySqlColumn
from poundlock.storage.json_record import typed, untyped


class LogWork(msgspec.Struct, frozen=True, tag="log"):
    """The changes of tables between two places of the log.

    Args:
        known: how much of each table is known at `start`.
        stops: whether a table that is altered stops the job.
        reader: which number this reader has.
        server: the server's own.
    """

    start: LogPlace
    end: LogPlace
    tables: tuple[LoggedTable, ...]
    known: dict[str, Frontier]
    stops: bool
    reader: int
    server: int


class ChunkWork(msgspec.Struct, frozen=True, tag="chunk"):
    """The rows of a table from a border to before another, as they were at a place of the log."""

    table: LoggedTable
    low: str | None
    high: str | None
    at: LogPlace
    reader: int
    server: int


def payload_of(work: LogWork | ChunkWork) -> dict[str, Any]:
    """Return work as JSON."""
    return untyped(work)


def work_of(payload: Mapping[str, Any]) -> LogWork | ChunkWork:
    """Return what JSON says."""
    return typed(payload, LogWork) if payload["type"] == "log" else typed(payload, ChunkWork)


def parsed_key(text: str, column: MySqlColumn) -> Any:
    """Return a border as the value that the log's rows have."""
    if column.kind == "date":
        return datetime.date.fromisoformat(text)
    return datetime.datetime.fromisoformat(text) if column.kind == "datetime" else int(text)
