"""What is read: a table or a query, looked up in the server's catalog when the job starts, and cut into ranges.

Each row is in exactly one of the ranges, which tasks read side by side. By physical place, where there is one snapshot of the
table: that needs no key and no statistics. By key otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.connectors.postgres.types import Column, column_of
from poundlock.errors import DefinitionError, TerminalError

if TYPE_CHECKING:
    import pyarrow as pa

# Tables, partitioned tables and materialized views: their rows have a physical place that ranges can be made of.
_WITH_PLACES = ("r", "p", "m")
_MOST_RANGES = 4096


class WantedRelation(Protocol):
    """What is to be read: a source, or one of its tables."""

    @property
    def table(self) -> str | None:
        """A table, as SQL names it."""

    @property
    def query(self) -> str | None:
        """A SELECT instead."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns wanted, None = all."""

    @property
    def where(self) -> str | None:
        """A condition on the rows."""

    @property
    def shown(self) -> str:
        """What people know it by."""


@dataclass(frozen=True, slots=True)
class OneTable:
    """A table of several."""

    table: str
    shown: str
    columns: Sequence[str] | None
    query: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or query as it is."""

    source: str  # SQL that stands behind FROM
    columns: tuple[Column, ...]
    where: str | None = None
    oid: int = 0  # 0 for a query
    kind: str = "q"  # the catalog's letter for what it is, "q" for a query
    pages: int = 0  # of its greatest part
    page_size: int = 8192  # bytes
    size: int = 0  # bytes
    keys: tuple[str, ...] = ()  # the columns of its primary key, in the key's order
    identity: str = ""  # the catalog's letter for what is logged of a row as it was before a change

    @property
    def key(self) -> str | None:
        """Its primary key, where that is one column."""
        return self.keys[0] if len(self.keys) == 1 else None

    @property
    def full_identity(self) -> bool:
        """Whether changes are logged with the whole row as it was before."""
        return self.identity == "f"

    @property
    def has_places(self) -> bool:
        """Whether it can be read by physical ranges."""
        return self.kind in _WITH_PLACES

    def select(self, *conditions: str) -> str:
        """Return the SELECT of the rows that meet further conditions, as `from_csv` reads them."""
        return f"SELECT {', '.join(column.selected for column in self.columns)} FROM {self.source}{self.matching(*conditions)}"

    def matching(self, *conditions: str) -> str:
        """Return WHERE with the user's condition and further ones; nothing if there are none."""
        parts = [f"({c})" for c in (self.where, *conditions) if c]
        return f" WHERE {' AND '.join(parts)}" if parts else ""


def look_up(connection: Any, wanted: WantedRelation) -> Relation:
    """Return what is to be read as the server knows it.

    Raises:
        DefinitionError: there is no such table or column.
    """
    if wanted.table is None:
        source = f"({wanted.query}) AS q"
        columns = _columns(connection, source, wanted)
        connection.execute(f"EXPLAIN SELECT 1 FROM {source}" + (f" WHERE {wanted.where}" if wanted.where else ""))
        return Relation(source, columns, wanted.where)
    oid = connection.execute("SELECT to_regclass(%s)::oid", [wanted.table]).fetchone()[0]
    if oid is None:
        database = connection.info.dbname
        raise DefinitionError(
            f"there is no table {wanted.table} in database {database!r}, or this user may not see its schema",
            next='give table="schema.name" as the server has it, in double quotes where it has capital letters',
        )
    space, name, kind, identity, size, pages, page_size = connection.execute(_TABLE, [oid]).fetchone()
    key = connection.execute(_KEY, [oid]).fetchone()
    source = f"{identifier(space)}.{identifier(name)}"
    columns = _columns(connection, source, wanted)
    if wanted.where:
        connection.execute(f"EXPLAIN SELECT 1 FROM {source} WHERE {wanted.where}")
    keys = tuple(key[0]) if key is not None else ()
    return Relation(source, columns, wanted.where, oid, kind, int(pages), int(page_size), int(size), keys, identity)


def as_planned(relation: Relation, schema: pa.Schema, what: str) -> Relation:
    """Return a relation with the columns that the job was planned with; what was added since waits for its next start.

    Raises:
        TerminalError: one of them is gone, or is of another type.
    """
    now = {column.name: column for column in relation.columns}
    for field in schema:
        if field.name not in now or now[field.name].arrow != field.type:
            how = "is gone" if field.name not in now else f"was {field.type} and is {now[field.name].arrow}"
            raise TerminalError(
                f"column {field.name!r} of {what} {how}, since the job was started",
                next="start the job again: it then reads the columns that there are",
            )
    return replace(relation, columns=tuple(now[name] for name in schema.names))


_TABLE = """
SELECT n.nspname, c.relname, c.relkind, c.relreplident, coalesce(s.size, 0), coalesce(s.most, 0) / b.size, b.size
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (SELECT current_setting('block_size')::bigint AS size) b
CROSS JOIN LATERAL (
    SELECT sum(pg_relation_size(m.part)) AS size, max(pg_relation_size(m.part)) AS most FROM (
        SELECT relid AS part FROM pg_partition_tree(c.oid) WHERE c.relkind = 'p' AND isleaf
        UNION SELECT c.oid WHERE c.relkind IN ('r', 'm')
    ) m
) s
WHERE c.oid = %s
"""
_KEY = """
SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisprimary AND k.place <= i.indnkeyatts HAVING count(*) > 0
"""


def _columns(connection: Any, source: str, wanted: WantedRelation) -> tuple[Column, ...]:
    description: Sequence[Any] = connection.execute(f"SELECT * FROM {source} LIMIT 0").description or ()
    every = [column_of(each) for each in description]
    if not every or (wanted.columns is not None and not wanted.columns):
        raise DefinitionError(
            f"{wanted.shown} has no columns to read, and rows without any cannot be written",
            next="name a table with columns, or leave columns=… out",
        )
    names = [column.name for column in every]
    if len(set(names)) != len(names) or "?column?" in names:
        raise DefinitionError(
            f"{wanted.shown} has a column without a name, or two of one name: {', '.join(names)}",
            next="name each column in the query with AS",
        )
    if wanted.columns is None:
        return tuple(every)
    by_name = {column.name: column for column in every}
    if missing := [name for name in wanted.columns if name not in by_name]:
        raise DefinitionError(
            f"{wanted.shown} has no column {missing[0]!r}; it has {', '.join(names)}", next="mend columns=…"
        )
    return tuple(by_name[name] for name in wanted.columns)


def cut(connection: Any, relation: Relation, *, key: str | None, split_bytes: int) -> list[str]:
    """Return a condition for each range; "" for the only one. Without a key it is cut by physical place, where there is one."""
    if key is not None:
        return by_key(connection, relation, key, split_bytes)
    return by_place(relation.pages, max(1, split_bytes // relation.page_size)) if relation.has_places else [""]


def by_place(pages: int, step: int) -> list[str]:
    """Return ranges of pages; the last one has no end, so that nothing lies behind it."""
    step = max(step, -(-pages // _MOST_RANGES))
    borders = list(range(step, pages, step))
    if not borders:
        return [""]
    places = [f"'({page},0)'::tid" for page in borders]
    middle = [f"ctid >= {a} AND ctid < {b}" for a, b in pairwise(places)]
    return [f"ctid < {places[0]}", *middle, f"ctid >= {places[-1]}"]


def by_key(connection: Any, relation: Relation, key: str, split_bytes: int) -> list[str]:
    """Return ranges of a column's values with about as many rows each; rows without a value are in the first one."""
    size = relation.size
    if not relation.oid or not size:  # of a query or a view nobody knows how large it is
        rows = connection.execute(f"SELECT count(*) FROM {relation.source}{relation.matching()}").fetchone()[0]
        size = int(rows) * 100
    parts = min(_MOST_RANGES, -(-size // split_bytes))
    if parts < 2:
        return [""]
    name = identifier(key)
    fractions = ", ".join(repr(i / parts) for i in range(1, parts))
    # Without parameters: a percent sign in the user's condition is not a placeholder.
    row = connection.execute(
        f"SELECT (percentile_disc(ARRAY[{fractions}]::float8[]) WITHIN GROUP (ORDER BY {name}))::text[], min(pg_typeof({name})::text)"
        f" FROM {relation.source}{relation.matching()}"
    ).fetchone()
    borders = list(dict.fromkeys(value for value in row[0] or () if value is not None))
    if not borders:
        return [""]
    values = [f"{literal(value)}::{row[1]}" for value in borders]
    middle = [f"{name} >= {a} AND {name} < {b}" for a, b in pairwise(values)]
    # Of a row type, IS NULL is also true where every field is null; such a value has its place in the order, at the end.
    return [f"{name} < {values[0]} OR {name} IS NOT DISTINCT FROM NULL", *middle, f"{name} >= {values[-1]}"]


def conditions_between(column: str, kind: str, borders: Sequence[str | None]) -> list[str]:
    """Return a condition for each pair of neighbours: greater than the one, at most the other; None = no border."""
    name = identifier(column)
    conditions = []
    for low, high in pairwise(borders):
        parts = [f"{name} > {literal(low)}::{kind}"] if low is not None else []
        parts += [f"{name} <= {literal(high)}::{kind}"] if high is not None else []
        conditions.append(" AND ".join(parts))
    return conditions
