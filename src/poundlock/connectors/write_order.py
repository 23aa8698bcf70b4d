"""What orders the writes of a sink by key whose system keeps the greatest of several: the moment its checkpoint was begun, in ms.

It is the driver's clock, and never less than one more than that of the newest decision, so it grows from checkpoint to checkpoint, from an
attempt to the next and from one job to the next. A number of a checkpoint would not: a job that is begun with a new folder, or goes on from a savepoint,
counts from a smaller one again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Occasion,
    Participant,
    Prepared,
    Staged,
    WriterContext,
)
from poundlock.errors import PoundlockError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch, Chunk, origin_of
from poundlock.formats.convert import row_bytes, to_batch
from poundlock.formats.reject import Reject

POSITION_BITS = 20
"""Of a version: the place of a row's chunk in its task. What is above them is when the checkpoint was begun, ms since the epoch."""


def begun_ms(context: WriterContext) -> int:
    """Return the moment that all writes of an attempt carry."""
    return max(context.started_ms, int(context.directive.get("after_ms", 0)) + 1)


class OrderedSink(Participant):
    """Derive from it, and write `open_writer`: rows are visible before the decision, which remembers the greatest moment they carry."""

    bulk: ClassVar[bool] = True

    def directive(self, state: JSON) -> JSON:
        """Return what the tasks of the next checkpoint have to know of the newest decision."""
        return {"v": 1, "after_ms": state.get("begun_ms", 0)}

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        newest = max((int(item.payload["begun_ms"]) for item in prepared), default=0)
        return Staged({"v": 1, "pending": [], "at_once": True, "begun_ms": max(newest, state.get("begun_ms", 0))}, [])

    def commit(self, committable: JSON) -> Committed | Aborted:
        """Do nothing: no decision names anything of it."""
        return Committed()


class OrderedWriter:
    """The task's half of an `OrderedSink`: derive from it, and write `_written` and `prepare`.

    A chunk's rows are with the system when `write` returns, for only then is it known which of them it refuses.
    """

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._begun_ms = begun_ms(context)
        self._rows = 0

    def write(self, chunk: Chunk) -> int:
        """Write the rows of a chunk; return how many were taken. Raises TransientError where the system fails."""
        if not len(chunk):
            return 0
        rows = to_batch(chunk)
        try:
            refused = self._written(rows)
        except PoundlockError as error:
            error.checkpoint = self._context.checkpoint if error.checkpoint is None else error.checkpoint
            error.participant = error.participant or self._context.sink
            raise
        for row in sorted(refused):
            self._context.reject(Reject(refused[row], row_bytes(rows, row), origin_of(rows).at(row)))
        taken = len(rows) - len(refused)
        if not self._rows and taken:
            hit(Failpoint.SINK_WRITING)
        self._rows += taken
        return taken

    def abandon(self) -> None:
        """End; what was written stays, and is written again when the checkpoint is repeated."""

    @abstractmethod
    def _written(self, rows: Batch) -> Mapping[int, str]:
        """Write a chunk's rows; return why some were refused, by their number."""
