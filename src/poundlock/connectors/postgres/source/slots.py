"""What change data capture needs of the server: a replication slot, and a publication that has all of the table.

A slot is the server's promise to keep the log from a place on. What is given of it goes by the publication as it was when a
change was made. So a change that was made while the publication left it out is given to nobody, ever, and how the publication
is later says nothing about that. But what is created again gets a new number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.connectors.postgres.connection import NO_LIMITS, PostgresLogin, identifier, literal
from poundlock.connectors.postgres.source.cdc_messages import lsn_of, lsn_text
from poundlock.connectors.postgres.source.positions import Publication
from poundlock.connectors.postgres.source.relation import Relation
from poundlock.errors import DefinitionError, SourceGoneError, TransientError

# The table, what it is a part of, and the schemas of these, each as the publication names it.
_BY = """
WITH p AS (SELECT oid, puballtables, oid::text || '.' || xmin::text AS version FROM pg_publication WHERE pubname = %s),
t AS (SELECT %s::oid AS oid UNION SELECT relid FROM pg_partition_ancestors(%s::oid::regclass))
SELECT p.version, 'all' FROM p WHERE p.puballtables
UNION ALL SELECT p.version, 'table ' || r.oid FROM p JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN t ON t.oid = r.prrelid
"""
_BY_SCHEMA = """
UNION ALL SELECT p.version, 'schema ' || n.oid FROM p JOIN pg_publication_namespace n ON n.pnpubid = p.oid
WHERE n.pnnspid IN (SELECT relnamespace FROM pg_class JOIN t ON t.oid = pg_class.oid)
"""


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
    advice = "start the job over, with an empty target, a new checkpoint and another slot"
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
            next=f'ALTER TABLE {relation.source} REPLICA IDENTITY FULL, or say before="key" to do with the key of deleted rows; in SQL, changelog-mode upsert',
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


@dataclass
class Exported:
    """A slot just made, and the state of the tables at its very beginning, for as long as the connection stays open."""

    connection: Any
    lsn: int
    snapshot: str

    def close(self) -> None:
        """Close the connection that holds the state; the slot stays."""
        self.connection.close()


def export(login: PostgresLogin, name: str) -> Exported:
    """Make a slot by the replication protocol, which alone gives the state of the tables that belongs to it.

    Raises:
        DefinitionError: the user may not.
        TransientError: the server cannot now.
    """
    from psycopg import pq

    connection = login.replication()
    connection.pgconn.exec_(NO_LIMITS.encode())  # it only waits while the state is read
    with_snapshot = "(SNAPSHOT 'export')" if connection.info.server_version >= 150000 else "EXPORT_SNAPSHOT"
    result = connection.pgconn.exec_(
        f"CREATE_REPLICATION_SLOT {identifier(name)} LOGICAL pgoutput {with_snapshot}".encode()
    )
    if result.status != pq.ExecStatus.TUPLES_OK:
        message = " ".join(result.error_message.decode(errors="replace").split())
        connection.close()
        raise TransientError(f"replication slot {name!r} could not be made: {message}", next="a restart tries again")
    lsn, snapshot = result.get_value(0, 1).decode(), result.get_value(0, 2).decode()
    return Exported(connection, lsn_of(lsn), snapshot)


def as_function(name: str, publication: str, end: int) -> str:
    """Return SQL for the messages of a slot up to a place; they stay in the slot."""
    return (
        f"pg_logical_slot_peek_binary_changes({literal(name)}, '{lsn_text(end)}', NULL,"
        f" 'proto_version', '1', 'publication_names', {literal(identifier(publication))})"
    )


def check_published(
    connection: Any, relation: Relation, *, publication: str, columns: Sequence[str], what: str
) -> None:
    """Raise DefinitionError, with the command that mends it, unless a publication has every change of a table, whole."""
    row = connection.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication WHERE pubname = %s",
        [publication],
    ).fetchone()
    name = identifier(publication)
    if row is None:
        raise DefinitionError(
            f"there is no publication {publication!r}", next=f"CREATE PUBLICATION {name} FOR TABLE {relation.source}"
        )
    if not row[0]:
        raise DefinitionError(
            f"publication {publication!r} leaves out inserts, updates, deletes or truncates",
            next=f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )
    if relation.kind == "p" and not row[1]:
        raise DefinitionError(
            f"{what} is partitioned, and publication {publication!r} shows its parts instead",
            next=f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)",
        )
    has = connection.execute(
        "SELECT to_jsonb(t)->>'rowfilter', to_jsonb(t)->'attnames' FROM pg_publication_tables t WHERE t.pubname = %s"
        " AND (t.schemaname, t.tablename) = (SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE c.oid = %s::oid)",  # to_regclass is refused where a schema is not for this user
        [publication, relation.oid],
    ).fetchone()
    if has is None:
        raise DefinitionError(
            f"publication {publication!r} does not have table {what}",
            next=f"ALTER PUBLICATION {name} ADD TABLE {relation.source}",
        )
    if has[0] is not None:
        raise DefinitionError(
            f"publication {publication!r} has only the rows of {what} that meet {has[0]}",
            next="make a publication without WHERE, and filter the rows in the job",
        )
    left_out = [column for column in columns if has[1] is not None and column not in has[1]]
    if left_out:
        raise DefinitionError(
            f"publication {publication!r} leaves out column {left_out[0]!r} of {what}",
            next=f"name the others in columns=[…], or make a publication FOR TABLE {relation.source} without a list of columns",
        )


def published(connection: Any, publication: str, oid: int) -> Publication:
    """Return how a publication is now, for a table."""
    query = _BY + (_BY_SCHEMA if connection.info.server_version >= 150000 else "")
    rows = connection.execute(query, [publication, oid, oid]).fetchall()
    return Publication(rows[0][0] if rows else "", tuple(sorted(by for _, by in rows)))


def refuse_gap(before: Publication, now: Publication, *, publication: str, what: str) -> None:
    """Raise SourceGoneError where a publication may have left out changes between two looks."""
    if before.version == now.version and set(before.by) & set(now.by):
        return
    how = f"{what} was taken out of publication {publication!r}"
    if not now.by:
        how = f"publication {publication!r} is without {what}"
    elif before.version != now.version:
        how = f"publication {publication!r} was altered or created again"
    raise SourceGoneError(
        f"{how}, and changes that it left out meanwhile are given to nobody",
        next="start the job over, with an empty target, a new checkpoint and another slot",
    )
