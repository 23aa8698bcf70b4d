"""Connections of the sink to its server, and what the server's errors mean in two lines.

A password is read when a connection is made, and stands in no message and no description.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from poundlock.connectors.postgres.connecting import NO_LIMITS
from poundlock.connectors.secrets import secret
from poundlock.errors import CommitUnknown, DefinitionError, PoundlockError, TerminalError, TransientError
from poundlock.redaction import redact_text

if TYPE_CHECKING:
    from poundlock.connectors.postgres.sink_table import Table

__all__ = ["BY_A_ROW", "Address", "Server", "explained", "load_psycopg", "server"]

_SECONDS = 5
_T = TypeVar("_T")
# Each text begins what a server says when it lets nobody in; it has no code that reaches the client.
_REFUSED = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied for database",
    "authentication failed",
)
BY_A_ROW = ("22", "23", "54", "P0")
"""Classes of errors that one row is to blame for: a value that does not fit, a constraint, a limit of the server such as
the size of an index's entry, an exception of a trigger."""
_BUSY = {"55006", "55000"}  # another session is ending the very transaction
# Classes of what passes: connection exceptions, no resources, an operator or a crash, the server's disk.
_PASSING = ("08", "53", "57", "58")
_READ_ONLY = "25006"  # this is not the primary any more


def load_psycopg() -> Any:
    """Return psycopg. Raises DefinitionError where it is not installed."""
    if importlib.util.find_spec("psycopg") is None:
        raise DefinitionError("PostgreSQL needs the package psycopg", next='type: pip install "poundlock[postgres]"')
    import psycopg

    return psycopg


@dataclass(frozen=True)
class Address:
    """Which database, as whom.

    Args:
        dsn: a URL or the words of libpq, or "env:NAME" or "file:PATH" where one of them stands.
        password: the password, "env:NAME" or "file:PATH"; None = in the dsn, or found by libpq as it always does.
    """

    dsn: str = field(repr=False)
    password: str | None = field(default=None, repr=False)

    def parameters(self) -> dict[str, Any]:
        """Return the words of libpq, the password among them. Raises DefinitionError for text that is no address."""
        psycopg = load_psycopg()
        try:
            found: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(secret(self.dsn, "dsn"))
        except psycopg.ProgrammingError:
            raise DefinitionError(  # the text of the error may have the password in it
                "the dsn is not an address of PostgreSQL",
                next='write dsn="postgresql://user@host:5432/database", and the password as password="env:PGPASSWORD"',
            ) from None
        if self.password is not None:
            found["password"] = secret(self.password, "password")
        return found

    def open_text(self) -> str:
        """Return the address without secrets, to be kept in the ledger; "env:NAME" stays what it is."""
        if self.dsn.startswith(("env:", "file:")):
            return self.dsn
        known = {name: value for name, value in self.parameters().items() if name not in ("password", "sslpassword")}
        return str(load_psycopg().conninfo.make_conninfo(**known))

    @property
    def name(self) -> str:
        """Host, port and database, for people."""
        known = self.parameters()
        host = known.get("host") or known.get("hostaddr") or os.environ.get("PGHOST") or "localhost"
        port = known.get("port") or os.environ.get("PGPORT") or "5432"
        return f"{host}:{port}/{known.get('dbname') or os.environ.get('PGDATABASE') or known.get('user') or ''}"

    def connect(self, *, lock_timeout_ms: int = 60_000, seconds: int = _SECONDS) -> Any:
        """Return a connection on which each statement stands alone unless a transaction is begun.

        Raises:
            DefinitionError: the server lets nobody in with these credentials, or has no such database.
            TransientError: no server answers.
        """
        psycopg = load_psycopg()
        known = {"connect_timeout": seconds, "application_name": "poundlock", **self.parameters()}
        try:
            connection = psycopg.connect(**known, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            raise self._not_connected(str(error)) from None
        # Text without a zone means UTC, and a lock that nobody lets go of ends a task instead of holding it for ever.
        with explained(self.name):
            connection.execute(
                f"SET TIME ZONE 'UTC'; SET client_encoding = 'UTF8'; SET lock_timeout = {int(lock_timeout_ms)};"
                " SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
                " SET datestyle = 'ISO, YMD'"
            )
            connection.execute(f"{NO_LIMITS} AND name <> 'lock_timeout'")
        return connection

    def _not_connected(self, said: str) -> PoundlockError:
        text = redact_text(" ".join(said.split()), [str(self.parameters().get("password") or "")])
        if any(sign in text for sign in _REFUSED):
            return DefinitionError(
                f"PostgreSQL at {self.name} refuses the connection: {text.rpartition('FATAL: ')[2].strip()}",
                next="check user, password and database: psql with the same dsn has to connect",
            )
        return TransientError(
            f"no PostgreSQL answers at {self.name}: {text}", next="check the dsn, and that the server runs"
        )


@contextlib.contextmanager
def explained(where: str, doing: str = "writing") -> Iterator[None]:
    """Let nothing of psycopg out but a PoundlockError, which says what the server said."""
    psycopg = load_psycopg()
    try:
        yield
    except psycopg.Error as error:
        raise _told(error, where, doing) from error


def _told(error: Any, where: str, doing: str) -> PoundlockError:
    code, text = error.sqlstate or "", redact_text(_text(error))
    what = f"PostgreSQL at {where}, {doing}: {text}"
    if code == "42501":
        return TerminalError(what, next="let the database's owner GRANT it; docs/postgres-sink.md lists what is needed")
    if code == "53400" or (code == "55000" and "prepared transactions" in text):
        return TransientError(
            what, next="raise max_prepared_transactions of the server, or lower the job's parallelism; it is repeated"
        )
    if code == "55P03":
        return TransientError(
            f"{what}: another transaction holds what this one needs",
            next="where a table has a unique key, two tasks with one key wait for each other: write by key= instead; "
            "else end the other session or what SELECT * FROM pg_prepared_xacts shows of a job that is gone, or make lock_timeout longer",
        )
    if code == _READ_ONLY:
        return TransientError(
            what,
            next="end its read-only state, or name several hosts and target_session_attrs=read-write in the dsn; it is repeated",
        )
    if not code or code.startswith((*_PASSING, "40")):
        return TransientError(what, next="see that the server runs and what it logs; the checkpoint is repeated")
    if code.startswith(BY_A_ROW):
        return TerminalError(what, next="mend the rows before the sink, or the table's constraint")
    return TerminalError(what, next="compare the table with the rows of the sink: poundlock explain shows them")


def _text(error: Any) -> str:
    told = error.diag
    if told is None or not told.message_primary:
        return " ".join(str(error).split()) or type(error).__name__
    detail = f" ({told.message_detail})" if told.message_detail else ""
    return " ".join(f"{told.message_primary}{detail}".split())


class Server:
    """The driver's connection, made when first asked and again after it broke. Threads may share it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.tables: dict[str, Table] = {}
        """What tables looked like at the preflight, by name."""
        self._connection: Any = None
        self._lock = threading.RLock()

    def close(self) -> None:
        """Let go of the connection; it is made again when it is needed again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(Exception):
                    connection.close()

    def ask(self, what: Callable[[Any], _T], doing: str) -> _T:
        """Return what a function makes of a connection; asked twice where an older connection turned out to be broken.

        Only for what may be done twice.
        """
        with self._lock:
            kept = self._connection is not None
            try:
                return self._once(what, doing)
            except TransientError:
                if not kept or self._connection is not None:
                    raise
            return self._once(what, doing)

    def end(self, statement: str, doing: str) -> str:
        """End a prepared transaction; return "" if that was done now, or the code of the server's refusal.

        Raises:
            CommitUnknown: nobody answered, the server cannot do it now, or another session is ending it at this moment.
        """
        psycopg = load_psycopg()

        def run(connection: Any) -> str:
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                if error.sqlstate in _BUSY:
                    raise CommitUnknown(f"{doing}: {_text(error)}") from error
                if error.sqlstate == _READ_ONLY:
                    connection.close()  # another of the hosts may be the primary now
                    raise
                if error.sqlstate is None or error.sqlstate.startswith(_PASSING):
                    raise
                return str(error.sqlstate)
            return ""

        try:
            return self.ask(run, doing)
        except CommitUnknown:
            raise
        except TransientError as error:
            raise CommitUnknown(error.what, next=error.next) from error

    def _once(self, what: Callable[[Any], _T], doing: str) -> _T:
        if self._connection is None or self._connection.closed:
            self._connection = self.address.connect()
        try:
            with explained(self.address.name, doing):
                return what(self._connection)
        except BaseException:
            if self._connection is not None and (self._connection.closed or self._connection.broken):
                self.close()
            raise


def server(address: Address) -> Server:
    """Return this process's connection to a database."""
    return _cached(os.getpid(), address)


@cache
def _cached(process: int, address: Address) -> Server:
    return Server(address)
