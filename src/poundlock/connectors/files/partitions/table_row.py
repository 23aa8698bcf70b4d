"""A row of a table of PostgreSQL for each partition that is complete: whoever loads partitions asks the table which there are.

A row is idempotent by the sink's folder, the bucket and the version of its manifest: written again, it says the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from poundlock.connectors.files.partitions.commit import CommittedPartition
from poundlock.connectors.files.partitions.sealed import SealedBucket
from poundlock.connectors.postgres.connection import PostgresLogin, identifier, server
from poundlock.errors import DefinitionError

_KEY = ("root", "bucket", "version")
_VALUES = ("manifest", "files", "rows", "bytes")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


@dataclass(frozen=True, kw_only=True)
class TableCommitPolicy:
    """A policy that writes a row into a table of PostgreSQL for each partition, behind the decision that completes it.

    The row has `root`, the sink's folder, `bucket` and `version`, which are its key, and `manifest`, `files`, `rows` and `bytes`. It is written by an upsert
    of that key: where a crash leaves open whether it was, it is written again. Of a partition without a manifest the version is 0 and the others are NULL.

    Args:
        dsn: a URL or the words of libpq, or "env:NAME" or "file:PATH" where one of them stands.
        table: its name, also with a schema, such as "catalog.partitions".
        password: the password, "env:NAME" or "file:PATH"; None = in the dsn, or what libpq takes by itself.

    Raises:
        DefinitionError: the dsn or the name is none, or there is no psycopg.
    """

    dsn: str = field(repr=False)
    table: str
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.table, str) or not _NAME.fullmatch(self.table):
            raise DefinitionError(
                f"table={self.table!r} is no name of a table",
                next='use a name such as "partitions" or "catalog.partitions"',
            )
        self._login.check()

    def preflight(self) -> None:
        """Have the server plan what will be written, which writes nothing.

        Raises:
            DefinitionError: there is no such table, it lacks a column or the key, or this user may not write to it.
            TransientError: no server answers.
        """
        try:
            self._execute(f"EXPLAIN {self._upsert}", ("", "", 0, None, None, None, None), "looking the table up")
        except DefinitionError as error:
            raise DefinitionError(
                error.what, next=f"give the user INSERT, SELECT and UPDATE, or create it: {self.ddl}"
            ) from error

    @property
    def ddl(self) -> str:
        """A statement that creates the table."""
        return (
            f"CREATE TABLE {self.table} (root text, bucket text, version integer, manifest text, files integer, rows bigint,"
            " bytes bigint, PRIMARY KEY (root, bucket, version))"
        )

    def __call__(self, partition: CommittedPartition) -> None:
        """Write the row of a partition. Raises PoundlockError where the server does not take it."""
        row: tuple[str | int | None, ...] = (partition.root, partition.bucket, 0, None, None, None, None)
        if isinstance(partition, SealedBucket):
            sealed = (partition.manifest, len(partition.files), partition.rows, partition.bytes)
            row = (partition.root, partition.bucket, partition.version, *sealed)
        self._execute(self._upsert, row, f"committing {partition.bucket}")

    @property
    def _login(self) -> PostgresLogin:
        return PostgresLogin(self.dsn, self.password)

    @property
    def _upsert(self) -> str:
        table = ".".join(identifier(part) for part in self.table.split("."))
        names = (*_KEY, *_VALUES)
        news = ", ".join(f"{name} = excluded.{name}" for name in _VALUES)
        places = ", ".join(["%s"] * len(names))
        return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places}) ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {news}"

    def _execute(self, statement: str, row: tuple[str | int | None, ...], doing: str) -> None:
        server(self._login).ask(lambda connection: connection.execute(statement, row), f"{self.table}, {doing}")
