"""The tables that change data capture reads, as the server's catalog has them: by name or by pattern, with their columns and keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.arguments import refuse_without_effect
from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.connectors.postgres.source import slots
from poundlock.connectors.postgres.source.relation import OneTable, Relation, WantedRelation, look_up
from poundlock.connectors.postgres.source.relation import as_planned as with_planned
from poundlock.connectors.postgres.types import Column
from poundlock.errors import DefinitionError, TerminalError
from poundlock.values import size

if TYPE_CHECKING:
    from poundlock.connectors.postgres.source.source import PostgresSource

ORDERED = {
    21: "smallint", 23: "integer", 20: "bigint", 1082: "date", 1114: "timestamp", 1184: "timestamptz", 2950: "uuid",
}  # fmt: skip
"""Types whose values have one order, in the server and here, so that a table can be cut by them; by the number of the type."""
_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_ROW_BYTES = 100  # where the server does not know how many rows there are


def check_settings(source: PostgresSource) -> None:
    """Raise DefinitionError unless the settings of a source are such that changes can be read by them."""
    if source.query is not None or source.where is not None:
        raise DefinitionError(
            'mode "cdc" reads a table, whole', next="name it in table=…, and filter the rows in the job"
        )
    if source.slot is None or source.publication is None:
        raise DefinitionError(
            'mode "cdc" needs a slot and a publication',
            next='CREATE PUBLICATION my_pub FOR TABLE …; then write slot="my_job", publication="my_pub"',
        )
    if not _SLOT.fullmatch(source.slot):
        raise DefinitionError(
            f"{source.slot!r} is no name for a replication slot", next='use lower case letters, digits and "_"'
        )
    for pattern in source.tables or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise DefinitionError(
                f"tables=[…]: {pattern!r} is no regular expression: {error}",
                next='write such as "public\\.orders_.*"',
            ) from None
    if source.tables is not None and (not source.tables or len(set(source.tables)) != len(source.tables)):
        raise DefinitionError("tables=[…] is empty, or names one twice", next='write tables=["public.orders"]')
    if source.initial == "none":
        given = {"chunk_size": (source.chunk_size, None), "chunks_per_checkpoint": (source.chunks_per_checkpoint, 16)}
        refuse_without_effect("PostgresSource", given, because='initial is "none"')
    if source.chunk_size is not None and source.split_size != size("64 MB"):
        raise DefinitionError("chunk_size and split_size both say how large a chunk is", next="write one of them")


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table, with the columns that are read."""

    name: str  # "schema.table"
    oid: int
    source: str  # SQL that stands behind FROM
    columns: tuple[Column, ...]
    declared: tuple[int, ...]  # the numbers of the types they were declared with, which for a domain is another one
    key: tuple[str, ...] = ()  # the columns by which rows are told apart; none = they are not
    cut_by: str | None = None  # the column by which it is cut into chunks; None = it is one chunk

    @property
    def schema_name(self) -> str:
        """The schema it is in."""
        return self.name.partition(".")[0]

    @property
    def table_name(self) -> str:
        """Its name there."""
        return self.name.partition(".")[2]

    def place_of(self, name: str) -> int:
        """Return which of the columns has a name."""
        return next(i for i, column in enumerate(self.columns) if column.name == name)

    def border(self, text: str) -> str:
        """Return a value of the column that it is cut by as SQL."""
        return f"{literal(text)}::{ORDERED[self.columns[self.place_of(str(self.cut_by))].oid]}"


def named(connection: Any, patterns: Sequence[str]) -> list[str]:
    """Return the names, "schema.table", that some names or regular expressions mean, in order.

    A pattern does not mean the parts of a partitioned table; a name does.

    Raises:
        DefinitionError: one of them means none.
    """
    rows = connection.execute(_NAMES).fetchall()
    names = {name: bool(is_part) for name, is_part in rows}
    matches: dict[str, None] = {}
    for pattern in patterns:
        fitting = (
            [pattern] if pattern in names else [n for n, part in names.items() if not part and re.fullmatch(pattern, n)]
        )
        if not fitting:
            raise DefinitionError(
                f"there is no table {pattern} in database {connection.info.dbname!r}, or this user may not see its schema",
                next='write tables=["schema.table"], or a regular expression of such names: "public\\.orders_[0-9]+"',
            )
        matches.update(dict.fromkeys(fitting))
    return sorted(matches)


_NAMES = """
SELECT n.nspname || '.' || c.relname, c.relispartition FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' ORDER BY 1
"""


def relations(connection: Any, source: PostgresSource) -> list[tuple[str, Relation]]:
    """Return the tables of a source by name, "schema.table", as the server knows them.

    Raises:
        DefinitionError: there is no such table or column.
    """
    if source.table is not None:
        return [_named(connection, source)]
    matches = []
    for name in named(connection, source.tables or ()):
        space, _, table = name.partition(".")
        matches.append(_named(connection, OneTable(f"{identifier(space)}.{identifier(table)}", name, source.columns)))
    return matches


def _named(connection: Any, wanted: WantedRelation) -> tuple[str, Relation]:
    relation = look_up(connection, wanted)
    row = connection.execute(
        "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s",
        [relation.oid],
    ).fetchone()
    return (str(row[0]) if row is not None else wanted.shown), relation


def published_tables(connection: Any, source: PostgresSource) -> list[PublishedTable]:
    """Return the tables of a source with what their changes need.

    Raises:
        DefinitionError: there is no such table or column, it cannot be cut as is said, or tables of one source are unlike.
    """
    tables = [_logged(connection, source, name, relation) for name, relation in relations(connection, source)]
    if source.output == "debezium":
        return tables
    first = {column.name: column.arrow for column in tables[0].columns}
    for table in tables[1:]:
        if {column.name: column.arrow for column in table.columns} != first:
            raise DefinitionError(
                f"{table.name} has other columns than {tables[0].name}, and rows of one source have one form",
                next='name the columns that both have in columns=[…], or make a source for each, or say output="debezium"',
            )
    return [_in_order(table, list(first)) for table in tables]


def _in_order(table: PublishedTable, names: Sequence[str]) -> PublishedTable:
    places = [table.place_of(name) for name in names]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        declared=tuple(table.declared[place] for place in places),
    )


def as_planned(connection: Any, source: PostgresSource, planned: Sequence[PublishedTable]) -> list[PublishedTable]:
    """Return tables as they are now, with the columns that the job was planned with; what was added since waits for its next start.

    Raises:
        DefinitionError: one of them is gone.
        TerminalError: a column of one is gone, or is of another type.
    """
    made = []
    for table in planned:
        wanted = source if source.table is not None else OneTable(table.source, table.name, source.columns)
        name, relation = _named(connection, wanted)
        schema = pa.schema([(column.name, column.arrow) for column in table.columns])
        made.append(replace(table, name=name, oid=relation.oid, columns=with_planned(relation, schema, name).columns))
    return made


def _logged(connection: Any, source: PostgresSource, name: str, relation: Relation) -> PublishedTable:
    declared, columns = declared_columns(connection, relation)
    table = PublishedTable(name, relation.oid, relation.source, columns, declared)
    names = {column.name: column for column in columns}
    if lone := [name for name in source.columns or () if name not in names]:
        raise DefinitionError(
            f"column {lone[0]!r} of {name} is generated, and not in the log",
            next="leave it out of columns=[…], and compute it in the job",
        )
    has_key = bool(relation.keys) and all(key in names and not _is_list(names[key]) for key in relation.keys)
    table = replace(table, key=relation.keys if has_key else ())
    if source.key is not None:
        return replace(table, cut_by=_chosen(connection, source, relation, names))
    first = table.key[0] if table.key else None
    # By an index of another kind, or by none, old rows come without the key.
    is_cut = first is not None and names[first].oid in ORDERED and relation.identity in ("d", "f")
    return replace(table, cut_by=first if is_cut else None)


def _is_list(column: Column) -> bool:
    return bool(pa.types.is_list(column.arrow))


def _chosen(connection: Any, source: PostgresSource, relation: Relation, names: dict[str, Column]) -> str:
    """Return the column that the user says it is cut by."""
    key = str(source.key)
    why = ""
    if key not in names:
        why = "it is not read"
    elif names[key].oid not in ORDERED:
        why = f"it is none of {', '.join(ORDERED.values())}"
    elif source.before == "key" and (key not in relation.keys or relation.identity not in ("d", "f")):
        why = 'with before="key" the log has the old values of the primary key alone'
    elif not connection.execute(
        "SELECT attnotnull FROM pg_attribute WHERE attrelid = %s AND attname = %s", [relation.oid, key]
    ).fetchone()[0]:
        why = "it may be null"
    if why:
        raise DefinitionError(
            f"{relation.source} cannot be cut into chunks by {key!r}: {why}", next="mend key=…, or leave it out"
        )
    return key


def declared_columns(connection: Any, relation: Relation) -> tuple[tuple[int, ...], tuple[Column, ...]]:
    """Return the declared types of the columns that changes have, and those columns; generated ones are not logged."""
    rows = connection.execute(_DECLARED, [[relation.oid]]).fetchall()
    types = {name: oid for _, name, oid, generated in rows if not generated}
    columns = tuple(c for c in relation.columns if c.name in types)
    return tuple(types[c.name] for c in columns), columns


_DECLARED = (
    "SELECT attrelid::int8, attname::text, atttypid::int8, attgenerated::text FROM pg_attribute WHERE attrelid = ANY(%s::oid[])"
    " AND attnum > 0 AND NOT attisdropped"
)


def check_declared(connection: Any, tables: Sequence[PublishedTable]) -> None:
    """Raise TerminalError unless the columns of tables are there and declared as they were.

    So a column that a change in the log is without was added later: were it gone, it would not be here.
    """
    rows = connection.execute(_DECLARED, [[table.oid for table in tables]]).fetchall()
    types = {(oid, name): declared for oid, name, declared, _ in rows}
    known = {oid for oid, *_ in rows}
    for table in tables:
        for column, declared in zip(table.columns, table.declared, strict=True):
            now = types.get((table.oid, column.name))
            if now != declared and table.oid in known:
                raise TerminalError(
                    f"column {column.name!r} of {table.name} is {'gone' if now is None else 'of another type'}, since the job was started",
                    next="start the job again: it then reads the columns that there are",
                )


def rows_of_a_chunk(connection: Any, table: PublishedTable, split_bytes: int) -> int:
    """Return how many rows take about so many bytes."""
    size, rows = connection.execute(
        "SELECT coalesce(sum(pg_relation_size(part)), 0), coalesce(sum(greatest(reltuples, 0)), 0) FROM ("
        "SELECT relid AS part FROM pg_partition_tree(%s::oid::regclass) WHERE isleaf UNION SELECT %s::oid::regclass) p"
        " JOIN pg_class ON pg_class.oid = p.part AND relkind = 'r'",
        [table.oid, table.oid],
    ).fetchone()
    wide = float(size) / float(rows) if rows else _ROW_BYTES
    return max(1, int(split_bytes / max(wide, 1.0)))


def files_of(connection: Any, oid: int) -> str:
    """Return what names the files that have a table's rows: others are there when it was emptied or written anew.

    Of such a table, older states show nothing.
    """
    row = connection.execute(
        "SELECT string_agg(pg_relation_filenode(part)::text, ',' ORDER BY part::oid) FROM ("
        "SELECT relid AS part FROM pg_partition_tree(%s::oid::regclass) WHERE isleaf UNION SELECT %s::oid::regclass) p",
        [oid, oid],
    ).fetchone()
    return str(row[0] or "")


def check_ready(connection: Any, source: PostgresSource) -> None:
    """Raise DefinitionError, with the command that mends it, unless changes of all tables of a source can be read."""
    for name, relation in relations(connection, source):
        _, columns = declared_columns(connection, relation)
        slots.check_ready(
            connection,
            relation,
            publication=str(source.publication),
            columns=[column.name for column in columns],
            needs_old=source.before == "full",
            what=source.table or name,
        )
