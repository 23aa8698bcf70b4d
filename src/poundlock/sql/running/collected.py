"""The rows of a query that is to be looked at: each task writes a file, and the driver hands its rows over when they are decided."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from poundlock.checkpoint.participant import JSON, Committed, Kind, Participant, WriterContext
from poundlock.storage import open_storage

if TYPE_CHECKING:
    from poundlock.formats.chunk import Chunk

_DRIVER: dict[str, Callable[[pa.RecordBatch], None]] = {}
"""Who is given the rows in this process, by the folder of the sink: a sink that travels to tasks takes nobody along."""


@dataclass(frozen=True)
class CollectingSink(Participant):
    """Hands rows over on the driver, checkpoint by checkpoint. A file that was handed over is removed.

    Args:
        folder: where tasks write.
    """

    folder: str
    kind: ClassVar[Kind] = Kind.APPEND

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return "the rows of a query"

    def given_to(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Say who is given the rows in this process."""
        _DRIVER[self.folder] = take

    def open_writer(self, context: WriterContext) -> _Writer:
        """Begin to write in a task."""
        return _Writer(self.folder, f"{context.checkpoint}-{context.subtask}-{secrets.token_hex(4)}.arrow")

    def commit(self, committable: JSON) -> Committed:
        """Hand over what a task wrote; a file that is gone was handed over before."""
        storage = open_storage(self.folder)
        take = _DRIVER.get(self.folder)
        if take is not None and storage.stat(committable["file"]) is not None:
            for batch in pa.ipc.open_stream(storage.read(committable["file"])):
                take(batch)
            storage.delete(committable["file"])
        return Committed({"rows": committable["rows"]})


class _Writer:
    """The rows of one task attempt."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, chunk: Chunk) -> int:
        """Keep rows."""
        from poundlock.formats.convert import to_batch

        if len(chunk):
            self._batches.append(to_batch(chunk).batch)
            self._rows += len(chunk)
        return len(chunk)

    def prepare(self) -> Sequence[JSON]:
        """Write the file."""
        if not self._batches:
            return []
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        open_storage(self._folder).create_exclusive(self._name, sink.getvalue().to_pybytes())
        return [{"v": 1, "file": self._name, "rows": self._rows}]

    def abandon(self) -> None:
        """Drop the rows."""
        self._batches = []
