"""Driver's half of a source whose messages are the broker's until they are acknowledged.

A message is written into the workspace before a checkpoint reads it, and acknowledged when that checkpoint is decided: a broker gives again what was
not acknowledged. Messages with ids of their own are known again, so that a second delivery makes no second row; without ids, what was
written and not decided is removed on a start, for it comes again, and only what was decided and not acknowledged comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import ReplayPromise, Split
from poundlock.connectors.messages.inbox import ID, Inbox
from poundlock.connectors.messages.remembered_ids import RememberedIds
from poundlock.errors import TransientError
from poundlock.storage import Storage

When = Literal["decided", "received"]
ROWS_PER_FILE = 5_000


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as it came.

    Args:
        tag: by which it is acknowledged, on the connection that it came by; those of later messages are greater.
        id: of the message, the same when it comes again; None where there is none.
        row: column to value.
    """

    tag: int
    id: str | None
    row: Mapping[str, Any]


class Receiver(Protocol):
    """A connection by which messages come. Used by one thread; what keeps it alive beside checkpoints is its own affair."""

    def start(self) -> None:
        """Connect, and let messages come. Raises TransientError or DefinitionError."""

    def received(self) -> Sequence[ReceivedMessage]:
        """Return what came since the last call, in order; waits for no more than is on its way. Raises TransientError if the connection broke."""

    def acknowledge(self, tags: Sequence[int]) -> None:
        """Tell the broker, and return when it has taken note. Raises TransientError if it cannot be known that it has."""

    def waiting(self) -> int | None:
        """Return how many messages wait at the broker, as far as is known; asks nobody."""

    def close(self) -> None:
        """End the connection. What was not acknowledged is the broker's again. Raises nothing."""


def promise(id: str | None) -> ReplayPromise:
    """Return what such a source promises, by what the id of its messages is called; None = they have none."""
    if id is None:
        return ReplayPromise(
            "redelivered", "a message that was decided and not acknowledged when the driver died comes a second time"
        )
    return ReplayPromise(
        "exact", f"a message is written down before it is read, and one that is delivered again is known by its {id}"
    )


class AcknowledgedEnumerator:
    """Receives into an inbox, and acknowledges.

    Args:
        workspace: the source's.
        receiver: makes the connection; called again after one that broke.
        columns: what rows have.
        when: "decided" or "received": when a message is acknowledged.
        by_id: whether messages have ids by which a second delivery is known.
        remember: how many ids at least are kept of messages whose file is gone.
        most_rows: most rows in one checkpoint.
    """

    def __init__(
        self,
        workspace: Storage,
        receiver: Callable[[], Receiver],
        columns: pa.Schema,
        *,
        when: When,
        by_id: bool,
        remember: int,
        most_rows: int,
    ) -> None:
        self._storage, self._make = workspace, receiver
        self._columns = columns.append(pa.field(ID, pa.string()))
        self._when, self._by_id, self._most = when, by_id, most_rows
        self._inbox = Inbox(workspace)
        self._receiver: Receiver | None = None
        self._begun = False
        self._failure: TransientError | None = None
        self._held: list[ReceivedMessage] = []
        self._tags: list[
            tuple[int, int]
        ] = []  # of messages that wait for their acknowledgement, and the file each is in
        self._ids = RememberedIds(workspace, self._inbox, remember)
        self._decided = 0

    def initial(self) -> JSON:
        return {"file": 0}

    def latest(self, start: JSON) -> JSON:
        number = int(start["file"])
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if not self._begun:
            self._begin(number)
        self._write_down()
        return {"file": self._inbox.end(number, self._most)}

    def splits(self, start: JSON, end: JSON) -> Sequence[Split]:
        return self._inbox.splits(int(start["file"]), int(end["file"]))

    def finished(self, position: JSON) -> bool:
        return False

    def committed(self, position: JSON) -> None:
        """Acknowledge what is decided. Where the connection broke, the next `latest` says so, and the messages come again."""
        number = int(position["file"])
        self._decided = max(self._decided, number)
        try:
            self._acknowledge()
        except TransientError as error:
            self._failure = error  # a decided checkpoint is not undone by it, so the next `latest` raises it
            self._drop_connection()
            return
        gone = self._inbox.committed(number)
        if self._by_id:
            self._ids.keep(gone)
        self._inbox.delete(gone)

    def lag(self, position: JSON) -> int | None:
        """Return how many messages wait."""
        at_broker = None if self._receiver is None else self._receiver.waiting()
        return None if at_broker is None else at_broker + len(self._held)

    def close(self) -> None:
        """End the connection; what was not acknowledged is the broker's again."""
        self._drop_connection()

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        self._inbox.begin(number, keep=self._by_id or self._when == "received")
        self._decided = max(self._decided, number)
        if self._by_id:
            self._ids.load()
        self._begun = True

    def _write_down(self) -> None:
        if self._receiver is None:
            self._receiver = self._make()
            try:
                self._receiver.start()
            except BaseException:
                self._drop_connection()
                raise
        try:
            self._held.extend(self._receiver.received())
            while self._held:
                self._write_file(min(self._most, ROWS_PER_FILE))
            self._acknowledge()
        except BaseException:
            # What was not written, or not acknowledged, comes again by another connection, after a start.
            self._drop_connection()
            raise

    def _write_file(self, most: int) -> None:
        """Write some messages, but for those that are known, as the next file."""
        file = self._inbox.next
        fresh: list[ReceivedMessage] = []
        ids: dict[str, int] = {}
        taken = 0
        for delivery in self._held:
            if len(fresh) == most:
                break
            taken += 1
            id = delivery.id if self._by_id else None
            known = None if id is None else ids.get(id, self._ids.file_of(id))
            self._tags.append((delivery.tag, file if known is None else known))
            if known is None:
                fresh.append(delivery)
                if id is not None:
                    ids[id] = file
        if fresh:
            columns = {f.name: pa.array([each.row.get(f.name) for each in fresh], f.type) for f in self._columns}
            columns[ID] = pa.array([each.id for each in fresh], pa.string())
            self._inbox.put(pa.table(columns, schema=self._columns))
            self._ids.add(ids)
        del self._held[:taken]

    def _acknowledge(self) -> None:
        """Tell the broker of what is decided, or of all that is written where that is enough."""
        if self._receiver is None:
            return
        done = self._decided if self._when == "decided" else self._inbox.next
        ready = [tag for tag, file in self._tags if file < done]
        if ready:
            self._receiver.acknowledge(ready)
            self._tags = [each for each in self._tags if each[1] >= done]

    def _drop_connection(self) -> None:
        """Close it. What was held, or waits for its acknowledgement, comes again."""
        receiver, self._receiver, self._begun = self._receiver, None, False
        self._held.clear()
        self._tags.clear()
        if receiver is not None:
            receiver.close()
