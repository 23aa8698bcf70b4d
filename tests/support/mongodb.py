"""Servers that speak MongoDB's protocol, for tests, on the loopback alone: MongoDB's own has no package that could be had.

`MongoJavaServer` is of jars that are fetched. `FerretDb` keeps documents in a real PostgreSQL, and is built once by Go, as MinIO is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any, Self

from poundlock.spark.launch.jars import jar_set
from poundlock.spark.launch.java import find_java
from poundlock.testing.minio import go_program
from poundlock.testing.postgres import EmbeddedPostgres
from poundlock.testing.servers import ServerProcess, port_to_use

__all__ = ["FerretDb", "MongoJavaServer", "MongoServer"]

_FERRETDB = "github.com/FerretDB/FerretDB@v1.24.2"
_FLAGS = ("-trimpath", "-tags", "ferretdb_no_sqlite")  # SQLite, as Go, would take longer to compile than all the rest
_SOURCE = """package main

import (
	"context"
	"log"
	"os"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:      ferretdb.ListenerConfig{TCP: os.Args[1]},
		Handler:       "postgresql",
		PostgreSQLURL: os.Args[2],
	})
	if err == nil {
		err = server.Run(context.Background())
	}
	log.Fatal(err)
}
"""
_WIRE_VERSION = 9  # of MongoDB 4.4


class MongoServer(ServerProcess):
    """One of the two, to use in a `with` block. What it keeps survives `close` of a client, not of the server."""

    start_s = 1200  # one of them may have to be built
    _client: Any = None

    @property
    def uri(self) -> str:
        """Its address."""
        return f"mongodb://127.0.0.1:{self.port}"

    @property
    def client(self) -> Any:
        """A client of pymongo's, which stays until the server ends."""
        if self._client is None:
            from pymongo import MongoClient

            self._client = MongoClient(self.uri, serverSelectionTimeoutMS=5000)
        return self._client

    def documents(self, collection: str, database: str = "test") -> list[dict[str, Any]]:
        """Return all documents of a collection."""
        return list(self.client[database][collection].find())

    def kill(self) -> None:
        """Kill it as a crash would."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        super().kill()

    def _answers(self) -> bool:
        from pymongo import MongoClient
        from pymongo.errors import PyMongoError

        client: Any = MongoClient(self.uri, serverSelectionTimeoutMS=500)
        with contextlib.suppress(PyMongoError), client:
            return bool(client.admin.command("ping")["ok"])
        return False


class MongoJavaServer(MongoServer):
    """mongo-java-server over H2, in memory."""

    title, log_name = "mongo-java-server", "mongo.log"

    def __init__(self) -> None:
        super().__init__(None, "poundlock-mongo-")
        self._gateway_port: int | None = None
        self._gateway: Any = None

    def _command(self) -> Sequence[str]:
        self._gateway_port = port_to_use(self._gateway_port, {self.port})
        jars = os.pathsep.join(jar_set("mongo-java-server", progress=print))
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [find_java().path, *flags, "-cp", jars, "py4j.GatewayServer", str(self._gateway_port)]

    def _answers(self) -> bool:
        return (self._gateway is not None or self._bind()) and super()._answers()

    def _bind(self) -> bool:
        from py4j.java_gateway import GatewayParameters, JavaGateway
        from py4j.protocol import Py4JNetworkError

        gateway = JavaGateway(gateway_parameters=GatewayParameters(address="127.0.0.1", port=self._gateway_port))
        with contextlib.suppress(Py4JNetworkError, OSError):
            mongo = gateway.jvm.de.bwaldvogel.mongo
            backend = mongo.backend.h2.H2Backend.inMemory()
            version = mongo.ServerVersion.MONGO_5_0
            # It says that it speaks as MongoDB 4.2, which pymongo speaks to no longer; what is used here is older than that.
            number = version.getClass().getDeclaredField("wireVersion")
            number.setAccessible(True)
            number.setInt(version, _WIRE_VERSION)
            backend.version(version)
            mongo.MongoServer(backend).bind("127.0.0.1", self.port)
            self._gateway = gateway
        return self._gateway is not None

    def kill(self) -> None:
        """Kill it as a crash would; its documents are gone."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()
        super().kill()


class FerretDb(MongoServer):
    """FerretDB over a PostgreSQL of its own. Its documents survive `kill` and `start`."""

    title, log_name = "FerretDB", "ferretdb.log"

    def __init__(self) -> None:
        self._postgres = EmbeddedPostgres(wal_level="replica")
        super().__init__(None, "poundlock-ferretdb-")

    def start(self, timeout: float | None = None) -> Self:
        """Start PostgreSQL, and it over that."""
        if not self._postgres.running:
            self._postgres.start()
            self._postgres.execute("CREATE DATABASE ferretdb")
        return super().start(timeout)

    def close(self) -> None:
        """Stop both."""
        super().close()
        self._postgres.close()

    def _command(self) -> Sequence[str]:
        return [
            str(go_program("FerretDB", _FERRETDB, _FLAGS, source=_SOURCE, progress=print)),
            f"127.0.0.1:{self.port}",
            f"postgres://postgres@127.0.0.1:{self._postgres.port}/ferretdb",
        ]
