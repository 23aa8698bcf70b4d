"""Task's half of change data capture: changes of the log between two places, and chunks of a table as they were at a place of it.

Where the driver still holds the state of a chunk's place, its rows are read from that. Where it does not, they are read as they are and what the log has of them
behind the place is undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from poundlock.connectors.changes.chunk_rows import as_they_were, keys_of
from poundlock.connectors.changes.chunked_snapshot import Frontier, RowChange, Undone
from poundlock.connectors.postgres.connection import PostgresLogin, identifier
from poundlock.connectors.postgres.source import slots, states
from poundlock.connectors.postgres.source.cdc_messages import Values, lsn_text, parse
from poundlock.connectors.postgres.source.cdc_rows import (
    DecodedChange,
    DecodedChanges,
    as_batch,
    as_read,
    images_of,
    row_type,
    size_of,
)
from poundlock.connectors.postgres.source.debezium import as_envelopes
from poundlock.connectors.postgres.source.tables import PublishedTable, files_of
from poundlock.connectors.postgres.source.work import DecodingWork, SnapshotChunkWork, inside, knows
from poundlock.connectors.postgres.types import from_csv
from poundlock.errors import TerminalError, TransientError

_BATCH_BYTES = 8 << 20  # of the texts of a batch's rows
_ROW_BYTES = 400  # beside its texts
_BLOCK = 4 << 20
_AGAIN = (
    "a restart reads the chunk as it is then; where it was decided already, start the job over into an empty target"
)


class CdcReader:
    """Reads the work of one task, each piece over connections of its own."""

    def __init__(self, login: PostgresLogin, what: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._login, self._what, self._sleep = login, what, sleep

    def batches(self, work: DecodingWork | SnapshotChunkWork) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece of work."""
        if isinstance(work, DecodingWork):
            return self._changes(work)
        return (
            self._shown(as_read(rows, work.table, work.at, has_table=work.output != "one table"), work.table, work)
            for rows in self._chunk(work)
        )

    @staticmethod
    def _shown(rows: pa.RecordBatch, table: PublishedTable, work: DecodingWork | SnapshotChunkWork) -> pa.RecordBatch:
        return as_envelopes(rows, table, work.database) if work.output == "debezium" else rows

    def _changes(self, work: DecodingWork) -> Iterator[pa.RecordBatch]:
        known = {table.name: knows(table, work.known[table.name]) for table in work.tables}
        made = DecodedChanges(work.tables, full=work.full, start=work.start, end=work.end)
        is_apart = work.output == "debezium"  # each table has a form of its own
        held: list[DecodedChange] = []
        size = 0
        with self._login.reading(f"reading changes of {self._what}") as connection:
            messages = slots.messages(connection, work.changes, self._what, sleep=self._sleep)
            for change in made.of(parse(data) for data in messages):
                shown = _within(change, known[change.table.name], work.known[change.table.name])
                if shown is None:
                    continue
                if held and (size >= _BATCH_BYTES or (is_apart and held[0].table is not change.table)):
                    yield self._batch(held, work)
                    held, size = [], 0
                held.append(shown)
                size += _ROW_BYTES + size_of(shown.row.before) + size_of(shown.row.after)
            if held:
                yield self._batch(held, work)

    def _batch(self, held: list[DecodedChange], work: DecodingWork) -> pa.RecordBatch:
        return self._shown(as_batch(held, has_table=work.output != "one table"), held[0].table, work)

    def _chunk(self, work: SnapshotChunkWork) -> Iterator[pa.RecordBatch]:
        table = work.table
        with self._login.reading(f"reading {table.name}") as connection:
            if states.begin_at(connection, work.state):
                yield from self._rows(connection, work)
                return
            until = states.begin_after(connection, work.state, self._login.name, self._sleep)
            undone = self._undone(work, until)
            if not undone.rows:
                yield from self._rows(connection, work)
                return
            changed = images_of(undone.shown, table.columns, table.name)
            keys = set(keys_of(pa.RecordBatch.from_struct_array(changed), table.key))
            there = images_of(undone.there(), table.columns, table.name)
            as_rows = pa.RecordBatch.from_arrays(there.flatten(), schema=pa.schema(list(row_type(table.columns))))
            yield from as_they_were(self._rows(connection, work), table.key, keys, as_rows)

    def _rows(self, connection: Any, work: SnapshotChunkWork) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk as the transaction sees them, in the order of their keys."""
        held: list[bytes] = []
        size, is_checked = 0, False
        with connection.cursor().copy(f"COPY ({_select(work)}) TO STDOUT (FORMAT csv)") as copy:
            for row in copy:  # one message of the protocol is one row
                if not is_checked:
                    self._check_files(work)
                    is_checked = True
                held.append(bytes(row))
                size += len(row)
                if size >= _BLOCK:
                    yield from_csv(b"".join(held), work.table.columns, work.table.name)
                    held, size = [], 0
        if not is_checked:
            self._check_files(work)
        if held:
            yield from_csv(b"".join(held), work.table.columns, work.table.name)

    def _check_files(self, work: SnapshotChunkWork) -> None:
        """Raise TransientError if the table was emptied or written anew, before which older states of it show nothing.

        From its first row on, the reading's transaction keeps everybody from that.
        """
        with self._login.reading(f"reading {work.table.name}") as connection:
            if files_of(connection, work.table.oid) != work.files:
                raise TransientError(
                    f"{work.table.name} was emptied, or written anew by an ALTER or a VACUUM FULL, while a chunk of it was read",
                    next=_AGAIN,
                )

    def _undone(self, work: SnapshotChunkWork, until: int) -> _Remembering:
        table = work.table
        undone = _Remembering(partial(_key_of, [table.place_of(name) for name in table.key]))
        is_inside = inside(table, work.low, work.high)
        function = slots.as_function(work.slot, work.publication, until)
        with self._login.reading(f"reading changes of {table.name}") as log:
            states.flushed_to(log, until, self._sleep)
            messages = slots.messages(log, function, table.name, sleep=self._sleep)
            made = DecodedChanges([table], start=work.at, later=False)
            try:
                for change in made.of(parse(data) for data in messages):
                    if change.op == "truncate":
                        raise TransientError(f"{table.name} was emptied while a chunk of it was read", next=_AGAIN)
                    shown = _within(change, is_inside, Frontier(whole=True))
                    if shown is None:
                        continue
                    if not table.key or (shown.op != "insert" and not shown.is_whole):
                        why = "has no primary key" if not table.key else "logs the keys of changed rows alone"
                        raise TransientError(
                            f"{table.name} was changed behind {lsn_text(work.at)}, and {why}: a chunk of it cannot be read as it was there",
                            next=_AGAIN,
                        )
                    undone.add(shown.row)
            except TerminalError as error:
                raise TransientError(error.what, next=_AGAIN) from error
        return undone


class _Remembering(Undone[Values, Hashable]):
    """Remembers for each key a row that has it, too, for its values as columns."""

    def __init__(self, key_of: Callable[[Values], Hashable]) -> None:
        super().__init__(key_of)
        self._images: dict[Hashable, Values] = {}

    def add(self, change: RowChange[Values]) -> None:
        for image in (change.before, change.after):
            if image is not None:
                self._images.setdefault(self.key_of(image), image)
        super().add(change)

    @property
    def shown(self) -> list[Values]:
        """A row of each changed key."""
        return list(self._images.values())


def _key_of(places: list[int], row: Values) -> Hashable:
    return tuple(row[place] for place in places)


def _within(change: DecodedChange, is_known: Callable[[Values], bool], frontier: Frontier) -> DecodedChange | None:
    """Return what a change is to somebody who knows some rows alone; None = nothing."""
    if change.op == "truncate":
        return change if frontier.whole or frontier.below is not None else None
    before, after = change.row.before, change.row.after
    if change.op == "update" and before is None and after is not None:  # its key stayed what it was, and was not logged
        return change if is_known(after) else None
    row = change.row.within(is_known)
    if row is None:
        return None
    op = "insert" if row.before is None else "delete" if row.after is None else "update"
    return change._replace(op=op, row=row)


def _select(work: SnapshotChunkWork) -> str:
    table = work.table
    borders = [(">=", work.low), ("<", work.high)]
    conditions = [
        f"{identifier(str(table.cut_by))} {sign} {table.border(text)}" for sign, text in borders if text is not None
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(column.selected for column in table.columns)
    return f"SELECT {columns} FROM {table.source}{where} ORDER BY {', '.join(_order(table))}"


def _order(table: PublishedTable) -> list[str]:
    """Return what rows are ordered by: their key, in the order that its values have here."""
    kinds: Mapping[str, pa.DataType] = {column.name: column.arrow for column in table.columns}
    texts = [name for name in table.key if kinds[name] == pa.string()]
    return [
        f"{table.source}.{identifier(name)}{'::text COLLATE ' + identifier('C') if name in texts else ''}"
        for name in table.key
    ] or [f"{table.source}.tableoid", f"{table.source}.ctid"]
