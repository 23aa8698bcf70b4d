"""The driver's half of the JDBC sink: staged rows and their marker written in one transaction, once.

Whether the marker is there says what became of a commit that nobody answered.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.participant import Committed
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.examination import Examination
from poundlock.connectors.jdbc.bridge import Connection, JdbcError
from poundlock.connectors.jdbc.dialect import Dialect, dialect_of, prepared
from poundlock.errors import CommitUnknown, DefinitionError, TerminalError, TransientError
from poundlock.storage.probe import standing, try_writing
from poundlock.storage.storage_errors import explained

if TYPE_CHECKING:
    from poundlock.connectors.jdbc.sink import JdbcSink


# Classes of errors that pass: another transaction was in the way, no resources, an operator or a crash, the disk, read-only now.
_PASSING = ("40", "53", "57", "58", "25006")
_kept: dict[tuple[int, str], Connection] = {}  # of this process; made again when they broke


def close(sink: JdbcSink) -> None:
    """Close this process's connection."""
    kept = _kept.pop((os.getpid(), sink.login), None)
    if kept is not None:
        kept.close()


def preflight(sink: JdbcSink) -> None:
    """Raise unless the sink can work; see JdbcSink.preflight."""
    close(sink)
    try:
        connection = _connection(sink)
        if not _markers_there(sink, connection):
            connection.run(f"CREATE TABLE {sink.marker_table} (gid VARCHAR(200) NOT NULL PRIMARY KEY)")
            connection.commit()
        connection.rollback()
    except JdbcError as error:
        close(sink)
        raise _refused(sink, error) from error
    _look_at_staging(sink)


def examine(sink: JdbcSink) -> Examination:
    """Raise as `preflight` does; the table of markers is not made, and whether this user may make it is not known."""
    try:
        there = _markers_there(sink, _connection(sink))
    except JdbcError as error:
        raise _refused(sink, error) from error
    finally:
        close(sink)
    _look_at_staging(sink)
    with explained(f"looking at {sink.staging}", starting=True):
        try_writing(standing(sink.folder()))
    return Examination([] if there else [f"the table of markers {sink.marker_table}"])


def _markers_there(sink: JdbcSink, connection: Connection) -> bool:
    """Raise unless the database has transactions and the table; return whether it has the table of markers, too."""
    if not connection.transactions:
        raise DefinitionError(
            f"{connection.product} at {sink.place} has no transactions, so rows and marker could not be written together",
            next="use a table or database that has them",
        )
    _columns(sink, connection)
    _refuse_engine(sink, connection)
    try:
        connection.rows(f"SELECT gid FROM {sink.marker_table} WHERE gid = ''")
    except JdbcError:
        connection.rollback()
        return False
    return True


def _look_at_staging(sink: JdbcSink) -> None:
    try:
        next(iter(sink.folder().list()), None)
    except OSError as error:
        raise DefinitionError(
            f"staging={sink.staging!r} cannot be used: {error}", next="name a folder that tasks and driver can write to"
        ) from error


def _refuse_engine(sink: JdbcSink, connection: Connection) -> None:
    """Raise DefinitionError for a table of MySQL whose engine has no transactions: the server says that it has them all the same."""
    if dialect_of(connection.product, connection.quote).name != "mysql":
        return
    names = [part.strip(connection.quote).replace("'", "''") for part in sink.table.split(".")]
    schema = f"'{names[0]}'" if len(names) > 1 else "DATABASE()"
    without = connection.rows(
        f"SELECT t.ENGINE FROM information_schema.TABLES t JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
        f" WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = '{names[-1]}' AND e.TRANSACTIONS <> 'YES'"
    )
    if without:
        raise DefinitionError(
            f"table {sink.table} at {sink.place} is of the engine {without[0][0]}, which has no transactions",
            next=f"ALTER TABLE {sink.table} ENGINE = InnoDB",
        )


def check_columns(sink: JdbcSink, name: str, columns: Sequence[str]) -> None:
    """Raise DefinitionError unless the table has columns of these names, as far as a connection is there."""
    connection = _kept.get((os.getpid(), sink.login))
    if connection is None:
        return
    try:
        known = {column.lower(): column for column in _columns(sink, connection)}
    except JdbcError:
        return
    if missing := [column for column in columns if column.lower() not in known]:
        raise DefinitionError(
            f"sink {name!r}: the rows have a column {missing[0]!r}, and table {sink.table} has {', '.join(known.values())}",
            next="leave the column out with columns=[…], or add it to the table",
            participant=name,
        )


class StagedRows(SinkValue, frozen=True):
    """The rows of one task, on their way."""

    gid: str  # the name of their transaction, and of its marker
    file: str  # where they are, below the sink's folder
    rows: int
    bytes: int


def commit(sink: JdbcSink, committable: StagedRows) -> Committed:
    """Write staged rows, or see that they are written.

    Raises:
        CommitUnknown: the database does not answer.
        TerminalError: it refuses a row, or the rows are gone.
    """
    detail = {"transaction": committable.gid, "rows": committable.rows, "bytes": committable.bytes}
    kept = (os.getpid(), sink.login) in _kept
    try:
        try:
            _commit_rows(sink, committable)
        except JdbcError as error:
            close(sink)
            if not kept or not _nothing_known(error):
                raise
            _commit_rows(sink, committable)  # the connection was an old one, which broke meanwhile
    except JdbcError as error:
        close(sink)
        raise _not_committed(sink, committable, error) from error
    sink.folder().delete(committable.file)
    return Committed(detail)


def _commit_rows(sink: JdbcSink, committable: StagedRows) -> None:
    connection = _connection(sink)
    try:
        connection.rollback()
        if not _written(sink, connection, committable.gid):
            _write(sink, connection, committable)
    except JdbcError as error:
        connection.rollback()
        # Another driver may have been at the same work: then it wrote the marker, and all of it.
        if not error.state.startswith("23") or not _written(sink, connection, committable.gid):
            raise
    except BaseException:
        connection.rollback()
        raise


def _nothing_known(error: JdbcError) -> bool:
    return error.away or not error.state


def _not_committed(sink: JdbcSink, committable: StagedRows, error: JdbcError) -> CommitUnknown | TerminalError:
    if _nothing_known(error):
        return CommitUnknown(
            f"the database at {sink.place} does not answer: {_redacted(sink, error)}", next="see that it runs"
        )
    if error.state.startswith(_PASSING):
        return CommitUnknown(f"the database at {sink.place} ended the transaction: {_redacted(sink, error)}")
    return TerminalError(
        f"the database at {sink.place} does not take {committable.rows} decided rows: {_redacted(sink, error)}",
        next=f"mend table {sink.table}, then start the job again: it writes them first",
    )


def _written(sink: JdbcSink, connection: Connection, gid: str) -> bool:
    return bool(connection.rows(f"SELECT gid FROM {sink.marker_table} WHERE gid = '{gid}'"))


def _write(sink: JdbcSink, connection: Connection, committable: StagedRows) -> None:
    # First of all: another driver that is at the same work then waits here, and finds the marker there.
    connection.run(f"INSERT INTO {sink.marker_table} (gid) VALUES ('{committable.gid}')")
    dialect = dialect_of(connection.product, connection.quote)
    known = {name.lower(): name for name in _columns(sink, connection)}
    for names, deleted, rows in _batches(sink, committable, dialect):
        columns = [dialect.named(known.get(name.lower(), name)) for name in names]
        key = [dialect.named(known.get(name.lower(), name)) for name in sink.key or ()]
        if deleted:
            statements = dialect.deletions(sink.table, columns, key, rows)
        else:
            statements = dialect.statements(sink.table, columns, key, rows)
        for statement in statements:
            connection.run(*prepared(statement))
    connection.commit()


def _batches(
    sink: JdbcSink, committable: StagedRows, dialect: Dialect
) -> Iterator[tuple[list[str], bool, list[list[str]]]]:
    """Yield names, whether rows are deleted, and the staged rows as literals; of rows with one key, the last one."""
    import pyarrow as pa

    from poundlock.formats.convert import column_values

    try:
        table = pa.ipc.open_stream(io.BytesIO(sink.folder().read(committable.file))).read_all()
    except FileNotFoundError:
        raise TerminalError(
            f"{committable.file} is gone from {sink.staging}, and its {committable.rows} rows are decided",
            next="put it back; only poundlock may remove files there",
        ) from None
    names = table.schema.names
    values: list[tuple[Any, ...]] = list(zip(*(column_values(c.combine_chunks()) for c in table.columns), strict=True))
    if sink.key:
        at = [names.index(name) for name in sink.key]
        values = list({tuple(row[i] for i in at): row for row in values}.values())
    if sink.delete_when is None:
        yield from ((names, False, some) for some in _literals(sink, dialect, values))
        return
    flag = names.index(sink.delete_when)
    kept = [name for name in names if name != sink.delete_when]
    for deleted in (True, False):
        chosen = [(*row[:flag], *row[flag + 1 :]) for row in values if bool(row[flag]) is deleted]
        yield from ((kept, deleted, some) for some in _literals(sink, dialect, chosen))


def _literals(sink: JdbcSink, dialect: Dialect, values: Sequence[tuple[Any, ...]]) -> Iterator[list[list[str]]]:
    for first in range(0, len(values), sink.batch):
        yield [[dialect.literal(_plain(v)) for v in row] for row in values[first : first + sink.batch]]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _columns(sink: JdbcSink, connection: Connection) -> list[str]:
    return [name for name, _ in connection.columns(f"SELECT * FROM {sink.table} WHERE 1 = 0")]


def _connection(sink: JdbcSink) -> Connection:
    kept = (os.getpid(), sink.login)
    if kept not in _kept:
        _kept[kept] = sink.connect()
    return _kept[kept]


def _redacted(sink: JdbcSink, error: JdbcError) -> str:
    return sink.server.redacted(error.text)


def _refused(sink: JdbcSink, error: JdbcError) -> DefinitionError | TransientError:
    if error.away and not error.state.startswith("08004"):
        return TransientError(
            f"nobody answers at {sink.place}: {_redacted(sink, error)}",
            next="check the URL, and that the database runs",
        )
    if error.state.startswith(("42", "S0", "3F", "HY")) and not error.state.startswith("42501"):
        return DefinitionError(
            f"table {sink.table} at {sink.place}: {_redacted(sink, error)}",
            next=f'CREATE TABLE {sink.table} (…), or name its schema: table="schema.{sink.table.rpartition(".")[2]}"',
        )
    return DefinitionError(
        f"the database at {sink.place} refuses: {_redacted(sink, error)}", next="check user, password and rights"
    )
