"""JDBC for the driver's sinks: a small JVM of its own, reached by py4j, that lives as long as this process needs it.

It is not Spark's: a decision is carried out at a start before Spark is there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from poundlock.connectors.jdbc import bridge
from poundlock.connectors.jdbc.bridge import Connection, JdbcError
from poundlock.errors import DefinitionError
from poundlock.spark.launch.jars import pyspark_jars
from poundlock.spark.launch.java import find_java


def install() -> None:
    """Let this process's sinks reach databases by JDBC."""
    bridge.install(connect)


def connect(url: str, properties: dict[str, str], driver: str | None, jars: Sequence[str]) -> Connection:
    """Return a connection; see `bridge.Connection`.

    Args:
        driver: class of the driver; None = chosen by the URL.

    Raises:
        JdbcError: the database does not let anybody in.
        DefinitionError: there is no driver for the URL.
    """
    gateway = _own_jvm(os.getpid(), tuple(jars))
    with _translated():
        jvm = gateway.jvm
        if driver is not None:
            try:
                jvm.java.lang.Class.forName(driver)
            except Exception as error:
                raise DefinitionError(
                    f"the JDBC driver {driver} is not in {', '.join(jars) or 'any jar'}",
                    next='name the jar of the driver: jars=["/path/to/driver.jar"]',
                ) from error
        given = jvm.java.util.Properties()
        for name, value in properties.items():
            given.setProperty(name, value)
        # A database without a host is this JVM's own, and may have to make its files first.
        jvm.java.sql.DriverManager.setLoginTimeout(5 if "//" in url else 0)
        try:
            return _Connection(jvm.java.sql.DriverManager.getConnection(url, given))
        except Exception as error:
            raised = _java_exception(error)
            if raised is not None and "No suitable driver" in str(raised.getMessage()):
                raise DefinitionError(
                    f"no JDBC driver knows {url.partition('?')[0]}",
                    next='name the jar of the driver: jars=["/path/to/driver.jar"]',
                ) from error
            raise


class _Connection:
    """A java.sql.Connection in the words of the bridge."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        about = connection.getMetaData()
        self.product = str(about.getDatabaseProductName())
        self.quote = str(about.getIdentifierQuoteString() or "")
        self.transactions = bool(about.supportsTransactions())
        connection.setAutoCommit(False)

    def run(self, statement: str, parameters: Sequence[str] = ()) -> int:
        with _translated(), self._statement(statement if parameters else None) as made:
            if not parameters:
                return int(made.executeUpdate(statement))
            for number, text in enumerate(parameters, 1):
                made.setString(number, text)
            return int(made.executeUpdate())

    def rows(self, query: str) -> list[list[Any]]:
        with _translated(), self._statement() as made:
            rows, result = [], made.executeQuery(query)
            width = result.getMetaData().getColumnCount()
            while result.next():
                rows.append([result.getString(i + 1) for i in range(width)])
            return rows

    def columns(self, query: str) -> list[tuple[str, str]]:
        with _translated(), self._statement() as made:
            about = made.executeQuery(query).getMetaData()
            numbers = range(1, about.getColumnCount() + 1)
            return [(str(about.getColumnName(i)), str(about.getColumnTypeName(i))) for i in numbers]

    def commit(self) -> None:
        with _translated():
            self._connection.commit()

    def rollback(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.rollback()

    def close(self) -> None:
        self.rollback()
        with contextlib.suppress(Exception):
            self._connection.close()

    @contextlib.contextmanager
    def _statement(self, prepared: str | None = None) -> Iterator[Any]:
        connection = self._connection
        made = connection.createStatement() if prepared is None else connection.prepareStatement(prepared)
        try:
            yield made
        finally:
            with contextlib.suppress(Exception):
                made.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Let nothing of py4j out: an exception of the database becomes a JdbcError."""
    from py4j.protocol import Py4JError

    try:
        yield
    except DefinitionError:
        raise
    except Exception as error:
        raised = _java_exception(error)
        if raised is not None:
            state = ""
            with contextlib.suppress(Exception):
                state = str(raised.getSQLState() or "")
            text = str(raised.getMessage() or raised.getClass().getName())
            raise JdbcError(state, " ".join(text.split())) from None
        if not isinstance(error, (Py4JError, OSError)):
            raise
        _own_jvm.cache_clear()
        raise JdbcError("08000", f"the JVM of the database's driver is gone: {error}") from error


def _java_exception(error: BaseException | None) -> Any | None:
    """Return what Java threw. pyspark makes its own errors of all that py4j raises in this process, as if all came from its JVM."""
    from py4j.protocol import Py4JJavaError

    raised = None
    while error is not None:
        raised = error.java_exception if isinstance(error, Py4JJavaError) else raised
        error = error.__context__
    return raised


@cache
def _own_jvm(process: int, jars: tuple[str, ...]) -> Any:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    folder = pyspark_jars()
    own = [str(next(folder.glob("py4j-*.jar")))]
    # What pyspark brings: enough to try it with Apache Derby.
    own += [str(path) for path in sorted(folder.glob("derby*.jar"))]
    port, token = launch_gateway(
        jarpath=own[0],
        classpath=os.pathsep.join([*jars, *own[1:]]),
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dderby.stream.error.file=/dev/null"],
        die_on_exit=True,
        java_path=find_java().path,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    atexit.register(_end, gateway)
    return gateway


def _end(gateway: Any) -> None:
    with contextlib.suppress(Exception):
        gateway.shutdown()
