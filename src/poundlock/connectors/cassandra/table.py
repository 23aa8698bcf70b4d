"""What a table of Cassandra has, as its cluster says, and which columns of rows fit into it by name and type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from poundlock.connectors.cassandra.login import CassandraLogin
from poundlock.errors import DefinitionError, TransientError, did_you_mean

_WHOLE = ("tinyint", "smallint", "int", "bigint", "varint", "decimal")
_TEXTS = ("text", "ascii", "varchar", "uuid", "timeuuid", "inet")


@dataclass(frozen=True, slots=True)
class CassandraColumn:
    """A column of the table.

    Args:
        kind: its type as CQL has it.
    """

    name: str
    kind: str
    is_key: bool = False
    is_static: bool = False

    @property
    def quoted(self) -> str:
        """Its name in a statement."""
        return quoted(self.name)


@dataclass(frozen=True, slots=True)
class CassandraTable:
    """A table, its key columns first: those of the partition, then those of the clustering.

    Args:
        name: with its keyspace, as a statement has it.
    """

    name: str
    columns: tuple[CassandraColumn, ...]

    @property
    def key(self) -> list[str]:
        """The primary key."""
        return [column.name for column in self.columns if column.is_key]

    def column(self, name: str) -> CassandraColumn | None:
        """Return a column, None where the table has none of that name."""
        return next((column for column in self.columns if column.name == name), None)


def quoted(name: str) -> str:
    """Return a name as statements have it."""
    return '"' + name.replace('"', '""') + '"'


def look_up(login: CassandraLogin, name: str) -> CassandraTable:
    """Return a table as its cluster has it.

    Args:
        name: "keyspace.table".

    Raises:
        DefinitionError: there is none, or none that rows can be written to by key.
        TransientError: no node answers.
    """
    keyspace, _, table = name.partition(".")
    with login.errors(f"looking for table {name}"):
        session = login.session()
        session.cluster.refresh_table_metadata(
            keyspace, table
        ) if keyspace in session.cluster.metadata.keyspaces else None
    known = session.cluster.metadata.keyspaces.get(keyspace)
    if known is None:
        raise DefinitionError(
            f"there is no keyspace {keyspace!r} in Cassandra at {login.name}",
            next=did_you_mean(keyspace, session.cluster.metadata.keyspaces, f"CREATE KEYSPACE {keyspace} …"),
        )
    metadata = known.tables.get(table)
    if metadata is None:
        raise DefinitionError(
            f"there is no table {name} in Cassandra at {login.name}",
            next=did_you_mean(table, known.tables, f"CREATE TABLE {name} (…)"),
        )
    key = [column.name for column in metadata.primary_key]
    every = [*key, *(each for each in metadata.columns if each not in key)]
    columns = tuple(
        CassandraColumn(each, str(metadata.columns[each].cql_type), each in key, bool(metadata.columns[each].is_static))
        for each in every
    )
    if any(column.kind == "counter" for column in columns):
        raise DefinitionError(
            f"table {name} has counters, which a repeated checkpoint would count twice",
            next="write sums to a table of plain columns",
        )
    if not columns:
        raise TransientError(f"Cassandra at {login.name} shows no columns of table {name}", next="it is repeated")
    return CassandraTable(f"{quoted(keyspace)}.{quoted(table)}", columns)


def check_columns(table: CassandraTable, sink: str, names: Sequence[str]) -> None:
    """Raise DefinitionError unless rows with these columns have the key of the table, and no column that it has not."""
    for name in names:
        column = table.column(name)
        if column is None:
            raise DefinitionError(
                f"sink {sink!r}: the rows have a column {name!r}, and table {table.name} has"
                f" {', '.join(each.name for each in table.columns)}",
                next="leave the column out with columns=[…], or add it to the table",
                participant=sink,
            )
        if column.is_static:
            raise DefinitionError(
                f"sink {sink!r}: column {name!r} of table {table.name} is static: of several rows of a partition, which one it has"
                " last would be chance",
                next="leave it out with columns=[…]",
                participant=sink,
            )
    if missing := [name for name in table.key if name not in names]:
        raise DefinitionError(
            f"sink {sink!r}: the rows lack {missing[0]!r}, which is in the primary key of table {table.name}",
            next=f"give the rows a column {missing[0]!r}",
            participant=sink,
        )


def check_types(table: CassandraTable, sink: str, fields: Sequence[pa.Field]) -> None:
    """Raise DefinitionError unless columns of these types fit those of the table."""
    for field in fields:
        column = table.column(field.name)
        if column is not None and not fits(field.type, column.kind):
            raise DefinitionError(
                f"sink {sink!r}: column {field.name!r} is {field.type}, and in table {table.name} it is {column.kind}",
                next=f'cast it before the sink, such as .with_column("{field.name}", "cast({field.name} as …)")',
                participant=sink,
            )


def fits(kind: pa.DataType, cql: str) -> bool:
    """Return whether values of an Arrow type can be those of a type of CQL; a number that is too large is a bad row."""
    t = pa.types
    if cql.startswith("frozen<"):
        return fits(kind, cql[len("frozen<") : -1])
    if t.is_dictionary(kind):
        return fits(kind.value_type, cql)
    if t.is_null(kind):
        return True
    plain: list[tuple[bool, Sequence[str]]] = [
        (t.is_boolean(kind), ("boolean",)),
        (t.is_integer(kind), _WHOLE),
        (t.is_floating(kind), ("float", "double")),
        (t.is_decimal(kind), ("decimal", "varint") if t.is_decimal(kind) and kind.scale == 0 else ("decimal",)),
        (t.is_string(kind) or t.is_large_string(kind), _TEXTS),
        (t.is_binary(kind) or t.is_large_binary(kind), ("blob",)),
        (t.is_date(kind), ("date",)),
        (t.is_timestamp(kind), ("timestamp",)),
        (t.is_time(kind), ("time",)),
    ]
    for is_it, known in plain:
        if is_it:
            return cql in known
    inner = cql[cql.find("<") + 1 : -1]
    if t.is_list(kind) or t.is_large_list(kind):
        return cql.startswith(("list<", "set<")) and fits(kind.value_type, inner)
    if t.is_map(kind) and cql.startswith("map<"):
        key, _, value = inner.partition(", ")
        return fits(kind.key_type, key) and fits(kind.item_type, value)
    return False
