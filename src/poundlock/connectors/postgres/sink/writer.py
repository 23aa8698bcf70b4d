"""The task's half of the PostgreSQL sink: chunks in, COPY out, every row either written and counted or rejected with a reason.

All of a task's rows are one transaction, which `prepare` prepares, or commits where the guarantee is by key or at least once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.postgres.errors import BY_A_ROW, explained, load_psycopg
from poundlock.connectors.postgres.sink.rows import RowDigest, copy_text, prepared_columns, raw_row
from poundlock.connectors.postgres.sink.table import Table, TableColumn, check_types, look_up, matched
from poundlock.connectors.postgres.sink.transaction_ids import Markers, gid
from poundlock.errors import PoundlockError, TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch, Chunk, origin_of
from poundlock.formats.convert import not_utf8, to_batch
from poundlock.formats.reject import Reject

if TYPE_CHECKING:
    from poundlock.connectors.postgres.sink.sink import PostgresSink


_Index = Any
_STAGE = "pg_temp.poundlock_stage"


class PostgresWriter:
    """Writes the rows of one task attempt; the sink is bound to its job."""

    def __init__(self, context: WriterContext, sink: PostgresSink) -> None:
        self._context, self._sink = context, sink
        self._markers = Markers(sink.marker_table)
        self._digest = RowDigest()
        self._connection: Any = None
        self._table: Table | None = None
        self._upsert: Upsert | None = None
        self._columns: list[TableColumn] = []
        self._schema: Any = None
        self._name = gid(sink.prefix, context.epoch, context.checkpoint, context.subtask, context.attempt)
        self._taken = 0

    def write(self, chunk: Chunk) -> int:
        """Copy the rows of a chunk; return how many were taken. Raises TransientError when the server fails."""
        if not len(chunk):
            return 0
        first = self._connection is None
        rows = to_batch(chunk)
        with self._at_home():
            if first:
                self._open()
            batch, columns = self._wanted(rows.batch)
            before = self._digest.rows
            index = self._acceptable(rows, batch, columns)
            if len(index) < batch.num_rows:
                batch = batch.take(pa.array(index))
            if batch.num_rows:
                self._copy(rows, prepared_columns(batch, columns), index)
        if first:
            hit(Failpoint.SINK_WRITING)
        return self._digest.rows - before

    def prepare(self) -> Sequence[JSON]:
        """Make the transaction durable, and return the one payload that describes it; none if nothing was written."""
        if not self._digest.rows:
            self.abandon()
            return []
        payload = {"v": 1, "rows": self._digest.rows, "bytes": self._digest.bytes, "digest": self._digest.text}
        with self._at_home():
            if self._sink.mode == "prepare":
                context = self._context
                origin, at = self._markers.write(self._connection, self._name, context.epoch, context.checkpoint)
                self._connection.execute(f"PREPARE TRANSACTION '{self._name}'")
                payload |= {"gid": self._name, "origin": origin, "at_ms": at}
            else:
                if self._upsert is not None:
                    self._upsert.merge(self._connection)
                    self._check_fence()
                self._connection.execute("COMMIT")
        self._close()
        return [payload]

    def abandon(self) -> None:
        """Give the transaction up, prepared or not; an error is left to the sweep of the next start."""
        prepared = self._connection is None and self._digest.rows and self._sink.mode == "prepare"
        self._close()
        if prepared:
            with contextlib.suppress(Exception):
                self._connection = self._sink.login.connect()
                self._connection.execute(f"ROLLBACK PREPARED '{self._name}'")
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    @contextlib.contextmanager
    def _at_home(self) -> Any:
        try:
            with explained(self._sink.login.name, f"writing to table {self._sink.table}"):
                yield
        except PoundlockError as error:
            error.checkpoint = self._context.checkpoint if error.checkpoint is None else error.checkpoint
            error.participant = error.participant or self._context.sink
            raise

    def _open(self) -> None:
        sink, context = self._sink, self._context
        self._connection = sink.login.connect(lock_timeout_ms=sink.lock_timeout_ms)
        self._table = look_up(self._connection, sink.table, sink.login.name)
        if sink.mode == "upsert":
            self._markers.raise_fence(self._connection, sink.prefix, context.epoch, context.checkpoint)
        self._connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    def _check_fence(self) -> None:
        """Refuse to write rows of a checkpoint behind which a later one was begun: a task that was given up may still run."""
        context = self._context
        fence = self._markers.fence(self._connection, self._sink.prefix)
        if fence > (context.epoch, context.checkpoint):
            raise TerminalError(
                f"sink {context.sink!r} wrote checkpoint {fence[1]} in start {fence[0]} of the job, and this is"
                f" checkpoint {context.checkpoint} of start {context.epoch}",
                next="nothing, where a newer driver runs; if an older copy of the job's checkpoint was put back:"
                f" DELETE FROM {self._markers.table} WHERE gid = '{self._sink.prefix}fence'",
            )

    def _wanted(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[TableColumn]]:
        """Return the columns that are written, in the order of the rows, and the table's columns for them."""
        sink, table = self._sink, self._table
        assert table is not None
        names = [n for n in (sink.columns or batch.schema.names) if n != sink.delete_when]
        needed = [*names, sink.delete_when] if sink.delete_when else names
        need_columns(self._context.sink, needed, batch.schema.names)
        picked = batch.select(names)
        if picked.schema != self._schema:
            self._columns = matched(table, self._context.sink, names)
            check_types(table, self._context.sink, self._columns, picked.schema)
            self._schema = picked.schema
        columns = self._columns
        if sink.mode == "upsert":
            if self._upsert is None:
                self._upsert = Upsert(table, columns, sink.key or (), deletes=sink.delete_when is not None)
                self._upsert.make(self._connection)
            elif self._upsert.columns != columns:
                raise TransientError("rows of one task have unlike columns", next="give the rows a schema")
            if sink.delete_when is not None:
                return picked.append_column(sink.delete_when, batch.column(sink.delete_when)), [*columns, DELETE]
        return picked, columns

    def _acceptable(self, rows: Batch, batch: pa.RecordBatch, columns: Sequence[TableColumn]) -> _Index:
        """Reject rows with a null where none may be, or what is no text in a struct or list; return the numbers of the others."""
        bad = not_utf8(batch, nested_only=True)  # other text the server looks at
        gone = batch.column(batch.num_columns - 1) if columns[-1] is DELETE else None
        for column, values in zip(columns, batch.columns, strict=True):
            key = column.name in (self._sink.key or ())
            if not values.null_count or not (column.required or key):
                continue
            null = pc.is_null(values)
            if gone is not None and not key:  # of a row that is deleted only the key counts
                null = pc.and_(null, pc.invert(pc.fill_null(gone, False)))
            for row in np.flatnonzero(null.to_numpy(zero_copy_only=False)).tolist():
                bad.setdefault(row, f"column {column.name!r} is null, and must not be")
        for row in sorted(bad):
            self._reject(rows, row, bad[row])
        return np.delete(np.arange(batch.num_rows), sorted(bad))

    def _copy(self, rows: Batch, batch: pa.RecordBatch, index: _Index) -> None:
        """Copy rows; where the server refuses some, find them by halves and reject them. `index` is where in `rows` each stands."""
        psycopg = load_psycopg()
        text = copy_text(batch)
        self._connection.execute("SAVEPOINT poundlock")
        try:
            with self._connection.cursor().copy(self._statement(batch)) as copy:
                copy.write(text)
        except psycopg.Error as error:
            if error.sqlstate is None or not error.sqlstate.startswith(BY_A_ROW):
                raise
            self._connection.execute("ROLLBACK TO SAVEPOINT poundlock; RELEASE SAVEPOINT poundlock")
            if batch.num_rows == 1:
                detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
                self._reject(rows, int(index[0]), f"table {self._sink.table}: {error.diag.message_primary}{detail}")
                return
            half = batch.num_rows // 2
            self._copy(rows, batch.slice(0, half), index[:half])
            self._copy(rows, batch.slice(half), index[half:])
            return
        self._connection.execute("RELEASE SAVEPOINT poundlock")
        self._digest.add(batch, len(text))

    def _statement(self, batch: pa.RecordBatch) -> str:
        table = self._table
        assert table is not None
        if self._upsert is not None:
            return self._upsert.copy
        quoted = {column.name: column.quoted for column in table.columns}
        columns = ", ".join(quoted[name] for name in batch.schema.names)
        return f"COPY {table.name} ({columns}) FROM STDIN (FORMAT csv)"

    def _reject(self, rows: Batch, row: int, reason: str) -> None:
        self._context.reject(Reject(reason, raw_row(rows.batch, row), origin_of(rows).at(row)))


class Upsert:
    """A temporary table that a task fills by COPY, and the one statement that carries it into the table.

    Of several rows with one key the last one counts, and keys are written in order, so that two tasks cannot lock each other out.

    Args:
        deletes: whether the rows have one more column, which says that the row of this key is to be deleted.
    """

    def __init__(self, table: Table, columns: Sequence[TableColumn], key: Sequence[str], *, deletes: bool) -> None:
        self.table, self.columns, self.deletes = table, columns, deletes
        self._all = ", ".join(column.quoted for column in columns)
        self._key = ", ".join(column.quoted for column in columns if column.name in key)
        self._keys = [column.quoted for column in columns if column.name in key]
        self._others = [column.quoted for column in columns if column.name not in key]

    @property
    def copy(self) -> str:
        """The statement that takes the rows."""
        flag = ", poundlock_delete" if self.deletes else ""
        return f"COPY {_STAGE} ({self._all}{flag}) FROM STDIN (FORMAT csv)"

    def make(self, connection: Any) -> None:
        """Make the temporary table, in a transaction that was begun."""
        connection.execute(
            f"CREATE TEMP TABLE poundlock_stage ON COMMIT DROP AS SELECT {self._all} FROM {self.table.name} WITH NO DATA"
        )
        flag = ", ADD COLUMN poundlock_delete boolean" if self.deletes else ""
        connection.execute(f"ALTER TABLE {_STAGE} ADD COLUMN poundlock_seq bigserial{flag}")

    def merge(self, connection: Any) -> None:
        """Carry the rows into the table."""
        newest = f"SELECT DISTINCT ON ({self._key}) * FROM {_STAGE} ORDER BY {self._key}, poundlock_seq DESC"
        if self.deletes:
            same = " AND ".join(f"t.{name} = s.{name}" for name in self._keys)
            connection.execute(
                f"DELETE FROM {self.table.name} t USING ({newest}) s WHERE s.poundlock_delete AND {same}"
            )
        kept = " WHERE poundlock_delete IS NOT TRUE" if self.deletes else ""
        changes = ", ".join(f"{name} = excluded.{name}" for name in self._others)
        then = f"UPDATE SET {changes}" if changes else "NOTHING"
        connection.execute(
            f"INSERT INTO {self.table.name} ({self._all}) OVERRIDING SYSTEM VALUE SELECT {self._all} FROM ({newest}) s{kept}"
            f" ORDER BY {self._key} ON CONFLICT ({self._key}) DO {then}"
        )


DELETE = TableColumn("poundlock_delete", "poundlock_delete", "boolean", "bool", "B", False, True, False)
