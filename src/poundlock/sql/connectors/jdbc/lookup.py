"""Tables of PostgreSQL as dimensions: tasks ask for the rows of all keys of a batch by one query, over a connection that the process keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.examination import Examination
from poundlock.connectors.postgres.connection import PostgresLogin, clock_ahead, identifier, literal, server
from poundlock.connectors.postgres.source.relation import Relation, look_up
from poundlock.connectors.postgres.source.source import PostgresSource
from poundlock.connectors.postgres.types import from_csv
from poundlock.errors import TransientError
from poundlock.formats.arrays import is_text
from poundlock.sql.connectors.jdbc.columns import ServerRowsProgram
from poundlock.sql.connectors.table import CacheLimits

_RELATIONS = 64
_MOST_KEYS = 20_000
"""Keys of one query; more are asked for by several."""


@dataclass(frozen=True)
class PostgresLookup:
    """The rows of a table by some of its columns.

    Args:
        table: as the server has it; `columns` what it calls those that are read.
        keys: what it calls the columns by which it is asked.
        program: makes rows of the table's columns.
        retries: how often a query that failed is asked again, after 1 s, 2 s and so on.
        sleep: waits so many seconds.
    """

    login: PostgresLogin
    table: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    program: ServerRowsProgram
    cache: CacheLimits
    retries: int
    sleep: Callable[[float], None] = time.sleep

    @property
    def identity(self) -> str:
        """What its answers depend on."""
        digest = blake2b(repr((self.login.dsn, self.login.password)).encode(), digest_size=8).hexdigest()
        return repr((digest, self.table, self.columns, self.keys, self.program))

    def rows(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the table has for some keys now; raises as `RowLookup.rows`."""
        keys = _possible(keys)
        parts = [self._asked(keys.slice(first, _MOST_KEYS)) for first in range(0, keys.num_rows, _MOST_KEYS)]
        if not parts:
            fields = self.program.fields
            return pa.RecordBatch.from_arrays([pa.nulls(0, f.type.arrow) for f in fields], [f.column for f in fields])
        whole = pa.Table.from_batches(parts).combine_chunks()
        return whole.to_batches()[0] if whole.num_rows else parts[0]

    def whole(self) -> pa.RecordBatch:
        """Return all rows that the table has now; raises as `rows`."""
        return self._asked(None)

    def examine(self) -> Examination:
        """Ask for no row as it asks for some, so that login, rights, table and columns are seen; see `Examinable`."""
        with self.login.reading(f"looking up {self.table}") as connection:
            relation, _ = _looked_up(os.getpid(), self.login, self.table, self.columns, self.keys)
            connection.execute(relation.select("false"))
            return Examination(ms_ahead=clock_ahead(connection), clock=f"PostgreSQL at {self.login.name}")

    def _asked(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        """Return the rows of some keys; None = of all."""
        for attempt in range(self.retries + 1):
            try:
                return server(self.login).ask(
                    lambda connection: self._rows(connection, keys), f"looking up {self.table}"
                )
            except TransientError:
                if attempt == self.retries:
                    raise
                self.sleep(attempt + 1)
        raise AssertionError("unreachable")

    def _rows(self, connection: Any, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        relation, kinds = _looked_up(os.getpid(), self.login, self.table, self.columns, self.keys)
        selected = relation.select() if keys is None else relation.select(self._condition(keys, kinds))
        with connection.cursor().copy(f"COPY ({selected}) TO STDOUT (FORMAT csv)") as copy:
            data = b"".join(bytes(row) for row in copy)
        rows = _empty(relation) if not data else from_csv(data, relation.columns, self.table)
        return self.program.run(rows)[0]

    def _condition(self, keys: pa.RecordBatch, kinds: Sequence[str]) -> str:
        names = [identifier(name) for name in self.keys]
        arrays = [_array(column, kind) for column, kind in zip(keys.columns, kinds, strict=True)]
        if len(names) == 1:
            return f"{names[0]} = ANY ({arrays[0]})"
        numbers = ", ".join(f"k{number}" for number in range(len(names)))
        return f"({', '.join(names)}) IN (SELECT {numbers} FROM unnest({', '.join(arrays)}) AS k ({numbers}))"

    def describe(self) -> str:
        """Return it in words."""
        kept = f"a cache of {self.cache.max_rows:,} keys" if self.cache.max_rows else "no cache"
        return f"rows of {self.program.table} by {', '.join(self.keys)} as they are then, {kept}"


@lru_cache(maxsize=_RELATIONS)
def _looked_up(
    process: int, login: PostgresLogin, table: str, columns: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[Relation, list[str]]:
    """Return a table as the server knows it, and the types of its key columns; it is asked once."""
    source = PostgresSource(login.dsn, password=login.password, table=table, columns=columns)
    with login.reading(f"looking up {table}") as connection:
        relation = look_up(connection, source)
        oids = {column.name: column.oid for column in relation.columns}
        kinds = [connection.execute("SELECT %s::regtype::text", [oids[name]]).fetchone()[0] for name in keys]
    return relation, ["bpchar" if kind == "character" else kind for kind in kinds]  # character alone is of one


def _possible(keys: pa.RecordBatch) -> pa.RecordBatch:
    """Return the keys that a server can have: none has a text with a zero byte."""
    for place, each in enumerate(keys.schema):
        if is_text(each.type):
            keys = keys.filter(pc.invert(pc.match_substring(keys.column(place), "\0")))
    return keys


def _array(column: pa.Array, kind: str) -> str:
    """Return keys as an array in SQL: texts as the type that the column has in the server, so that its index is used."""
    given = column.type
    if is_text(given):
        return _listed([literal(text) for text in column.to_pylist()], kind)
    if pa.types.is_integer(given):
        return _listed(column.to_pylist(), "int8")
    if pa.types.is_decimal(given):
        return _listed(column.to_pylist(), "numeric")
    if pa.types.is_boolean(given):
        return _listed(column.to_pylist(), "bool")
    if pa.types.is_floating(given):
        return _listed([f"'{value!r}'" for value in column.to_pylist()], "float8")
    if pa.types.is_binary(given):
        return _listed([f"'\\x{value.hex()}'" for value in column.to_pylist()], "bytea")
    return _listed([f"'{text}'" for text in pc.cast(column, pa.string()).to_pylist()], kind)


def _listed(values: Sequence[Any], kind: str) -> str:
    return f"ARRAY[{', '.join(map(str, values))}]::{kind}[]"


def _empty(relation: Relation) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.nulls(0, c.arrow) for c in relation.columns], [c.name for c in relation.columns]
    )
