"""The task's half of the Cassandra sink: chunks in, statements out, every row either written and counted or rejected with a reason.

A chunk's rows are with the cluster when `write` returns, for only then is it known which of them it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.cassandra.sender import StatementSender
from poundlock.connectors.cassandra.statements import Statements, batches, check_alike
from poundlock.connectors.cassandra.table import CassandraTable, check_columns, check_types, look_up
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.write_order import OrderedWriter
from poundlock.errors import TerminalError
from poundlock.formats.arrays import flags_in, indices_of
from poundlock.formats.chunk import Batch
from poundlock.formats.convert import not_utf8

if TYPE_CHECKING:
    from poundlock.connectors.cassandra.sink import CassandraSink


_MICROS = 1000  # of a millisecond
_MOST_CHUNKS = 1_000_000


class CassandraWriter(OrderedWriter):
    """Writes the rows of one task attempt."""

    def __init__(self, context: WriterContext, sink: CassandraSink) -> None:
        super().__init__(context)
        self._sink = sink
        self._sender = StatementSender(sink.login, sink.requests, sink.retry_s)
        self._table: CassandraTable | None = None
        self._statements: Statements | None = None
        self._names: list[str] = []
        self._chunks = 0

    def prepare(self) -> Sequence[JSON]:
        """Return the one payload that says what was written; none if nothing was."""
        if not self._rows:
            return []
        newest = self._begun_ms + self._chunks // _MICROS  # whose timestamps it used up
        return [{"v": 1, "rows": self._rows, "begun_ms": newest}]

    def _written(self, rows: Batch) -> dict[int, str]:
        batch = rows.batch
        bad = not_utf8(batch)
        if bad:
            keep = np.delete(np.arange(batch.num_rows), sorted(bad))
            others = self._written(Batch(batch.take(indices_of(keep))))
            return {**bad, **{int(keep[row]): why for row, why in others.items()}}
        prepared = self._open(batch)
        flag = self._sink.delete_when
        deleted = None if flag is None else flags_in(batch.column(flag).fill_null(False)).tolist()
        wanted = batch.select(self._names)
        statements = prepared.bound(wanted, deleted, self._micros(), bad)
        refused = self._sender.send(statements, batches(statements, self._sink.batch_bytes))
        bad |= {row: f"table {self._sink.table}: {why}" for row, why in refused.items()}
        if bad and len(statements) + len(bad) - len(refused) < batch.num_rows:
            # What a refused row would have replaced is written as if that had not come.
            older = prepared.older(wanted, list(bad))
            again = self._written(Batch(batch.take(indices_of(np.array(older, np.int64))))) if older else {}
            bad |= {older[row]: why for row, why in again.items()}
        return bad

    def _open(self, batch: pa.RecordBatch) -> Statements:
        """Return the prepared statements for rows with these columns."""
        sink = self._sink
        need_columns(self._context.sink, sink.needed, batch.schema.names)
        names = sink.written(batch.schema.names)
        if self._statements is None or self._table is None:
            self._table = look_up(sink.login, sink.table)
            check_columns(self._table, self._context.sink, names)
            check_types(self._table, self._context.sink, [batch.schema.field(name) for name in names])
            with sink.login.errors("preparing statements"):
                self._statements = Statements(
                    sink.login.session(), self._table, names, sink.ttl_s, unset_nulls=sink.ignore_null_fields
                )
            self._names = names
        check_alike(names, self._names)
        return self._statements

    def _micros(self) -> int:
        """Return the timestamp of the next chunk's rows: when the checkpoint was begun, and the chunk's number in the task.

        A chunk takes far longer than a microsecond, so a timestamp never is ahead of the clock.
        """
        number, self._chunks = self._chunks, self._chunks + 1
        if number >= _MOST_CHUNKS:
            raise TerminalError(
                f"a task got more than {_MOST_CHUNKS} batches of rows in one checkpoint, and there are no timestamps for more",
                next="take checkpoints more often: checkpoint_interval, or fewer records a checkpoint",
            )
        return self._begun_ms * _MICROS + number
