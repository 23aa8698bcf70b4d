"""What sources of messages share: rows that a payload describes, read by tasks from what the driver wrote down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pyarrow as pa

from poundlock.connectors.base import ReaderContext, ReplayPromise
from poundlock.connectors.messages.acknowledged import AcknowledgedEnumerator, Receiver, promise
from poundlock.connectors.messages.reader import InboxReader, Payload
from poundlock.storage import Storage


@dataclass(frozen=True, init=False)
class MessageSource:
    """Base of sources whose driver receives messages into an inbox.

    Args:
        payload: how a message becomes a row.
        max_rows_per_checkpoint: most rows of one checkpoint.
    """

    payload: Payload
    max_rows_per_checkpoint: int

    @property
    def bounded(self) -> bool:
        """False: messages have no end."""
        return False

    @property
    def known_columns(self) -> pa.Schema:
        """The columns of the rows."""
        return self.schema()

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        return self.payload.result()

    def reader(self, context: ReaderContext) -> InboxReader:
        """Return the task's half: it reads what the driver wrote down."""
        return InboxReader(self.payload, context)


@dataclass(frozen=True, init=False)
class AcknowledgedSource(MessageSource, ABC):
    """Base of sources whose messages are the broker's until they are acknowledged; derive from it, and write `_receiver`.

    Args:
        deduplicate: what the id of a message is; None = messages have none.
        remember: how many ids at least are kept of messages that were acknowledged.
        acknowledge: when a message is acknowledged.
        prefetch: most messages that are delivered and not acknowledged.
    """

    deduplicate: str | None
    remember: int
    acknowledge: Literal["decided", "received"]
    prefetch: int

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading gives, which goes by whether messages have ids."""
        return promise(self.payload.needs_id or None)

    def enumerator(self, workspace: Storage) -> AcknowledgedEnumerator:
        """Return the driver's half: it receives, writes down, and acknowledges."""
        return AcknowledgedEnumerator(
            workspace,
            partial(self._receiver, workspace),
            self.payload.columns,
            when=self.acknowledge,
            by_id=self.deduplicate is not None,
            remember=self.remember,
            most_rows=self.max_rows_per_checkpoint,
        )

    @abstractmethod
    def _receiver(self, workspace: Storage) -> Receiver:
        """Return a connection that is not open yet."""
