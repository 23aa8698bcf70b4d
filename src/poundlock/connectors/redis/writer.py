"""The task's half of the Redis sink: rows into lists of its attempt's own, which nothing reads before they are decided."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.postgres.sink.transaction_ids import gid
from poundlock.connectors.redis.committer import StagedKeys, staged_key
from poundlock.connectors.redis.rows import as_bytes, items_of
from poundlock.errors import DefinitionError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk, origin_of
from poundlock.formats.convert import row_values, to_batch
from poundlock.formats.reject import Reject

if TYPE_CHECKING:
    from poundlock.connectors.redis.sink import RedisSink

_PART_ROWS = 500
"""Rows of one command."""


class RedisWriter:
    """Stages the rows of one task attempt; the sink is bound to its job."""

    def __init__(self, context: WriterContext, sink: RedisSink) -> None:
        self._context, self._sink = context, sink
        self._name = gid(sink.prefix, context.epoch, context.checkpoint, context.subtask, context.attempt)
        self._client: Any = None
        self._pieces: list[int] = []  # how many items each has
        self._room = 0  # rows that still go into the newest
        self._rows = 0
        self._names: tuple[str, ...] | None = None

    def write(self, chunk: Chunk) -> int:
        """Stage the rows of a chunk; return how many were taken."""
        if not len(chunk):
            return 0
        rows = to_batch(chunk)
        sink, batch = self._sink, rows.batch
        need_columns(self._context.sink, sink.needed(batch.schema.names), batch.schema.names)
        names = sink.value_names(batch.schema.names)
        if self._names not in (None, names):
            raise TransientError("rows of one task have unlike columns", next="give the rows a schema")
        self._names = names
        self._refuse_nested(batch, (*sink.template.columns, *names))
        keys, values = sink.template.of(batch), [as_bytes(batch.column(name)) for name in names]
        gone = None if sink.delete_when is None else batch.column(sink.delete_when)
        bad = self._bad(keys, values)
        for row, why in bad.items():
            raw = repr(row_values(batch, row)).encode("utf-8", "backslashreplace")
            self._context.reject(Reject(why, raw, origin_of(rows).at(row)))
        if bad:
            kept = pa.array(np.delete(np.arange(batch.num_rows), sorted(bad)))
            keys, values = keys.take(kept), [value.take(kept) for value in values]
            gone = None if gone is None else gone.take(kept)
        self._stage(keys, gone, values)
        return len(keys)

    def prepare(self) -> Sequence[JSON]:
        """Return the one payload that names what is staged; none if nothing was written."""
        self._close()
        if not self._rows:
            return []
        staged = StagedKeys(
            v=1,
            gid=self._name,
            pieces=tuple(self._pieces),
            rows=self._rows,
            type=self._sink.type,
            names=self._names or (),
            deletes=self._sink.delete_when is not None,
        )
        return [staged.to_json()]

    def abandon(self) -> None:
        """Remove what is staged; what stays goes with the sweep."""
        with contextlib.suppress(Exception):
            if self._client is not None and self._pieces:
                self._client.unlink(*(staged_key(self._name, i) for i in range(len(self._pieces))))
        self._close()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _refuse_nested(self, batch: pa.RecordBatch, names: Sequence[str]) -> None:
        """Raise DefinitionError for a column of lists, structs or maps."""
        for name in names:
            if pa.types.is_nested(batch.schema.field(name).type):
                raise DefinitionError(
                    f"sink {self._context.sink!r}: column {name!r} is {batch.schema.field(name).type}, which is no value of Redis",
                    next=f'write it as text: .select("to_json({name}) as {name}", …)',
                )

    def _bad(self, keys: pa.Array, values: Sequence[pa.Array]) -> dict[int, str]:
        """Return why rows cannot be written, by their number."""
        bad: dict[int, str] = {}
        for row in _nulls(keys):
            bad[row] = f"a column of the key {self._sink.key!r} is null"
        if self._sink.type == "set":
            for row in _nulls(values[0]):
                bad.setdefault(row, "a member of a set is null")
        if self._sink.type == "stream" and values:
            empty = np.logical_and.reduce([value.is_null().to_numpy(zero_copy_only=False) for value in values])
            for row in np.flatnonzero(empty).tolist():
                bad.setdefault(row, "an entry of a stream needs a value, and all are null")
        return bad

    def _stage(self, keys: pa.Array, gone: pa.Array | None, values: Sequence[pa.Array]) -> None:
        with self._sink.login.errors("staging rows"):
            if self._client is None:
                self._client = self._sink.login.connect()
                hit(Failpoint.SINK_WRITING)
            pipe = self._client.pipeline(transaction=False)
            for first in range(0, len(keys), _PART_ROWS):
                items = items_of(
                    keys.slice(first, _PART_ROWS),
                    None if gone is None else gone.slice(first, _PART_ROWS),
                    [value.slice(first, _PART_ROWS) for value in values],
                )
                if self._room <= 0:
                    self._pieces.append(0)
                    self._room = self._sink.batch
                pipe.rpush(staged_key(self._name, len(self._pieces) - 1), *items)
                self._pieces[-1] += len(items)
                self._room -= min(_PART_ROWS, len(keys) - first)
            pipe.execute()
        self._rows += len(keys)


def _nulls(column: pa.Array) -> list[int]:
    if not column.null_count:
        return []
    rows: list[int] = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
    return rows
