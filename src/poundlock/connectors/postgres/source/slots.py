"""What change data capture needs of the server: a replication slot, and a publication that has all of the table.

A slot is the server's promise to keep the log from a place on. What is given of it goes by the publication as it was when a
change was made. So a change that was made while the publication left it out is given to nobody, ever, and how the publication
is later says nothing about that. But what is created again gets a new number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.connectors.postgres.source.cdc_messages import Begin, lsn_of, lsn_text, parse
from poundlock.connectors.postgres.source.positions import Publication
from poundlock.connectors.postgres.source.relation import Relation
from poundlock.errors import DefinitionError, SourceGoneError

# Each table, what it is a part of, and the schemas of these, as the publication names them.
_BY = """
WITH p AS (SELECT oid, puballtables, oid::text || '.' || xmin::text AS version FROM pg_publication WHERE pubname = %(name)s),
w AS (SELECT unnest(%(oids)s::oid[]) AS read),
t AS (SELECT read, read AS oid FROM w UNION SELECT read, a.relid FROM w CROSS JOIN LATERAL pg_partition_ancestors(read::regclass) a)
SELECT w.read::int8, p.version, 'all' FROM p CROSS JOIN w WHERE p.puballtables
UNION ALL SELECT t.read::int8, p.version, 'table ' || r.oid FROM p JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN t ON t.oid = r.prrelid
"""
_BY_SCHEMA = """
UNION ALL SELECT t.read::int8, p.version, 'schema ' || n.oid FROM p JOIN pg_publication_namespace n ON n.pnpubid = p.oid
JOIN pg_class c ON c.relnamespace = n.pnnspid JOIN t ON t.oid = c.oid
"""
_WAIT_S = 60.0
_LOOK_S = 0.5


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


def as_function(name: str, publication: str, end: int) -> str:
    """Return SQL for the messages of a slot up to a place; they stay in the slot."""
    return (
        f"pg_logical_slot_peek_binary_changes({literal(name)}, '{lsn_text(end)}', NULL,"
        f" 'proto_version', '1', 'publication_names', {literal(identifier(publication))})"
    )


def messages(
    connection: Any, function: str, what: str, *, only: str = "", sleep: Callable[[float], None] = time.sleep
) -> Iterator[bytes]:
    """Yield a slot's messages.

    One session at a time can read a slot: the one of a dead attempt goes in a moment, and others of this job wait for each other.

    Args:
        function: of `as_function`.
        what: what is read, for people.
        only: a condition on the message `data`.

    Raises:
        SourceGoneError: the publication was missing for a while.
    """
    from psycopg.errors import ObjectInUse

    # Since version 18 the server leaves the changes out where the publication was missing, and only warns.
    missing: list[str] = []

    def noticed(notice: Any) -> None:
        if notice.sqlstate == "55000":
            missing.append(notice.sqlstate)

    connection.add_notice_handler(noticed)
    connection.execute("SET client_min_messages = warning")
    waited, started = 0.0, False
    where = f" WHERE {only}" if only else ""
    try:
        while True:
            try:
                for (data,) in connection.cursor().stream(f"SELECT data FROM {function}{where}", binary=True):
                    started = True
                    yield bytes(data)
                break
            except ObjectInUse:
                if started or waited >= _WAIT_S:
                    raise
                sleep(_LOOK_S)
                waited += _LOOK_S
    finally:
        connection.remove_notice_handler(noticed)
    if missing and not only:  # who looks what there is looks at the publication, too, and says more
        raise SourceGoneError(
            f"the publication of {what} was missing for a while, and changes of that time are not given",
            next="start the job over, with an empty target, a new checkpoint and another slot",
        )


def begun(connection: Any, function: str, what: str) -> list[tuple[int, int]]:
    """Return where the commits of a slot's transactions stand in the log, and the numbers of these transactions."""
    begins = messages(connection, function, what, only=f"get_byte(data, 0) = {ord('B')}")
    return [(each.commit, each.xid) for each in map(parse, begins) if isinstance(each, Begin)]


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


def published(connection: Any, publication: str, oids: Sequence[int]) -> dict[int, Publication]:
    """Return how a publication is now, for each of some tables."""
    query = _BY + (_BY_SCHEMA if connection.info.server_version >= 150000 else "")
    rows = connection.execute(query, {"name": publication, "oids": list(oids)}).fetchall()
    by: dict[int, set[str]] = {oid: set() for oid in oids}
    versions: dict[int, str] = {}
    for oid, version, names in rows:
        by[oid].add(names)
        versions[oid] = version
    return {oid: Publication(versions.get(oid, ""), tuple(sorted(by[oid]))) for oid in oids}


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
