"""How MySQL and MariaDB are reached, and what their refusals mean.

Every session speaks the same dialect (UTC, utf8mb4, strict), so that a value's text does not depend on anybody's settings. A password is
read when a connection is made, and stands in no message and no description.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError, PoundlockError, SourceGoneError, TerminalError, TransientError, required
from poundlock.redaction import redact_text

_SECONDS = 5
# At another level a transaction has no state of its own that it sees to its end.
_SESSION = (
    "SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', wait_timeout = 86400",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_OPTIONS = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity", "read_timeout", "connect_timeout"}

# Error numbers, of the server's and of the client's messages.
_REFUSED = {1044, 1045, 1049, 1130, 1227, 1251, 1698, 2054, 2061}
_GRANT = {1142, 1143, 1227, 1370}
_MISSING = {1046, 1051, 1054, 1109, 1146, 1305}
_PASSING = {
    1040,
    1053,
    1105,
    1158,
    1159,
    1160,
    1161,
    1180,
    1203,
    1205,
    1213,
    1226,
    1290,
    1317,
    1412,
    2003,
    2006,
    2013,
    2055,
}
_OF_THE_LOG = 1236


def load_pymysql() -> Any:
    """Return pymysql. Raises DefinitionError where it is not installed."""
    required("pymysqlreplication", "MySQL", "mysql")
    return required("pymysql", "MySQL", "mysql")


def identifier(name: str) -> str:
    """Return a name as SQL, in quotes."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class MySqlLogin:
    """Which server, as whom.

    Args:
        dsn: "mysql://user@host:3306/database", with `?ssl_ca=…` and the like where they are needed.
        password: the password, "env:NAME" or "file:PATH"; None = the one in the dsn, or none.
    """

    dsn: str = field(repr=False)
    password: str | None = field(default=None, repr=False)

    def check(self) -> None:
        """Raise DefinitionError if the dsn is no address; a password that stands elsewhere is read when it is needed."""
        self.parameters(with_password=False)

    @property
    def database(self) -> str:
        """The database of names without one; "" = none."""
        return unquote(urlsplit(self.dsn).path.lstrip("/"))

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        known = self.parameters(with_password=False)
        return f"{known['host']}:{known['port']}"

    def parameters(self, *, with_password: bool = True) -> dict[str, Any]:
        """Return the arguments of pymysql's connect.

        Raises:
            DefinitionError: the dsn is no address, or the password is not where it should be.
        """
        parts = urlsplit(self.dsn)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme not in ("mysql", "mariadb") or not host:
            raise DefinitionError(
                "the dsn of MySqlSource is no address of a server",
                next='write such as "mysql://etl@db.example:3306/shop"',
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(set(options) - _OPTIONS):
            raise DefinitionError(
                f"the dsn has an option {unknown[0]!r}, which is not known",
                next=f"use one of {', '.join(sorted(_OPTIONS))}",
            )
        known: dict[str, Any] = {"host": host, "port": port or 3306, "user": unquote(parts.username or "")}
        known.update({name: _value(name, text) for name, text in options.items()})
        if with_password:
            known["password"] = self._password()
        return known

    def _password(self) -> str:
        if self.password is not None:
            return secret(self.password, "password")
        return unquote(urlsplit(self.dsn).password or "")

    def settings(self) -> dict[str, Any]:
        """Return the arguments of a connection, with the limits and the character set of all of ours."""
        return {"connect_timeout": _SECONDS, "charset": "utf8mb4", "autocommit": True, **self.parameters()}

    @contextmanager
    def reading(self, doing: str, **options: Any) -> Iterator[Any]:
        """Give a connection for a while, with errors in this package's words.

        Raises:
            DefinitionError: the server refuses this user, or what is asked of it.
            TransientError: no server answers, or it went away.
        """
        with self.errors(doing), contextlib.closing(self.open(**options)) as connection:
            yield connection

    def open(self, **options: Any) -> Any:
        """Return a connection; whoever asks for it closes it. Raises pymysql's own errors."""
        connection = load_pymysql().connect(**{**self.settings(), **options})
        with connection.cursor() as cursor:
            for statement in _SESSION:
                cursor.execute(statement)
        return connection

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn errors of pymysql into those of this package."""
        pymysql = load_pymysql()
        try:
            yield
        except pymysql.MySQLError as error:
            secrets = [text for text in (self._password(),) if text]
            raise explain(error, self.shown, doing, secrets) from error


def _value(name: str, text: str) -> Any:
    if name.endswith("timeout"):
        return int(text)
    return text not in ("", "0", "false") if name == "ssl_verify_identity" else text


def rows_of(connection: Any, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return list(cursor.fetchall())


def variables(connection: Any) -> Mapping[str, str]:
    """Return the server's global variables."""
    return {str(name): str(value) for name, value in rows_of(connection, "SHOW GLOBAL VARIABLES")}


def explain(error: Any, where: str, doing: str, secrets: list[str]) -> PoundlockError:
    """Return an error of pymysql in this package's words."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = redact_text(" ".join(str(error.args[-1] if error.args else error).split()), secrets)
    what = f"MySQL at {where}, {doing}: {text}"
    if code == _OF_THE_LOG:
        return _of_the_log(text, what)
    if code in _GRANT:
        return DefinitionError(
            what, next="GRANT SELECT ON the tables, and GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO this user"
        )
    if code in _REFUSED:
        return DefinitionError(what, next="check user, password and database: the server's own client has to connect")
    if code in _MISSING:
        return DefinitionError(what, next="mend tables=… or columns=…")
    if code in _PASSING or not code or (code >= 2000 and code < 3000):
        return TransientError(what, next="check the dsn, and that the server runs; a restart goes on")
    return TerminalError(what, next="see the server's log")


def _of_the_log(text: str, what: str) -> PoundlockError:
    lowered = text.lower()
    if "same server" in lowered:
        return TransientError(
            what,
            next='somebody else reads the log as this server_id: give this job a range of its own, server_id="5400-5499"',
        )
    return SourceGoneError(
        what,
        next="start the job over, with an empty target and a new checkpoint; let the server keep its log for longer",
    )
