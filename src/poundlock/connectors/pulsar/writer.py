"""The task's half of the Pulsar sink: rows as messages in a file that nobody sends before they are decided."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.messages.encoding import MessageEncoder
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk
from poundlock.storage import Storage

STAGED = pa.schema([("value", pa.binary()), ("key", pa.string())])
"""What a staged message has."""


class StagingWriter:
    """Writes the messages of one task attempt.

    Args:
        file: its name in the folder, which no other attempt has.
        key: the column that has a message's key; None = messages have none.
        largest: most bytes of a message: a row with more is rejected here, because a decided one must be sent.
    """

    def __init__(
        self,
        context: WriterContext,
        encoder: MessageEncoder,
        storage: Storage,
        file: str,
        key: str | None,
        largest: int,
    ) -> None:
        self._context, self._encoder = context, encoder
        self._storage, self._file, self._key, self._largest = storage, file, key, largest
        self._handle: Any = None
        self._stream: Any = None
        self._rows = self._bytes = 0

    def write(self, chunk: Chunk) -> int:
        """Write the rows of a chunk; return how many were taken."""
        if not len(chunk):
            return 0
        messages, rows = self._encoder.encode(chunk)
        keys = pa.nulls(len(messages), pa.string()) if self._key is None else rows.column(self._key).cast(pa.string())
        values = pa.array(messages, pa.binary())
        sizes = np.array([len(message) for message in messages], np.int64)
        if (large := np.flatnonzero(sizes > self._largest)).size:
            why = f"a message is larger than {self._largest:,} bytes"
            self._encoder.refuse(rows, chunk, {row: f"{why}: {sizes[row]:,}" for row in large.tolist()})
            good = pa.array(np.flatnonzero(sizes <= self._largest))
            values, keys = values.take(good), keys.take(good)
        if not len(values):
            return 0
        if self._stream is None:
            self._handle = self._storage.write(self._file)
            self._stream = pa.ipc.new_stream(self._handle, STAGED)
            hit(Failpoint.SINK_WRITING)
        self._stream.write_batch(pa.RecordBatch.from_arrays([values, keys], schema=STAGED))
        self._rows += len(values)
        return len(values)

    def prepare(self) -> Sequence[JSON]:
        """Make the file durable, and return the one payload that names it; none if nothing was written."""
        if not self._rows:
            return []
        self._stream.close()
        self._storage.sync(self._handle)
        self._handle.close()
        status = self._storage.stat(self._file)
        size = status.bytes if status is not None else 0
        return [{"v": 1, "file": self._file, "rows": self._rows, "bytes": size}]

    def abandon(self) -> None:
        """Remove the file; what stays goes with the sweep."""
        with contextlib.suppress(Exception):
            if self._handle is not None:
                self._handle.close()
        with contextlib.suppress(Exception):
            self._storage.delete(self._file)
