"""The driver's half of the PostgreSQL sink: prepared transactions verified, committed, rolled back and swept, from any process.

A transaction that is not there any more was committed exactly if its marker is: the marker had the same fate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from poundlock.checkpoint.participant import JSON, Aborted, Committed, Finding, Orphan, Prepared
from poundlock.checkpoint.portable import Newer
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.postgres.connection import PostgresServer
from poundlock.connectors.postgres.sink.transaction_ids import Markers, epoch_of, prepared
from poundlock.errors import CommitUnknown, DefinitionError, PoundlockError, TerminalError, TransientError

_log = logging.getLogger(__name__)
_UNDEFINED = "42704"  # no prepared transaction of this name
RETENTION_S = 7 * 86_400.0
_OFTEN_S = 3600.0
_cleaned: dict[str, float] = {}  # prefix to when old markers were removed; for the pace alone


class PreparedTransaction(SinkValue, frozen=True):
    """A transaction that a task prepared."""

    rows: int
    bytes: int
    digest: str
    gid: str
    origin: str  # of the marker table it wrote its marker to
    at_ms: int  # by the server's clock

    @property
    def detail(self) -> Mapping[str, Any]:
        """What a commit reports of it."""
        return {"transaction": self.gid, "rows": self.rows, "bytes": self.bytes}


def verify(asked: PostgresServer, prefix: str, named: Sequence[Prepared]) -> None:
    """Check that every transaction is prepared, and roll back what other attempts of the tasks left.

    Called before the decision, when every task has ended and nothing is decided that is not carried out: what is prepared
    and was not handed over is nobody's, and would hold locks. What is of a later epoch is left alone: a driver that slept
    may call this while a newer one has a decision to carry out.

    Raises:
        TransientError: a transaction is gone.
    """
    wanted = {PreparedTransaction.of(item.payload).gid for item in named}
    there = asked.ask(lambda connection: prepared(connection, prefix), "looking for prepared transactions")
    epoch = max((epoch_of(prefix, gid) for gid in wanted), default=0)
    for gid in there:
        if gid not in wanted and epoch_of(prefix, gid) <= epoch:
            roll_back(asked, gid)
    if lost := sorted(wanted - there.keys()):
        raise TransientError(
            f"prepared transaction {lost[0]} is not there any more in PostgreSQL at {asked.login.name}",
            next="find out who rolls back prepared transactions; the checkpoint is repeated",
        )


def commit(asked: PostgresServer, markers: Markers, committable: PreparedTransaction) -> Committed | Aborted:
    """Commit a transaction, or find out what became of it.

    Raises:
        CommitUnknown: the server does not answer.
        TerminalError: it is not known any more, or this user may not.
    """
    gid = committable.gid
    refusal = asked.end(f"COMMIT PREPARED '{gid}'", f"committing {gid}")
    if not refusal:
        return Committed(committable.detail)
    if refusal != _UNDEFINED:
        raise TerminalError(
            f"PostgreSQL at {asked.login.name} does not commit {gid}: error {refusal}",
            next=f"let the user who prepared it type: COMMIT PREPARED '{gid}', and start the job again",
        )
    return _outcome(asked, markers, committable)


def _outcome(asked: PostgresServer, markers: Markers, committable: PreparedTransaction) -> Committed | Aborted:
    gid, where = committable.gid, asked.login.name
    try:
        there, (origin, now_ms) = asked.ask(
            lambda connection: (markers.has(connection, gid), markers.state(connection)),
            f"looking for the marker of {gid}",
        )
    except TransientError as error:
        raise CommitUnknown(error.what, next=error.next) from error
    except (TerminalError, DefinitionError) as error:
        raise _not_known(committable, f"its marker cannot be looked for: {error.what}") from error
    if there:
        return Committed(committable.detail)
    if origin != committable.origin:
        raise _not_known(committable, f"table {markers.table} at {where} was created again")
    if now_ms - committable.at_ms > RETENTION_S * 500:
        raise _not_known(committable, f"its marker may be gone from {markers.table} at {where} by its age")
    return Aborted(f"prepared transaction {gid} was rolled back at {where}")


def _not_known(committable: PreparedTransaction, why: str) -> TerminalError:
    return TerminalError(
        f"nobody knows what became of prepared transaction {committable.gid}: {why}",
        next=f"look whether the table has its {committable.rows} rows; docs/postgres-sink.md says how to go on",
    )


def roll_back(asked: PostgresServer, gid: str) -> None:
    """Roll back a transaction that no decision names. One that is gone already is no error."""
    refusal = asked.end(f"ROLLBACK PREPARED '{gid}'", f"rolling back {gid}")
    if refusal and refusal != _UNDEFINED:
        raise TransientError(
            f"PostgreSQL at {asked.login.name} does not roll back {gid}: error {refusal}",
            next=f"let the user who prepared it type: ROLLBACK PREPARED '{gid}'",
        )


def sweep(
    asked: PostgresServer, markers: Markers, prefix: str, *, remove: bool, check: Callable[[], None]
) -> Sequence[Orphan]:
    """Find prepared transactions of this sink; everything decided has been committed, so they are of attempts that died."""
    left = asked.ask(lambda connection: prepared(connection, prefix), "looking for prepared transactions")
    if remove and left:
        check()
        for gid in left:
            roll_back(asked, gid)
    if remove:
        clean(asked, markers, prefix)
    return [Orphan(f"prepared transaction {gid}", 0, at) for gid, at in left.items()]


def clean(asked: PostgresServer, markers: Markers, prefix: str) -> None:
    """Remove old markers, now and then. Only the newest decision is ever asked for; the others are kept for people."""
    now = time.monotonic()
    if now - _cleaned.get(prefix, -_OFTEN_S) < _OFTEN_S:
        return
    _cleaned[prefix] = now
    try:
        asked.ask(lambda connection: markers.forget(connection, prefix, RETENTION_S), "removing old markers")
    except PoundlockError as error:  # they are small, and a user who may not delete can still write
        _log.warning("old markers stay: %s", error.what)


def inspect(asked: PostgresServer, markers: Markers, committable: PreparedTransaction) -> Sequence[Finding]:
    """Say whether a decided transaction waits or was rolled back; an old one cannot be looked at any more."""
    gid = committable.gid
    waits = asked.ask(lambda connection: gid in prepared(connection, gid), f"looking for {gid}")
    there, (origin, now_ms) = asked.ask(lambda c: (markers.has(c, gid), markers.state(c)), f"looking for {gid}")
    known = origin == committable.origin and now_ms - committable.at_ms <= RETENTION_S * 500
    place = f"prepared transaction {gid}"
    if waits:
        return [Finding("pending", place, expected_bytes=committable.bytes)]
    return [Finding("missing", place, expected_bytes=committable.bytes)] if known and not there else []


def note(asked: PostgresServer, markers: Markers, prefix: str, table: str) -> JSON:
    """Return the server's time, and what the markers of this sink begin with; see `Portable.note`."""
    try:
        origin, now_ms = asked.ask(markers.state, "noting the time")
    except PoundlockError as error:
        return {"v": 1, "table": table, "unknown": error.what}
    return {"v": 1, "table": table, "origin": origin, "at_ms": now_ms, "prefix": prefix}


def newer(asked: PostgresServer, markers: Markers, table: str, recorded: JSON) -> Newer:
    """Look for markers that are younger than the savepoint, by the server's clock; see `Portable.newer`.

    A transaction that was decided before the cut was begun before it. Raises TransientError where no server answers.
    """
    if "at_ms" not in recorded:
        return Newer(
            unknown=str(recorded.get("unknown") or "the savepoint does not say when it was taken by the server's clock")
        )
    if recorded["table"] != table:
        return Newer()  # the job writes elsewhere now, where nothing of the savepoint is
    origin, _ = asked.ask(markers.state, "looking for newer rows")
    if origin != recorded["origin"]:
        return Newer(unknown=f"table {markers.table} is another one than at the savepoint")
    count = asked.ask(lambda c: markers.younger(c, recorded["prefix"], recorded["at_ms"]), "looking for newer rows")
    if not count:
        return Newer()
    what = "1 transaction" if count == 1 else f"{count:,} transactions"
    return Newer(what=f"has {what} in table {table} that this job committed after the savepoint", retractable=False)
