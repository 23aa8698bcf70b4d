"""What a PostgresSink may say, when it is written down, and what is asked of its server before anything starts.

Each refusal names the setting and what to type; nothing is made but the table of markers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from poundlock.arguments import check_choices
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.examination import Examination
from poundlock.connectors.postgres.connection import clock_ahead
from poundlock.connectors.postgres.errors import explained, load_psycopg
from poundlock.connectors.postgres.sink.table import Table, check_types, look_up, matched
from poundlock.connectors.postgres.sink.transaction_ids import Markers
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.postgres.sink.sink import PostgresSink


_UNIQUE = """
SELECT array_agg(a.attname ORDER BY a.attname) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
  AND i.indnkeyatts = i.indnatts
GROUP BY i.indexrelid
"""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


def check_sink(sink: PostgresSink) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    if not isinstance(sink.dsn, str) or not sink.dsn.strip():
        raise DefinitionError(
            "PostgresSink has no dsn", next='write dsn="postgresql://user@host:5432/database" or dsn="env:DATABASE_URL"'
        )
    sink.login.check()
    if not isinstance(sink.table, str) or not sink.table.strip():
        raise DefinitionError(f"table={sink.table!r} is no table", next='write table="events" or table="schema.events"')
    check_choices(sink, {"guarantee": ("exactly-once", "effectively-once", "at-least-once")})
    if sink.guarantee == "effectively-once" and not sink.key:
        raise DefinitionError(
            'guarantee="effectively-once" writes rows by key, and there is none', next='name the key: key=["id"]'
        )
    if sink.guarantee != "effectively-once" and sink.key is not None:
        raise DefinitionError(
            f'rows with a key replace each other, which is guarantee="effectively-once" and not {sink.guarantee!r}',
            next="leave guarantee out, or leave key out to add every row",
        )
    if sink.delete_when is not None and not sink.key:
        raise DefinitionError("delete_when= needs a key to find the row by", next='name the key: key=["id"]')
    for name in ("key", "columns"):
        given = getattr(sink, name)
        if given is not None and (not given or not all(isinstance(x, str) and x for x in given)):
            raise DefinitionError(f"{name}={list(given)!r} does not name columns", next=f'write {name}=["id"]')
    if sink.columns is not None and (missing := [name for name in sink.key or () if name not in sink.columns]):
        raise DefinitionError(f"key column {missing[0]!r} is not in columns=", next="add it to columns=")
    if not isinstance(sink.marker_table, str) or not _PLAIN.fullmatch(sink.marker_table):
        raise DefinitionError(
            f"marker_table={sink.marker_table!r} is not a plain name", next='write marker_table="poundlock_commits"'
        )
    if sink.lock_timeout_ms < 1:
        raise DefinitionError("lock_timeout must be longer than 0", next='write lock_timeout="60 s"')


def check_columns(sink: PostgresSink, name: str, columns: Sequence[str], table: Table | None) -> None:
    """Raise DefinitionError unless rows with these columns have what is written, and the table has columns for it."""
    needed = [*(sink.columns or ()), *(sink.key or ()), *([sink.delete_when] if sink.delete_when else [])]
    need_columns(name, needed, columns)
    if table is not None:
        matched(table, name, written(sink, columns))


def check_schema(sink: PostgresSink, name: str, schema: pa.Schema, table: Table | None) -> None:
    """Raise DefinitionError unless the types of the rows fit those of the table."""
    if table is None:
        return
    names = written(sink, schema.names)
    check_types(table, name, matched(table, name, names), [schema.field(column) for column in names])
    if sink.delete_when is not None and str(schema.field(sink.delete_when).type) != "bool":
        raise DefinitionError(
            f"sink {name!r}: delete_when={sink.delete_when!r} is {schema.field(sink.delete_when).type}",
            next="make it a boolean column",
            participant=name,
        )


def written(sink: PostgresSink, columns: Sequence[str]) -> list[str]:
    """Return which of the rows' columns are written."""
    return [name for name in (sink.columns or columns) if name != sink.delete_when]


def preflight(sink: PostgresSink) -> Table:
    """Raise unless the sink can work, see PostgresSink.preflight; return its table."""
    with _asking(sink) as connection:
        table = _look(sink, connection)
        if sink.mode != "append":
            _make_markers(sink, connection)
        return table


def examine(sink: PostgresSink) -> Examination:
    """Raise as `preflight` does; the table of markers is made in a transaction that is rolled back."""
    with _asking(sink) as connection:
        _look(sink, connection)
        made: list[str] = []
        if sink.mode != "append" and not _markers_there(sink, connection):
            made.append(f"the table of markers {Markers(sink.marker_table).table}")
        if sink.mode != "append":
            _make_markers(sink, connection, keep=False)
        return Examination(made, clock_ahead(connection), f"PostgreSQL at {sink.login.name}")


@contextmanager
def _asking(sink: PostgresSink) -> Iterator[Any]:
    doing = "asking whether rows can be written"
    with closing(sink.login.connect(lock_timeout_ms=4000)) as connection, explained(sink.login.name, doing):
        connection.execute("SET statement_timeout = 4000")
        yield connection


def _look(sink: PostgresSink, connection: Any) -> Table:
    """Raise unless the server takes the rows as the sink's mode asks; return its table. Nothing is made."""
    where = sink.login.name
    if connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]:
        raise DefinitionError(
            f"PostgreSQL at {where} is a standby and takes no rows",
            next="name the primary, or several hosts and target_session_attrs=read-write in the dsn",
        )
    table = look_up(connection, sink.table, where)
    if sink.columns is not None:
        matched(table, sink.table, written(sink, sink.columns))
    _check_rights(sink, connection, table)
    if sink.mode == "prepare":
        _check_logged(table, where)
        _prepared_most(sink, connection)
    if sink.mode == "upsert":
        _check_temporary(sink, connection)
        _check_key(sink, connection, table)
    return table


def check_tasks(sink: PostgresSink, tasks: int, sinks: int) -> None:
    """Raise DefinitionError unless the server takes a prepared transaction of every task and sink at once."""
    if sink.mode != "prepare":
        return
    with closing(sink.login.connect()) as connection:
        most = _prepared_most(sink, connection)
    if most < tasks * sinks:
        raise DefinitionError(
            f"PostgreSQL at {sink.login.name} takes {most} prepared transactions, and {tasks} tasks and {sinks} sinks need"
            f" {tasks * sinks}",
            next=f"ALTER SYSTEM SET max_prepared_transactions = {2 * tasks * sinks} and start the server again,"
            " or lower the job's parallelism",
        )


def _prepared_most(sink: PostgresSink, connection: Any) -> int:
    most = int(connection.execute("SHOW max_prepared_transactions").fetchone()[0])
    if most == 0:
        raise DefinitionError(
            f"PostgreSQL at {sink.login.name} has prepared transactions switched off: max_prepared_transactions = 0",
            next="ALTER SYSTEM SET max_prepared_transactions = 64 and start the server again; or write by key: key=[…]",
        )
    return most


def _check_logged(table: Table, where: str) -> None:
    if table.unlogged:
        raise DefinitionError(
            f"table {table.name} in PostgreSQL at {where} is unlogged: a crash of the server empties it",
            next=f"ALTER TABLE {table.name} SET LOGGED",
        )


def _check_rights(sink: PostgresSink, connection: Any, table: Table) -> None:
    wanted = ["INSERT", *(["SELECT", "UPDATE"] if sink.mode == "upsert" else [])]
    wanted += ["DELETE"] if sink.delete_when else []
    for right in wanted:
        # Nobody deletes a column.
        column = "" if right == "DELETE" else " OR has_any_column_privilege(%(table)s::oid, %(right)s)"
        query = f"SELECT has_table_privilege(%(table)s::oid, %(right)s){column}, current_user"
        allowed, user = connection.execute(query, {"table": table.oid, "right": right}).fetchone()
        if not allowed:
            raise DefinitionError(
                f"PostgreSQL at {sink.login.name} does not allow user {user} {right} on table {table.name}",
                next=f'let its owner type: GRANT {", ".join(wanted)} ON {table.name} TO "{user}"',
            )


def _check_temporary(sink: PostgresSink, connection: Any) -> None:
    database, allowed, user = connection.execute(
        "SELECT current_database(), has_database_privilege(current_database(), 'TEMPORARY'), current_user"
    ).fetchone()
    if not allowed:
        raise DefinitionError(
            f"PostgreSQL at {sink.login.name} does not allow user {user} temporary tables, which rows by key go through",
            next=f'let its owner type: GRANT TEMPORARY ON DATABASE "{database}" TO "{user}"',
        )


def _check_key(sink: PostgresSink, connection: Any, table: Table) -> None:
    key = sorted(sink.key or ())
    known = {column.name for column in table.columns}
    if missing := [name for name in key if name not in known]:
        raise DefinitionError(
            f"key column {missing[0]!r} is not in table {table.name}, which has {', '.join(sorted(known))}",
            next="name columns of the table in key=[…]",
        )
    if not any(sorted(names) == key for (names,) in connection.execute(_UNIQUE, (table.oid,)).fetchall()):
        listed = ", ".join(f'"{name}"' for name in sink.key or ())
        raise DefinitionError(
            f"table {table.name} in PostgreSQL at {sink.login.name} has no unique key of just ({', '.join(key)})",
            next=f"ALTER TABLE {table.name} ADD UNIQUE ({listed})",
        )


def _markers_there(sink: PostgresSink, connection: Any) -> bool:
    query = "SELECT to_regclass(%s) IS NOT NULL"
    return bool(connection.execute(query, (Markers(sink.marker_table).table,)).fetchone()[0])


def _make_markers(sink: PostgresSink, connection: Any, *, keep: bool = True) -> None:
    """Make the table of markers where it is not there, and see that it takes one; without `keep`, in a transaction that is rolled back."""
    markers = Markers(sink.marker_table)
    # Two jobs that start at once must not make it twice.
    once = "BEGIN; SELECT pg_advisory_xact_lock(7018652)"
    trial = f"INSERT INTO {markers.table} (gid) VALUES ('preflight'); ROLLBACK"
    try:
        there = _markers_there(sink, connection)
        if not keep:
            connection.execute(f"{'BEGIN' if there else f'{once}; {markers.ddl}'}; {trial}")
            return
        if not there:
            connection.execute(f"{once}; {markers.ddl}; {markers.birth}; COMMIT")
        elif markers.state(connection)[0] is None:  # somebody else made it
            connection.execute(f"{once}; {markers.birth}; COMMIT")
        connection.execute(f"SELECT FROM {markers.table} WHERE gid = ''")
        connection.execute(f"BEGIN; {trial}")
    except load_psycopg().Error as failure:
        if failure.sqlstate not in ("42501", "3F000"):
            raise
        raise DefinitionError(
            f"the table of markers {markers.table} at {sink.login.name} cannot be used: {failure.diag.message_primary}",
            next=f"let somebody who may type: {markers.ddl}; GRANT SELECT, INSERT, UPDATE, DELETE ON {markers.table} TO "
            "this user; or name another with marker_table=",
        ) from failure
