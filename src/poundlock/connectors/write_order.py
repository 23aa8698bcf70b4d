"""What orders the writes of a sink by key whose system keeps the greatest of several: the moment its checkpoint was begun, in ms.

It is the driver's clock, and never less than one more than that of the newest decision, so it grows from checkpoint to checkpoint, from an
attempt to the next and from one job to the next. A number of a checkpoint would not: a job that is begun with a new folder, or goes on from a savepoint,
counts from a smaller one again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar

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


def hold_tuples(sink: object, *names: str) -> None:
    """Hold the arguments of a frozen sink that are lists of names as tuples; one name alone is such a list."""
    for name in names:
        given = getattr(sink, name)
        if isinstance(given, str):
            object.__setattr__(sink, name, (given,))
        elif given is not None and isinstance(given, Sequence):
            object.__setattr__(sink, name, tuple(given))


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


class BulkRequestWriter(OrderedWriter):
    """An `OrderedWriter` that sends many rows a request, several requests at once: derive from it, and write `_written`.

    Args:
        requests: how many requests are under way at once.
        title: what its threads are called.
    """

    def __init__(self, context: WriterContext, requests: int, title: str) -> None:
        super().__init__(context)
        self._threads = ThreadPoolExecutor(requests, title) if requests > 1 else None
        self._chunks = self._bytes = 0

    def prepare(self) -> Sequence[JSON]:
        """Return the one payload that says what was written; none if nothing was."""
        self._close()
        if not self._rows:
            return []
        return [{"v": 1, "rows": self._rows, "bytes": self._bytes, "begun_ms": self._begun_ms}]

    def abandon(self) -> None:
        """End; what was written stays, and is written again when the checkpoint is repeated."""
        with suppress(Exception):
            self._close()

    def _close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _answers(self, send: Callable[[Any], Mapping[int, str]], cut: Sequence[Any]) -> Sequence[Mapping[int, str]]:
        """Return what each of some pieces was answered, in their order; they are sent at once."""
        sending = map if self._threads is None or len(cut) < 2 else self._threads.map
        return list(sending(send, cut))
