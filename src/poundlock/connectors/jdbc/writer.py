"""The task's half of the JDBC sink: rows into a file of Arrow batches that nobody reads before they are decided.

A value that no database takes is rejected here, because a decided row must be written.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.postgres.sink.transaction_ids import gid
from poundlock.errors import DefinitionError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk, origin_of
from poundlock.formats.convert import not_utf8, row_values, to_batch
from poundlock.formats.reject import Reject

if TYPE_CHECKING:
    from poundlock.connectors.jdbc.sink import JdbcSink


_PLAIN = (str, bool, int, decimal.Decimal, bytes, datetime.date, datetime.datetime)


class JdbcWriter:
    """Writes the rows of one task attempt; the sink is bound to its job."""

    def __init__(self, context: WriterContext, sink: JdbcSink) -> None:
        self._context, self._sink = context, sink
        self._storage = sink.folder()
        self._name = gid(sink.prefix, context.epoch, context.checkpoint, context.subtask, context.attempt)
        self._file = f"{self._name}.arrow"
        self._handle: Any = None
        self._stream: Any = None
        self._rows = 0

    def write(self, chunk: Chunk) -> int:
        """Write the rows of a chunk; return how many were taken."""
        if not len(chunk):
            return 0
        rows = to_batch(chunk)
        batch = self._picked(rows.batch)
        bad = self._bad(batch)
        for row, why in bad.items():
            self._context.reject(Reject(why, _raw(batch, row), origin_of(rows).at(row)))
        if bad:
            batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), sorted(bad))))
        if self._stream is None:
            self._handle = self._storage.write(self._file)
            self._stream = pa.ipc.new_stream(self._handle, batch.schema)
            hit(Failpoint.SINK_WRITING)
        try:
            self._stream.write_batch(batch)
        except pa.ArrowInvalid as error:
            raise TransientError("rows of one task have unlike columns", next="give the rows a schema") from error
        self._rows += batch.num_rows
        return int(batch.num_rows)

    def prepare(self) -> Sequence[JSON]:
        """Make the file durable, and return the one payload that names it; none if nothing was written."""
        if not self._rows:
            self.abandon()
            return []
        self._stream.close()
        self._storage.sync(self._handle)
        self._handle.close()
        status = self._storage.stat(self._file)
        size = status.bytes if status is not None else 0
        return [{"v": 1, "gid": self._name, "file": self._file, "rows": self._rows, "bytes": size}]

    def abandon(self) -> None:
        """Remove the file; what stays goes with the sweep."""
        with contextlib.suppress(Exception):
            if self._handle is not None:
                self._handle.close()
        with contextlib.suppress(Exception):
            self._storage.delete(self._file)

    def _picked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = list(self._sink.columns or batch.schema.names)
        if self._sink.delete_when is not None and self._sink.delete_when not in names:
            names.append(self._sink.delete_when)
        needed = (*names, *(self._sink.key or ()))
        need_columns(self._context.sink, needed, batch.schema.names)
        for name in needed:
            if pa.types.is_nested(batch.schema.field(name).type):
                raise DefinitionError(
                    f"sink {self._context.sink!r}: column {name!r} is {batch.schema.field(name).type}, which SQL has no word for",
                    next=f'write it as text: .select("to_json({name}) as {name}", …)',
                )
        return batch.select(names)

    def _bad(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Return why rows cannot be written, by their number."""
        bad = not_utf8(batch)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            kind, key = column.type, name in (self._sink.key or ())
            if key and column.null_count:
                for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                    bad.setdefault(row, f"column {name!r} is null, and must not be")
            if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
                continue
            if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
                year = pc.year(column).fill_null(1).to_numpy(zero_copy_only=False)
                for row in np.flatnonzero((year < 1) | (year > 9999)).tolist():
                    bad.setdefault(row, f"column {name!r}: a time in the year {year[row]}")
                continue
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                for row in np.flatnonzero(_zero_bytes(column)).tolist():
                    bad.setdefault(row, f"column {name!r}: text with a zero byte")
                continue
            for row, value in enumerate(column.to_pylist()):
                if value is None:
                    continue
                if isinstance(value, float) and not math.isfinite(value):
                    bad.setdefault(row, f"column {name!r}: {value} is no number in SQL")
                elif not isinstance(value, (*_PLAIN, float)):
                    bad.setdefault(row, f"column {name!r}: a value of type {type(value).__name__}")
        return bad


def _raw(batch: pa.RecordBatch, row: int) -> bytes:
    """Return a row for a dead letter; times as text, for Python has not all of them."""
    one = {
        name: column.cast(pa.string())
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
        else column
        for name, column in zip(batch.schema.names, batch.slice(row, 1).columns, strict=True)
    }
    return repr(row_values(pa.RecordBatch.from_arrays(list(one.values()), names=list(one)), 0)).encode(
        "utf-8", "backslashreplace"
    )


def _zero_bytes(column: pa.Array) -> npt.NDArray[np.bool_]:
    zeros = pc.match_substring(column.cast(pa.large_binary()), "\0")
    return np.asarray(zeros.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
