"""A connection that reads: its session speaks UTC, and what the database answers instead of rows becomes an error with a next step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from poundlock.connectors.jdbc.bridge import Connect, Connection, JdbcError
from poundlock.connectors.jdbc.dialect import Dialect, dialect_of
from poundlock.connectors.jdbc.login import JdbcLogin
from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError

# Classes of errors that pass: a conflict, no resources, an operator or a crash, the disk.
_PASSING = ("40", "53", "57", "58")
_DEFINED = ("42", "S0", "3F", "HY")
"""Something that is asked for is not there, or not so."""


class JdbcSession:
    """A connection for reading, with the dialect of its database."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dialect: Dialect = dialect_of(connection.product, connection.quote)
        if self.dialect.name == "mysql":  # its moments are shown in the zone of the session
            connection.run("SET time_zone = '+00:00'")

    @classmethod
    def open(cls, login: JdbcLogin, way: Connect | None) -> JdbcSession:
        """Return a session over a new connection. Raises JdbcError."""
        connection = login.connect(way, columns=True)
        try:
            return cls(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


When = Literal["starting", "running"]


@contextlib.contextmanager
def explained(login: JdbcLogin, doing: str, what: str, when: When = "running") -> Iterator[None]:
    """Let no JdbcError out.

    Args:
        doing: for errors, such as "reading orders".
        what: is read.
        when: whether the job is not yet running: what is missing then was never there.

    Raises:
        PoundlockError: what the database answered.
    """
    try:
        yield
    except JdbcError as error:
        raise _explain(error, login, doing, what, when) from error


def _explain(error: JdbcError, login: JdbcLogin, doing: str, what: str, when: When) -> PoundlockError:
    message = f"{login.place}, {doing}: {login.redacted(error.text)}"
    if (error.away and not error.state.startswith("08004")) or not error.state:
        return TransientError(f"nobody answers at {message}", next="check the URL, and that the database runs")
    if error.state.startswith("28") or error.state.startswith("08004"):
        return DefinitionError(f"no login at {message}", next="check user, password and rights")
    if error.state.startswith(_PASSING):
        return TransientError(message, next="see that the database runs and what it logs; the checkpoint is repeated")
    if when == "starting" and error.state.startswith(_DEFINED):
        return DefinitionError(message, next="mend table=…, columns=…, query=… or where=…, or let this user SELECT")
    if error.state.startswith(_DEFINED):
        return TerminalError(
            f"{what} has changed since the job was started: {message}",
            next="start the job again: it then reads what there is, or says what is missing",
        )
    return TerminalError(message, next="see what the database logs; a value may be left out with where=…")
