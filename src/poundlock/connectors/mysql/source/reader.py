"""Task's half: changes of the log between two places, and chunks of a table as they were at a place of the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.changes.chunk_rows import in_key_order, keys_of, without
from poundlock.connectors.changes.chunked_snapshot import Frontier, RowChange, Undone
from poundlock.connectors.mysql.connection import MySqlLogin, identifier, load_pymysql, rows_of
from poundlock.connectors.mysql.source.catalog import LoggedTable
from poundlock.connectors.mysql.source.debezium import as_envelopes
from poundlock.connectors.mysql.source.log import ChangedRows, Image, LoggedTransaction, ServerIds, Statement, events
from poundlock.connectors.mysql.source.positions import LogPlace
from poundlock.connectors.mysql.source.rows import (
    LoggedChange,
    as_batch,
    as_read,
    images_of,
    row_type,
    size_of,
)
from poundlock.connectors.mysql.source.statements import effects
from poundlock.connectors.mysql.source.work import ChunkWork, LogWork, parsed_key, work_of
from poundlock.connectors.mysql.types import from_texts
from poundlock.errors import SourceGoneError, TerminalError, TransientError
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_records

_BATCH_BYTES = 8 << 20  # of the values of a batch's rows
_ROW_BYTES = 300  # beside its values
_FETCHED = 5_000
_VISIBLE_S, _LOOK_S = 60.0, 0.05
_NOTHING = LoggedTransaction("", 0, "", 0)


class MySqlReader:
    """Reads the splits of one task, each over connections of its own."""

    def __init__(
        self,
        login: MySqlLogin,
        ids: ServerIds,
        context: ReaderContext,
        output: str = "rows",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._login, self._ids, self._context, self._sleep = login, ids, context, sleep
        self._apart = output == "debezium"  # each table has a form of its own

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split."""
        work = work_of(split.payload)
        for batch in self._changes(work) if isinstance(work, LogWork) else self._chunk(work):
            chunk = Batch(batch)
            yield to_records(chunk) if self._context.want == "records" else chunk

    def _changes(self, work: LogWork) -> Iterator[pa.RecordBatch]:
        tables = {table.name: table for table in work.tables}
        held: list[LoggedChange] = []
        size = 0
        for change in _logged(work, events(self._login, self._ids.of(work.reader), work.start, work.end, tables)):
            if held and (size >= _BATCH_BYTES or (self._apart and held[0].table != change.table)):
                yield self._shown(as_batch(held, tables[held[0].table].columns), tables[held[0].table], work)
                held, size = [], 0
            held.append(change)
            size += _ROW_BYTES + size_of(change.row.before) + size_of(change.row.after)
        if held:
            yield self._shown(as_batch(held, tables[held[0].table].columns), tables[held[0].table], work)

    def _shown(self, rows: pa.RecordBatch, table: LoggedTable, work: LogWork | ChunkWork) -> pa.RecordBatch:
        return as_envelopes(rows, table, work.server) if self._apart else rows

    def _chunk(self, work: ChunkWork) -> Iterator[pa.RecordBatch]:
        table = work.table
        schema = pa.schema(list(row_type(table.columns)))
        with self._login.reading(f"reading {table.name}", conv=_unconverted()) as connection:
            undone = self._undone(work, self._begin(connection, work))
            changed = _keys(undone.shown, table) if undone.rows else set()
            batches = [without(batch, table.key, changed) for batch in _selected(connection, work, schema)]
        there = images_of(undone.there(), table.columns, table.name)
        batches.append(pa.RecordBatch.from_arrays(there.flatten(), schema=schema))
        rows = in_key_order(batches, table.key, schema)
        if rows.num_rows:
            yield self._shown(as_read(table.name, rows, table.columns, work.at), table, work)

    def _begin(self, connection: Any, work: ChunkWork) -> LogPlace:
        """Begin a transaction that sees the tables as they are not before the chunk's place; return the place that it sees them at."""
        waited = 0.0
        while True:
            rows_of(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            known = {
                str(name).lower(): value for name, value in rows_of(connection, "SHOW STATUS LIKE 'binlog_snapshot_%%'")
            }
            place = LogPlace(str(known["binlog_snapshot_file"]), int(known["binlog_snapshot_position"]))
            if place.order >= work.at.order:
                return place
            # A transaction is in the log a moment before others see it.
            if waited >= _VISIBLE_S:
                raise TransientError(
                    f"MySQL at {self._login.shown} shows its tables as of {place}, and its log went on to {work.at}",
                    next="see what its commits wait for; a restart goes on",
                )
            rows_of(connection, "ROLLBACK")
            self._sleep(_LOOK_S)
            waited += _LOOK_S

    def _undone(self, work: ChunkWork, until: LogPlace) -> _Remembering:
        table = work.table
        undone = _Remembering(partial(_key_of, table))
        if until.order == work.at.order:
            return undone
        inside = partial(_inside, table, work.low, work.high)
        for event in events(self._login, self._ids.of(work.reader), work.at, until, [table.name]):
            if isinstance(event, ChangedRows):
                for before, after in event.images():
                    if (change := RowChange(before, after).within(inside)) is not None:
                        undone.add(change)
            elif isinstance(event, Statement):
                _refuse_altered(event, table)
        return undone


class _Remembering(Undone[Image, Hashable]):
    """Remembers for each key an image that has it, too, for its values as columns."""

    def __init__(self, key_of: Callable[[Image], Hashable]) -> None:
        super().__init__(key_of)
        self._images: dict[Hashable, Image] = {}

    def add(self, change: RowChange[Image]) -> None:
        for image in (change.before, change.after):
            if image is not None:
                self._images.setdefault(self.key_of(image), image)
        super().add(change)

    @property
    def shown(self) -> list[Image]:
        """An image of each changed key."""
        return list(self._images.values())


def _logged(work: LogWork, logged: Iterator[Any]) -> Iterator[LoggedChange]:
    """Yield the changes of the rows that are known."""
    tables = {table.name: table for table in work.tables}
    known = {name: _knows(table, work.known.get(name)) for name, table in tables.items()}
    transaction, number = _NOTHING, 0
    for event in logged:
        if isinstance(event, LoggedTransaction):
            transaction, number = event, 0
        elif isinstance(event, ChangedRows):
            _check_columns(event, tables[event.table])
            for before, after in event.images():
                number += 1
                change = RowChange(before, after).within(known[event.table])
                if change is not None:
                    yield LoggedChange(_op(change), event.table, transaction, number, change)
        else:
            for name in _emptied(event, work, rows=number):
                number += 1
                if work.known.get(name, Frontier(whole=True)) != Frontier():
                    yield LoggedChange("truncate", name, transaction, number, RowChange(None, None))


def _op(change: RowChange[Image]) -> str:
    return "insert" if change.before is None else "delete" if change.after is None else "update"


def _knows(table: LoggedTable, frontier: Frontier | None) -> Callable[[Image], bool]:
    if frontier is None or frontier.whole:
        return lambda row: True
    if frontier.below is None or table.cut_by is None:
        return lambda row: False
    return partial(_inside, table, None, frontier.below)


def _inside(table: LoggedTable, low: str | None, high: str | None, row: Image) -> bool:
    """Return whether a row is in a chunk."""
    if table.cut_by is None:
        return True
    column = table.column(table.cut_by)
    value = row[table.cut_by]
    return (low is None or value >= parsed_key(low, column)) and (high is None or value < parsed_key(high, column))


def _key_of(table: LoggedTable, row: Image) -> Hashable:
    return tuple(tuple(v) if isinstance(v, list) else v for v in (row[name] for name in table.key))


def _check_columns(rows: ChangedRows, table: LoggedTable) -> None:
    logged = rows.columns
    if None in logged or (missing := [name for name in table.key if name not in logged]):
        why = (
            "without names of columns" if None in logged else f"without column {missing[0]!r}, which is part of its key"
        )
        raise TerminalError(
            f"changes of {table.name} were logged {why}",
            next="SET GLOBAL binlog_row_metadata = FULL, and start the job over with a new checkpoint",
        )
    old = [name for name in (c.name for c in table.columns) if name in logged and logged[name].type in _OLD_TIMES]
    if old:
        raise TerminalError(
            f"column {old[0]!r} of {table.name} has a form of times that is older than MySQL 5.6's",
            next=f"ALTER TABLE {table.name} FORCE with mysql56_temporal_format=ON, or leave the column out with columns=[…]",
        )


_OLD_TIMES = (7, 11, 12)  # TIMESTAMP, TIME, DATETIME of before 5.6


def _emptied(statement: Statement, work: LogWork, *, rows: int) -> Iterator[str]:
    """Yield the tables that a statement empties; raise for what cannot be followed."""
    for effect in effects(statement, [table.name for table in work.tables]):
        if effect.kind == "emptied":
            yield str(effect.table)
        elif effect.kind == "removed":
            raise SourceGoneError(
                f"{effect.table} was dropped, renamed or replaced: {statement.text:.150}",
                next="start the job over, with an empty target and a new checkpoint",
            )
        elif effect.kind == "as text":
            raise TerminalError(
                f"rows of {effect.table} were changed by a statement that was logged as text: {statement.text:.150}",
                next="SET GLOBAL binlog_format = ROW, for all sessions, and start the job over with a new checkpoint",
            )
        elif effect.kind == "rolled back" and rows:
            raise TerminalError(
                "the log has a transaction that was rolled back after rows of it were logged",
                next="do not mix InnoDB with other engines in a transaction; start the job over with a new checkpoint",
            )
        elif effect.kind == "altered" and work.stops:
            raise TerminalError(
                f"{effect.table} was altered in a way that its rows may not have been logged for: {statement.text:.150}",
                next='say on_schema_change="go-on" to go on behind it, once at least; or start the job over with a new checkpoint',
            )


def _refuse_altered(statement: Statement, table: LoggedTable) -> None:
    columns = {column.name for column in table.columns}
    for effect in effects(statement, [table.name]):
        if effect.kind == "rolled back" or (effect.kind == "added" and not columns & set(effect.columns)):
            continue
        raise TransientError(
            f"{table.name} was changed while a chunk of it was read, in a way that cannot be undone: {statement.text:.150}",
            next="a restart reads the chunk as it is then; where it was decided already, start the job over",
        )


def _selected(connection: Any, work: ChunkWork, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a chunk as the transaction sees them."""
    table = work.table
    borders = [(sign, border) for sign, border in ((">=", work.low), ("<", work.high)) if border is not None]
    parameters = [border for _, border in borders]
    conditions = " AND ".join(f"{identifier(str(table.cut_by))} {sign} \0" for sign, _ in borders)
    query = f"SELECT {', '.join(column.selected for column in table.columns)} FROM {table.source}"
    query += f" WHERE {conditions}" if conditions else ""
    if parameters:  # a percent sign in a name is none of a parameter
        query = query.replace("%", "%%").replace("\0", "%s")
    with connection.cursor(load_pymysql().cursors.SSCursor) as cursor:
        cursor.execute(query, parameters or None)
        while rows := cursor.fetchmany(_FETCHED):
            arrays = [
                from_texts(values, column, table.name)
                for values, column in zip(zip(*rows, strict=True), table.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _keys(rows: list[Image], table: LoggedTable) -> set[tuple[Any, ...]]:
    """Return the keys of rows of the log, by values as columns have them."""
    images = images_of(rows, [table.column(name) for name in table.key], table.name)
    return set(keys_of(pa.RecordBatch.from_struct_array(images), table.key))


def _unconverted() -> Mapping[Any, Any]:
    """Return what makes pymysql give values as the server shows them."""
    from pymysql.converters import conversions

    return {kind: made for kind, made in conversions.items() if not isinstance(kind, int)}
