"""What a publication has of a table: whether all of it, and whether that was so all the time.

The server decides by the publication as it was when a change was made. So a change that was made while the publication left
it out is given to nobody, ever, and how the publication is later says nothing about that. But what is made anew gets a new
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poundlock.connectors.postgres.connection import identifier
from poundlock.connectors.postgres.source.relation import Relation
from poundlock.errors import DefinitionError, SourceGoneError

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


def check_published(
    connection: Any, relation: Relation, *, publication: str, columns: Sequence[str], what: str
) -> None:
    """Raise DefinitionError, with the command that mends it, unless a publication has every change of a table, whole.

    Args:
        connection: to the server.
        relation: the table.
        publication: its name.
        columns: the columns that are read.
        what: the table, for people.
    """
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


def published(connection: Any, publication: str, oid: int) -> dict[str, Any]:
    """Return what tells whether a publication had a table ever since: its own number and version, and what names the table."""
    query = _BY + (_BY_SCHEMA if connection.info.server_version >= 150000 else "")
    rows = connection.execute(query, [publication, oid, oid]).fetchall()
    return {"version": rows[0][0] if rows else "", "by": sorted(by for _, by in rows)}


def refuse_gap(before: dict[str, Any], now: dict[str, Any], *, publication: str, what: str) -> None:
    """Raise SourceGoneError where a publication may have left out changes between two looks."""
    if before["version"] == now["version"] and set(before["by"]) & set(now["by"]):
        return
    how = (
        f"{what} was taken out of publication {publication!r}"
        if now["by"]
        else f"publication {publication!r} is without {what}"
    )
    if before["version"] != now["version"] and now["by"]:
        how = f"publication {publication!r} was altered or made anew"
    raise SourceGoneError(
        f"{how}, and changes that it left out meanwhile are given to nobody",
        next="start the job anew, with an empty target, a new checkpoint and another slot",
    )
