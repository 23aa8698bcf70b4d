"""A two-phase-commit sink of a user's own: four methods around a transaction, and the checkpoint protocol around them.

The user's object never meets a decision: begin, invoke and pre_commit run in the tasks, commit and abort in the driver.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from poundlock.calls import check_methods
from poundlock.checkpoint.capabilities import Bindable, Preflight
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Kind,
    Orphan,
    Participant,
    Prepared,
    WriterContext,
    unchecked,
)
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.errors import DefinitionError, TerminalError

if TYPE_CHECKING:
    from poundlock.formats.chunk import Chunk


class TwoPhaseCommitSink(ABC):
    """Derive from it, write the four methods and `invoke`, and give an instance to `sink_to`.

    A transaction is what `begin_transaction` returns: a JSON value (text, number, list, dict) that names the transaction to
    any process. What else a task needs, such as an open file, it keeps on `self`: every task attempt works on a copy of
    its own, made with `copy.copy` of the pickled object. In the driver only `commit`, `abort` and `lingering` are called.
    """

    prepares_ahead: bool = False
    """Set it where the next checkpoint's transactions may be written while those of this one are committed: its tasks then need not
    wait. Leave it where a transaction holds locks that the next one needs, or where only so many can be open."""

    @abstractmethod
    def begin_transaction(self, id: str) -> Any:
        """Task: begin a transaction for this task's rows of one checkpoint, and return its name.

        Args:
            id: a name that no other attempt of any task ever has; letters, digits, "-". Use it in whatever you create.
        """

    @abstractmethod
    def invoke(self, transaction: Any, record: Mapping[str, Any]) -> None:
        """Task: write one record, column name to value. Nothing of it may be visible to a reader yet."""

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Task: make everything durable, so that `commit` can no longer fail for a reason of its own."""

    @abstractmethod
    def commit(self, transaction: Any) -> None:
        """Driver, after the decision: make it visible. May be called again, from another process, and must then do nothing.

        Raises:
            CommitUnknown: it is not known whether it was committed; it will be called again.
        """

    @abstractmethod
    def abort(self, transaction: Any) -> None:
        """Driver or task: drop everything. May be called again, and for a transaction that never came to anything."""

    def lingering(self, prefix: str) -> Iterable[Any]:
        """Driver, on start: return the open transactions whose id begins with `prefix`, left by attempts that died.

        They are aborted. The default knows of none, so what dead attempts left stays where it is.
        """
        return ()

    def describe(self) -> str:
        """Return one line for `explain`."""
        return f"{type(self).__name__} (two-phase commit; exactly-once)"

    def as_participant(self) -> TwoPhaseParticipant:
        """Return what takes part in checkpoints for this sink."""
        check_methods(self, TwoPhaseCommitSink, "sink_to")
        return TwoPhaseParticipant(self)


class UserTransaction(SinkValue, frozen=True):
    """A transaction that a task has pre-committed: what `begin_transaction` returned, and how many rows it has."""

    transaction: Any
    rows: int


@dataclass(frozen=True)
class TwoPhaseParticipant(Bindable, Participant):
    """Takes part in checkpoints for a user's sink."""

    sink: TwoPhaseCommitSink
    prefix: str = ""  # how the ids of its transactions begin; "" until it is bound to a job

    kind = Kind.TRANSACTIONAL
    holds_readers = True

    def bind(self, *, job_id: str, sink: str) -> TwoPhaseParticipant:
        return replace(self, prefix=f"{job_id[:12]}-{_letters(sink)}-")

    @property
    def prepares_ahead(self) -> bool:
        return self.sink.prepares_ahead

    def preflight(self) -> None:
        """Ask the user's sink, if it has a method `preflight`, whether it can work."""
        if isinstance(self.sink, Preflight):
            self.sink.preflight()

    def describe(self) -> str:
        return self.sink.describe()

    def open_writer(self, context: WriterContext) -> TwoPhaseWriter:
        return TwoPhaseWriter(
            copy.copy(self.sink), f"{self.prefix}{context.checkpoint}-{context.subtask}-{context.attempt}"
        )

    def commit(self, committable: JSON) -> Committed | Aborted:
        transaction = UserTransaction.of(committable).transaction
        self.sink.commit(transaction)
        return Committed({"transaction": transaction})

    def abort(self, prepared: Prepared) -> None:
        self.sink.abort(UserTransaction.of(prepared.payload).transaction)

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        """Find, and abort if asked, the transactions that dead attempts left: all that were decided are committed by now."""
        if not self.prefix:
            return []
        left = list(self.sink.lingering(self.prefix))
        if remove and left:
            check()
            for transaction in left:
                self.sink.abort(transaction)
        return [Orphan(f"transaction {json.dumps(transaction)}", 0, 0) for transaction in left]


class TwoPhaseWriter:
    """One transaction in one task attempt."""

    def __init__(self, sink: TwoPhaseCommitSink, id: str) -> None:
        self._sink = sink
        self._transaction = sink.begin_transaction(id)
        self._rows = 0

    def write(self, chunk: Chunk) -> int:
        """Hand every record to the user's `invoke`."""
        from poundlock.formats.convert import to_records

        invoke, transaction = self._sink.invoke, self._transaction
        for record in to_records(chunk).rows:
            invoke(transaction, record)
        self._rows += len(chunk)
        return len(chunk)

    def prepare(self) -> Sequence[JSON]:
        self._sink.pre_commit(self._transaction)
        try:
            plain = json.loads(json.dumps(self._transaction))
        except (TypeError, ValueError):
            plain = None
        if plain != self._transaction or plain is None:
            self.abandon()
            raise TerminalError(
                f"{type(self._sink).__name__}.begin_transaction returned {self._transaction!r}, which is not plain JSON",
                next="return text or a dict of texts and numbers, and keep open files and connections on self",
            )
        return [UserTransaction(v=1, transaction=plain, rows=self._rows).to_json()]

    def abandon(self) -> None:
        """Abort; an error is left to the sweep of the next start."""
        try:
            self._sink.abort(self._transaction)
        except Exception:
            return


def _letters(name: str) -> str:
    """Return a sink's name in letters that are allowed anywhere, unlike for unlike names."""
    plain = "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in name)
    if not plain:
        raise DefinitionError("a sink has an empty name", next='give it one: .sink_to(sink, name="out")')
    return plain
