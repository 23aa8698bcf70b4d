"""How a table is cut into ranges that tasks read side by side; each row is in exactly one of them.

By physical place, where there is one snapshot of the table: that needs no key and no statistics. By key otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.connectors.postgres.source.relation import Relation

_MOST = 4096


def cut(connection: Any, relation: Relation, *, key: str | None, split_bytes: int) -> list[str]:
    """Return a condition for each range; "" for the only one. Without a key it is cut by physical place, where there is one."""
    if key is not None:
        return by_key(connection, relation, key, split_bytes)
    return by_place(relation.pages, max(1, split_bytes // relation.page_size)) if relation.has_places else [""]


def by_place(pages: int, step: int) -> list[str]:
    """Return ranges of pages; the last one has no end, so that nothing lies behind it."""
    step = max(step, -(-pages // _MOST))
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
    parts = min(_MOST, -(-size // split_bytes))
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
