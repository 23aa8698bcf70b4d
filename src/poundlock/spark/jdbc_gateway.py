"""JDBC for sources and sinks: a small JVM of its own, reached by py4j, that lives as long as this process needs it.

It is not Spark's: a decision is carried out at a start before Spark is there, and tasks are processes without a JVM. A query's rows become
Arrow columns in the JVM, by the Arrow project's own adapter, so that a call of py4j brings thousands of them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from poundlock.connectors.jdbc import bridge
from poundlock.connectors.jdbc.bridge import Connection, JdbcError, ResultColumn
from poundlock.errors import DefinitionError
from poundlock.spark.launch.jars import jar_set, pyspark_jars
from poundlock.spark.launch.java import find_java

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_JARS = "arrow-jdbc"
"""The set of jars that makes Arrow columns of a result."""


def install() -> None:
    """Let this process's sources and sinks reach databases by JDBC."""
    bridge.install(connect)


def connect(
    url: str, properties: dict[str, str], driver: str | None, jars: Sequence[str], *, columns: bool = False
) -> Connection:
    """Return a connection; see `bridge.Connect`."""
    gateway = _own_jvm(os.getpid(), tuple(jars), columns)
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
            return _Connection(jvm, jvm.java.sql.DriverManager.getConnection(url, given))
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

    def __init__(self, jvm: Any, connection: Any) -> None:
        self._jvm, self._connection = jvm, connection
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

    def read(self, query: str, rows: int) -> _Result:
        with _translated():
            return _Result(self._jvm, self._connection, query, rows)

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


class _Result:
    """A java.sql.ResultSet in the words of the bridge, read by org.apache.arrow.adapter.jdbc."""

    def __init__(self, jvm: Any, connection: Any, query: str, rows: int) -> None:
        self._jvm, self._rows = jvm, rows
        self._statement = connection.createStatement()
        try:
            self._statement.setFetchSize(rows)
            self._result = self._statement.executeQuery(query)
        except BaseException:
            self.close()
            raise
        about = self._result.getMetaData()
        self.columns = [
            ResultColumn(
                str(about.getColumnLabel(i)),
                int(about.getColumnType(i)),
                str(about.getColumnTypeName(i)),
                int(about.getPrecision(i)),
                int(about.getScale(i)),
                bool(about.isSigned(i)),
            )
            for i in range(1, about.getColumnCount() + 1)
        ]

    def batches(self, codes: Sequence[int]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with _translated():
            arrow, taken = self._jvm.org.apache.arrow, self._jvm.java.util.HashMap()
            for number, code in enumerate(codes, 1):
                taken.put(number, arrow.adapter.jdbc.JdbcFieldInfo(code))
            memory = arrow.memory.RootAllocator()
            settings = arrow.adapter.jdbc.JdbcToArrowConfigBuilder(memory, None, False).setTargetBatchSize(self._rows)
            settings = settings.setReuseVectorSchemaRoot(True).setExplicitTypesByColumnIndex(taken).build()
            parts = arrow.adapter.jdbc.JdbcToArrow.sqlToArrowVectorIterator(self._result, settings)
            bytes_out = self._jvm.java.io.ByteArrayOutputStream()
            try:
                while parts.hasNext():
                    rows = next(parts)
                    bytes_out.reset()
                    writer = arrow.vector.ipc.ArrowStreamWriter(rows, None, bytes_out)
                    writer.start()
                    writer.writeBatch()
                    writer.end()
                    yield from pa.ipc.open_stream(bytes_out.toByteArray())
            finally:
                with contextlib.suppress(Exception):
                    parts.close()
                with contextlib.suppress(Exception):
                    memory.close()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._statement.close()


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
            raised, state = _of_database(raised)
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


def _of_database(raised: Any) -> tuple[Any, str]:
    """Return the exception among the causes of one that has a state of SQL, and that; else what was raised."""
    cause = raised
    while cause is not None:
        with contextlib.suppress(Exception):
            return cause, str(cause.getSQLState() or "")
        cause = cause.getCause()
    return raised, ""


@cache
def _own_jvm(process: int, jars: tuple[str, ...], columns: bool) -> Any:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    folder = pyspark_jars()
    own = [str(next(folder.glob("py4j-*.jar")))]
    # What pyspark brings: enough to try it with Apache Derby.
    own += [str(path) for path in sorted(folder.glob("derby*.jar"))]
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dderby.stream.error.file=/dev/null"]
    if columns:
        own += jar_set(ARROW_JARS)
        # Arrow's memory is outside of the heap; times are those of UTC, wherever this machine is.
        options += ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Duser.timezone=UTC"]
    port, token = launch_gateway(
        jarpath=own[0],
        classpath=os.pathsep.join([*jars, *own[1:]]),
        javaopts=options,
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
