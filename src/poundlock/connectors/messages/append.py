"""A sink of a system that only appends: tasks send, and wait in `prepare` until the system has it. Visible before the decision, so at-least-once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Kind,
    Occasion,
    Participant,
    Prepared,
    Staged,
    WriterContext,
)
from poundlock.connectors.messages.encoding import MessageEncoder
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Chunk


class AppendSink(Participant):
    """Derive from it, and write `open_writer`: there is nothing to commit, to abort or to sweep."""

    kind: ClassVar[Kind] = Kind.APPEND
    prepares_ahead: ClassVar[bool] = True
    bulk: ClassVar[bool] = True

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        """Say that all is visible already."""
        return Staged({"v": 1, "pending": [], "at_once": True}, [])

    def commit(self, committable: JSON) -> Committed | Aborted:
        """Do nothing: no decision names anything of it."""
        return Committed()


class MessageSender(Protocol):
    """A task's connection to the system."""

    def faults(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> Mapping[int, str]:
        """Return which messages the system would never take, and why, by their number; nothing is sent."""

    def send(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> None:
        """Send messages; `rows` has the columns of each. May return before the system has them.

        Raises:
            TransientError: the system does not answer, or not now.
            TerminalError: it refuses them, and would again.
        """

    def finish(self) -> None:
        """Return when the system has confirmed that it has all. Raises as `send` does."""

    def close(self) -> None:
        """End the connection; called once, whatever happened. Raises nothing."""


class AppendWriter:
    """One task attempt's messages. A payload has their number alone, since nothing has to be found again."""

    def __init__(self, context: WriterContext, encoder: MessageEncoder, sender: MessageSender) -> None:
        self._context, self._encoder, self._sender = context, encoder, sender
        self._rows = self._bytes = 0

    def write(self, chunk: Chunk) -> int:
        """Send the rows of a chunk; return how many were taken."""
        if not len(chunk):
            return 0
        messages, rows = self._encoder.encode(chunk)
        if bad := self._sender.faults(messages, rows):
            self._encoder.refuse(rows, chunk, bad)
            good = np.setdiff1d(np.arange(len(messages)), list(bad))
            messages, rows = [messages[i] for i in good.tolist()], rows.take(pa.array(good))
        if messages:
            self._sender.send(messages, rows)
            if not self._rows:
                hit(Failpoint.SINK_WRITING)
            self._rows += len(messages)
            self._bytes += sum(map(len, messages))
        return len(messages)

    def prepare(self) -> Sequence[JSON]:
        """Wait until the system has it all."""
        try:
            self._sender.finish()
        finally:
            self._sender.close()
        return [{"v": 1, "rows": self._rows, "bytes": self._bytes}] if self._rows else []

    def abandon(self) -> None:
        """End the connection; what was sent stays where it is."""
        self._sender.close()
