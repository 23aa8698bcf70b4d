"""The replication slot of a job: the server's promise to keep the log from a place on. Made, looked at, moved forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.connectors.postgres.connection import NO_LIMITS, PostgresLogin, identifier, literal
from poundlock.connectors.postgres.source.cdc_messages import lsn_of, lsn_text
from poundlock.connectors.postgres.source.publications import check_published
from poundlock.connectors.postgres.source.relation import Relation
from poundlock.errors import DefinitionError, SourceGoneError, TransientError


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A slot as the server shows it. `confirmed`: changes before that place are given no more."""

    plugin: str
    active: bool
    confirmed: int
    lost: str


def find(connection: Any, name: str) -> ReplicationSlot | None:
    """Return the slot of a name, None if there is none."""
    row = connection.execute(
        "SELECT plugin, active, confirmed_flush_lsn::text, coalesce(wal_status, ''), to_jsonb(s)->>'invalidation_reason'"
        " FROM pg_replication_slots s WHERE slot_name = %s",
        [name],
    ).fetchone()
    if row is None:
        return None
    reason = row[4] or ("wal_removed" if row[3] == "lost" else "")
    return ReplicationSlot(row[0] or "", bool(row[1]), lsn_of(row[2]) if row[2] else 0, reason)


def usable(connection: Any, name: str, start: int) -> ReplicationSlot:
    """Return a slot that still has everything from a place on.

    Raises:
        SourceGoneError: it is gone, was invalidated, or was moved past that place by somebody else.
    """
    slot = find(connection, name)
    advice = "start the job anew, with an empty target, a new checkpoint and another slot"
    if slot is None:
        raise SourceGoneError(
            f"replication slot {name!r} is gone, and with it the changes since the checkpoint", next=advice
        )
    if slot.lost:
        raise SourceGoneError(
            f"replication slot {name!r} was invalidated by the server ({slot.lost}): changes this job still needed are gone",
            next=f"raise max_slot_wal_keep_size; {advice}",
        )
    if slot.plugin != "pgoutput":
        raise DefinitionError(
            f"replication slot {name!r} is of plugin {slot.plugin or 'none'!r}, and this job reads pgoutput",
            next="give another name in slot=…",
        )
    if slot.confirmed > start:
        raise SourceGoneError(
            f"replication slot {name!r} stands at {lsn_text(slot.confirmed)}, past this job's place {lsn_text(start)}:"
            " somebody else reads it, or the job was put back to an old savepoint",
            next=f"give every job a slot of its own; {advice}",
        )
    return slot


def check_ready(
    connection: Any, relation: Relation, *, publication: str, columns: Sequence[str], needs_old: bool, what: str
) -> None:
    """Raise DefinitionError, with the command that mends it, unless changes of a table can be read."""
    if (level := connection.execute("SHOW wal_level").fetchone()[0]) != "logical":
        raise DefinitionError(
            f"the server has wal_level={level}, and change data capture needs logical",
            next="ALTER SYSTEM SET wal_level = logical, and restart the server",
        )
    if relation.kind not in ("r", "p"):
        raise DefinitionError(f"{what} is no table, and only tables have changes", next="name a table in table=…")
    check_published(connection, relation, publication=publication, columns=columns, what=what)
    if needs_old and not relation.full_identity:
        raise DefinitionError(
            f"the server does not log the rows of {what} as they were before a change",
            next=f'ALTER TABLE {relation.source} REPLICA IDENTITY FULL, or say before="key" to do with the key of deleted rows',
        )


def make(connection: Any, name: str) -> int:
    """Make a slot, and return the place from which it has every change."""
    row = connection.execute(
        "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [name]
    ).fetchone()
    return lsn_of(row[0])


def drop(connection: Any, name: str) -> None:
    """Remove a slot."""
    connection.execute("SELECT pg_drop_replication_slot(%s)", [name])


def advance(connection: Any, name: str, to: int) -> None:
    """Tell the server that changes before a place are needed no more. Does nothing where it knows."""
    slot = find(connection, name)
    if slot is not None and not slot.lost and slot.confirmed < to:
        connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [name, lsn_text(to)])


class Exported:
    """A slot just made, and the state of the tables at its very beginning, for as long as the connection stays open."""

    def __init__(self, connection: Any, lsn: int, snapshot: str) -> None:
        self._connection = connection
        self.lsn, self.snapshot = lsn, snapshot

    def close(self) -> None:
        """Close the connection that holds the state; the slot stays."""
        self._connection.finish()


def export(login: PostgresLogin, name: str) -> Exported:
    """Make a slot by the replication protocol, which alone gives the state of the tables that belongs to it.

    Raises:
        DefinitionError: the user may not.
        TransientError: the server cannot now.
    """
    from psycopg import pq

    connection = login.replication()
    connection.exec_(NO_LIMITS.encode())  # it only waits while the state is read
    with_snapshot = "(SNAPSHOT 'export')" if connection.server_version >= 150000 else "EXPORT_SNAPSHOT"
    result = connection.exec_(f"CREATE_REPLICATION_SLOT {identifier(name)} LOGICAL pgoutput {with_snapshot}".encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        message = " ".join(result.error_message.decode(errors="replace").split())
        connection.finish()
        raise TransientError(f"replication slot {name!r} could not be made: {message}", next="a restart tries again")
    lsn, snapshot = result.get_value(0, 1).decode(), result.get_value(0, 2).decode()
    return Exported(connection, lsn_of(lsn), snapshot)


def as_function(name: str, publication: str, end: int) -> str:
    """Return SQL for the messages of a slot up to a place; they stay in the slot."""
    return (
        f"pg_logical_slot_peek_binary_changes({literal(name)}, '{lsn_text(end)}', NULL,"
        f" 'proto_version', '1', 'publication_names', {literal(identifier(publication))})"
    )
