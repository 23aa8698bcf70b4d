"""How PostgreSQL is reached, and what its refusals mean. Nothing here ever shows a password.

Every session speaks the same dialect (UTC, ISO dates, UTF-8), so that a value's text does not depend on anybody's settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from poundlock.connectors.kafka.security import secret
from poundlock.errors import DefinitionError, PoundlockError, SourceGoneError, TerminalError, TransientError
from poundlock.redaction import redact_text, secret_values

__all__ = ["NO_LIMITS", "Login", "explain", "identifier", "literal"]

CONNECT_S = 5
_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1;"
    " SET bytea_output = 'hex'; SET client_encoding = 'UTF8'"
)
# What a role or database says about long statements is meant for people; a snapshot may be read for hours. Only those
# settings are touched that the server knows. A replication slot may wait for every transaction that runs, hence lock_timeout.
NO_LIMITS = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE setting <> '0' AND name IN ('statement_timeout', 'lock_timeout',"
    " 'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')"
)
_KEYWORD = re.compile(r"""password\s*=\s*('(?:[^'\\]|\\.)*'|\S+)\s*""", re.IGNORECASE)
_IN_URL = re.compile(r"^(postgres(?:ql)?://[^:/?#@]*):[^@]*@")
_IN_QUERY = re.compile(r"(?<=[?&])password=[^&]*&?", re.IGNORECASE)
_REFUSED = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied for database",
    "authentication",
    "server does not support SSL",
    "certificate",
)


@dataclass(frozen=True)
class Login:
    """Where a server is and who asks.

    Args:
        dsn: connection string of libpq, a URL or `name=value` pairs.
        password: the password itself, "env:NAME" or "file:PATH"; None = as libpq finds one.
    """

    dsn: str = field(repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The connection string without any password."""
        text = _IN_QUERY.sub("", _IN_URL.sub(r"\1@", self.dsn)).rstrip("?&")
        return redact_text(_KEYWORD.sub("", text)).strip()

    def __repr__(self) -> str:
        return f"Login({self.shown!r})"

    @contextmanager
    def connect(self, what: str, **options: Any) -> Iterator[Any]:
        """Give a connection of psycopg, each statement its own transaction, with errors in this package's words.

        Args:
            what: what is being done, for the error.
            options: further connection settings.

        Raises:
            DefinitionError: the server refuses this user, or what is asked of it.
            TransientError: no server answers, or it went away.
        """
        with self.errors(what):
            connection = self.open(**options)
            try:
                yield connection
            finally:
                connection.close()

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Say errors of psycopg in this package's words."""
        psycopg = _psycopg()
        try:
            yield
        except psycopg.Error as error:
            raise explain(error, f"{what} ({self.shown})", self._secrets()) from None

    def open(self, **options: Any) -> Any:
        """Return a connection; whoever asks for it closes it. Raises psycopg's own errors."""
        psycopg = _psycopg()
        given: dict[str, Any] = {"connect_timeout": CONNECT_S, "application_name": "poundlock"}
        asked = _parameters(self.dsn)
        given = {name: value for name, value in given.items() if name not in asked}
        if self.password is not None:
            given["password"] = secret(self.password, "password of PostgresSource")
        connection = psycopg.connect(self.dsn, **{"autocommit": True, **given, **options})
        connection.execute(_SETTINGS)
        connection.execute(NO_LIMITS)
        return connection

    def replication(self) -> Any:
        """Return a connection of libpq that takes replication commands; whoever asks for it calls `finish`."""
        psycopg = _psycopg()
        given = {"replication": "database", "connect_timeout": str(CONNECT_S), "application_name": "poundlock"}
        if self.password is not None:
            given["password"] = secret(self.password, "password of PostgresSource")
        text = psycopg.conninfo.make_conninfo(self.dsn, **given)
        connection = psycopg.pq.PGconn.connect(text.encode())
        if connection.status != psycopg.pq.ConnStatus.OK:
            said = connection.error_message.decode(errors="replace")
            connection.finish()
            raise psycopg.OperationalError(said)
        return connection

    def check(self) -> None:
        """Raise DefinitionError if this is no connection string."""
        _parameters(self.dsn)

    def _secrets(self) -> list[str]:
        found = set(secret_values(_parameters(self.dsn)))
        if self.password is not None:
            found |= {self.password, secret(self.password, "password of PostgresSource")}
        return sorted(found)


def _psycopg() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError:
        raise DefinitionError(
            "reading PostgreSQL needs the package psycopg", next="pip install 'poundlock[postgres]'"
        ) from None
    return psycopg


def _parameters(dsn: str) -> dict[str, Any]:
    psycopg = _psycopg()
    try:
        return dict(psycopg.conninfo.conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # What libpq says about a string it cannot read shows a part of it, which may be the password.
        raise DefinitionError(
            "the dsn of PostgresSource is no connection string that libpq can read",
            next='write dsn="postgresql://user@host:5432/database", and the password in password="env:NAME"',
        ) from None


def explain(error: Any, what: str, secrets: list[str]) -> PoundlockError:
    """Return an error of psycopg in this package's words.

    Args:
        error: the error.
        what: what was being done, and where.
        secrets: what must not be shown.
    """
    state = getattr(error, "sqlstate", None) or ""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    said = redact_text(lines[0] if lines else type(error).__name__, secrets)
    text = f"{what}: {said}"
    if (state == "42704" and "snapshot" in said) or "snapshot identifier" in said:
        return TransientError(
            f"{what}: the snapshot is gone, as the connection that held it is",
            next="start again: a snapshot is taken anew",
        )
    if state == "42704" and "slot" in said:
        return SourceGoneError(
            text, next="the changes since the last checkpoint are lost: start the job anew with a new slot"
        )
    if state == "42704" and "publication" in said:
        return TerminalError(
            text, next="changes of that time are missing: start the job anew, with an empty target and another slot"
        )
    if state.startswith("55") and "slot" in said and ("invalidated" in said or "can no longer" in said):
        return SourceGoneError(
            text, next="the server removed changes this job still needed: start the job anew with a new slot"
        )
    if "WAL sender" in said or "to start walsender" in said:  # it comes without a code
        return DefinitionError(text, next="ALTER ROLE … REPLICATION for this user: change data capture needs it")
    if state == "42501":
        return DefinitionError(text, next="GRANT SELECT on it to this user; for cdc also: ALTER ROLE … REPLICATION")
    if state.startswith("28") or (not state and any(part in said for part in _REFUSED)):
        return DefinitionError(text, next="mend user, password or database in dsn=… and password=…")
    if state in ("42P01", "42703", "3F000", "3D000") or state.startswith("42"):
        return DefinitionError(text, next="mend table=…, columns=…, query=… or where=…")
    if state.startswith("22") or (
        not state and isinstance(error, _psycopg().DataError)
    ):  # a NUL never gets to the server
        return TerminalError(text, next="mend the value, or leave it out with query=… or where=…")
    if state.startswith(("08", "53", "57", "58", "55", "40")) or not state:
        return TransientError(text, next="see that the server is up and can be reached from here; a restart goes on")
    return TerminalError(text, next="see the server's log")


def identifier(name: str) -> str:
    """Return a name as SQL, in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a text as SQL, whatever the session's settings are."""
    quoted = value.replace("'", "''")
    return f"'{quoted}'" if "\\" not in value else " E'" + quoted.replace("\\", "\\\\") + "'"
