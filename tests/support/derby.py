"""A real Apache Derby server: several processes read one database, as those of a job do."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from poundlock.connectors.jdbc.bridge import JdbcError
from poundlock.spark import jdbc_gateway
from poundlock.spark.launch.jars import jar_set
from poundlock.spark.launch.java import find_java
from poundlock.testing.servers import ServerProcess

_CLIENT = ("derbyclient", "derbyshared", "derbytools")


class DerbyServer(ServerProcess):
    """Apache Derby's network server, to use in a `with` block."""

    title = "the Derby server"

    def __init__(self) -> None:
        super().__init__(None, "poundlock-derby-")

    @property
    def jdbc_url(self) -> str:
        """Connection URL of its one database."""
        return f"jdbc:derby://127.0.0.1:{self.port}/db;create=true"

    @property
    def jars(self) -> list[str]:
        """The jars of its client."""
        return [jar for jar in jar_set("derby-server") if os.path.basename(jar).startswith(_CLIENT)]

    def _start(self, timeout: float) -> None:
        super()._start(timeout)
        for _ in range(20):  # a login gives up after 5 s, and a database takes longer to be made on a busy machine
            try:
                self.execute()
            except JdbcError:
                continue
            return

    def execute(self, *statements: str) -> list[list[Any]]:
        """Run statements in one transaction, and return the rows of the last one, as texts, if it is a SELECT."""
        connection = jdbc_gateway.connect(self.jdbc_url, {}, None, self.jars, columns=True)
        try:
            rows: list[list[Any]] = []
            for statement in statements:
                if statement.startswith("SELECT"):
                    rows = [list(row) for row in connection.rows(statement)]
                else:
                    connection.run(statement)
            connection.commit()
            return rows
        finally:
            connection.close()

    def _command(self) -> Sequence[str]:
        return [
            find_java().path,
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dderby.system.home={self.home}",
            "-cp",
            os.pathsep.join(jar_set("derby-server")),
            "org.apache.derby.drda.NetworkServerControl",
            "start",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-noSecurityManager",
        ]

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
