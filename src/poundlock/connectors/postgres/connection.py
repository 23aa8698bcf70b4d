"""How PostgreSQL is reached, by the source and by the sink: one login, one kind of session, and the driver's kept connection.

Every session speaks the same dialect (UTC, ISO dates, UTF-8), so that a value's text does not depend on anybody's settings. A
password is read when a connection is made, and stands in no message and no description.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from poundlock.connectors.commit_threads import ConnectionPool
from poundlock.connectors.postgres.errors import BUSY, PASSING, READ_ONLY, Use, explained, load_psycopg, server_text
from poundlock.connectors.secrets import secret
from poundlock.errors import CommitUnknown, DefinitionError, TransientError
from poundlock.redaction import redact_text, secret_values
from poundlock.values import Clock, SystemClock, ms_ahead

if TYPE_CHECKING:
    from poundlock.connectors.postgres.sink.table import Table


_SECONDS = 5
_CONNECTIONS = 4  # of the driver, to end transactions by
_T = TypeVar("_T")
_SESSION = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1;"
    " SET bytea_output = 'hex'; SET client_encoding = 'UTF8'"
)
# What a role or database says about long statements is meant for people; a snapshot may be read for hours. Only those
# settings are touched that the server knows. A replication slot may wait for every transaction that runs, hence lock_timeout.
NO_LIMITS = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE setting <> '0' AND name IN ('statement_timeout', 'lock_timeout',"
    " 'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')"
)
# A decided transaction must survive the server's crash.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
_KEYWORD = re.compile(r"""password\s*=\s*('(?:[^'\\]|\\.)*'|\S+)\s*""", re.IGNORECASE)
_IN_URL = re.compile(r"^(postgres(?:ql)?://[^:/?#@]*):[^@]*@")
_IN_QUERY = re.compile(r"(?<=[?&])password=[^&]*&?", re.IGNORECASE)


@dataclass(frozen=True)
class PostgresLogin:
    """Which database, as whom.

    Args:
        dsn: a URL or the words of libpq, or "env:NAME" or "file:PATH" where one of them stands.
        password: the password, "env:NAME" or "file:PATH"; None = in the dsn, or what libpq takes by itself.
    """

    dsn: str = field(repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def elsewhere(self) -> bool:
        """Whether the dsn says where the address stands, and not the address itself."""
        return self.dsn.startswith(("env:", "file:"))

    @property
    def shown(self) -> str:
        """The dsn without any password; "env:NAME" stays what it is."""
        if self.elsewhere:
            return self.dsn
        text = _IN_QUERY.sub("", _IN_URL.sub(r"\1@", self.dsn)).rstrip("?&")
        return redact_text(_KEYWORD.sub("", text)).strip()

    def __repr__(self) -> str:
        return f"Login({self.shown!r})"

    def parameters(self) -> dict[str, Any]:
        """Return the words of libpq, the password among them.

        Raises:
            DefinitionError: the text is no address, or the variable or file with it cannot be read.
        """
        psycopg = load_psycopg()
        try:
            known: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(secret(self.dsn, "dsn"))
        except psycopg.ProgrammingError:
            # What libpq says about a string it cannot read shows a part of it, which may be the password.
            raise DefinitionError(
                "the dsn is not an address of PostgreSQL, no connection string that libpq can read",
                next='write dsn="postgresql://user@host:5432/database", and the password as password="env:PGPASSWORD"',
            ) from None
        if self.password is not None:
            known["password"] = secret(self.password, "password")
        return known

    def check(self) -> None:
        """Raise DefinitionError if the dsn is here and is no address; what stands elsewhere is read when it is needed."""
        if not self.elsewhere:
            PostgresLogin(self.dsn).parameters()

    def open_text(self) -> str:
        """Return the address without secrets, to be kept in the ledger; "env:NAME" stays what it is."""
        if self.elsewhere:
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

    @contextmanager
    def errors(self, doing: str, use: Use = "read") -> Iterator[None]:
        """Turn errors of psycopg into those of this package; see `errors.explained`."""
        with explained(self.name, doing, use=use, secrets=self._secrets()):
            yield

    @contextmanager
    def reading(self, doing: str) -> Iterator[Any]:
        """Give a connection for a while, each statement its own transaction, with errors in this package's words.

        Raises:
            DefinitionError: the server refuses this user, or what is asked of it.
            TransientError: no server answers, or it went away.
        """
        with self.errors(doing), contextlib.closing(self.open()) as connection:
            yield connection

    def connect(self, *, lock_timeout_ms: int = 60_000) -> Any:
        """Return a connection to write with; each statement stands alone unless a transaction is begun.

        Args:
            lock_timeout_ms: a lock that nobody releases ends a task after so long instead of holding it for ever.

        Raises:
            DefinitionError: the server lets nobody in with these credentials, or has no such database.
            TransientError: no server answers.
        """
        with self.errors("connecting", "write"):
            connection = self.open(prepare_threshold=None)
            connection.execute(f"SET lock_timeout = {int(lock_timeout_ms)}; {_DURABLE}")
        return connection

    def open(self, **options: Any) -> Any:
        """Return a connection without time limits; whoever asks for it closes it. Raises psycopg's own errors."""
        connection = self._connected(**options)
        connection.execute(_SESSION)
        connection.execute(NO_LIMITS)
        return connection

    def replication(self) -> Any:
        """Return a connection whose `pgconn` takes replication commands; whoever asks for it closes it."""
        return self._connected(replication="database")

    def _connected(self, **options: Any) -> Any:
        known = {"connect_timeout": _SECONDS, "application_name": "poundlock", **self.parameters()}
        return load_psycopg().connect(**{**known, "autocommit": True, **options})

    def _secrets(self) -> list[str]:
        return sorted(set(secret_values(self.parameters())))


class PostgresServer:
    """The driver's connection, made when first asked and again after it broke. Threads may share it."""

    def __init__(self, login: PostgresLogin) -> None:
        self.login = login
        self.tables: dict[str, Table] = {}
        """What tables looked like at the preflight, by name."""
        self._connection: Any = None
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close the connection; it is made again when it is needed again."""
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
                if error.sqlstate in BUSY:
                    raise CommitUnknown(f"{doing}: {server_text(error)}") from error
                if error.sqlstate == READ_ONLY:
                    connection.close()  # another of the hosts may be the primary now
                    raise
                if error.sqlstate is None or error.sqlstate.startswith(PASSING):
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
            self._connection = self.login.connect()
        try:
            with self.login.errors(doing, "write"):
                return what(self._connection)
        except BaseException:
            if self._connection is not None and (self._connection.closed or self._connection.broken):
                self.close()
            raise


def server(login: PostgresLogin) -> PostgresServer:
    """Return this process's connection to a database."""
    return _kept(os.getpid(), login)[0]


def server_pool(login: PostgresLogin) -> ConnectionPool[PostgresServer]:
    """Return this process's connections to end transactions by; the first of them is that of `server`."""
    return _kept(os.getpid(), login)[1]


@cache
def _kept(process: int, login: PostgresLogin) -> tuple[PostgresServer, ConnectionPool[PostgresServer]]:
    first = PostgresServer(login)
    return first, ConnectionPool(first, lambda: PostgresServer(login), _CONNECTIONS)


def clock_ahead(connection: Any, clock: Clock | None = None) -> int:
    """Return by how many ms the server's clock is ahead of this machine's, negative = behind."""
    clock = clock or SystemClock()
    asked = clock.now_ms()
    row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
    return ms_ahead(int(row[0]), asked, clock.now_ms())


def identifier(name: str) -> str:
    """Return a name as SQL, in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a text as SQL, whatever the session's settings are."""
    quoted = value.replace("'", "''")
    return f"'{quoted}'" if "\\" not in value else " E'" + quoted.replace("\\", "\\\\") + "'"
