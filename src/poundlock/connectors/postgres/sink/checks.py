"""What a PostgresSink may say: checks of its settings when it is written down, and of the rows it is given.

Each refusal names the setting and the value to give it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from poundlock.connectors.column_checks import need_columns
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.postgres.sink.sink import PostgresSink
    from poundlock.connectors.postgres.sink.table import Table


_GUARANTEES = ("exactly-once", "effectively-once", "at-least-once")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


def check_sink(sink: PostgresSink) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    if not isinstance(sink.dsn, str) or not sink.dsn.strip():
        raise DefinitionError(
            "PostgresSink has no dsn", next='write dsn="postgresql://user@host:5432/database" or dsn="env:DATABASE_URL"'
        )
    sink.login.check()
    if not isinstance(sink.table, str) or not sink.table.strip():
        raise DefinitionError(f"table={sink.table!r} is no table", next='write table="events" or table="schema.events"')
    if sink.guarantee not in _GUARANTEES:
        raise DefinitionError(f"guarantee={sink.guarantee!r} is not known", next=f"use one of {', '.join(_GUARANTEES)}")
    if sink.guarantee == "effectively-once" and not sink.key:
        raise DefinitionError(
            'guarantee="effectively-once" writes rows by key, and there is none', next='name the key: key=["id"]'
        )
    if sink.guarantee != "effectively-once" and sink.key is not None:
        raise DefinitionError(
            f'rows with a key replace each other, which is guarantee="effectively-once" and not {sink.guarantee!r}',
            next="leave guarantee out, or leave key out to add every row",
        )
    if sink.delete_when is not None and not sink.key:
        raise DefinitionError("delete_when= needs a key to find the row by", next='name the key: key=["id"]')
    for name in ("key", "columns"):
        given = getattr(sink, name)
        if given is not None and (not given or not all(isinstance(x, str) and x for x in given)):
            raise DefinitionError(f"{name}={list(given)!r} does not name columns", next=f'write {name}=["id"]')
    if sink.columns is not None and (missing := [name for name in sink.key or () if name not in sink.columns]):
        raise DefinitionError(f"key column {missing[0]!r} is not in columns=", next="add it to columns=")
    if not isinstance(sink.marker_table, str) or not _PLAIN.fullmatch(sink.marker_table):
        raise DefinitionError(
            f"marker_table={sink.marker_table!r} is not a plain name", next='write marker_table="poundlock_commits"'
        )
    if sink.lock_timeout_ms < 1:
        raise DefinitionError("lock_timeout must be longer than 0", next='write lock_timeout="60 s"')


def check_columns(sink: PostgresSink, name: str, columns: Sequence[str], table: Table | None) -> None:
    """Raise DefinitionError unless rows with these columns have what is written, and the table has columns for it."""
    needed = [*(sink.columns or ()), *(sink.key or ()), *([sink.delete_when] if sink.delete_when else [])]
    need_columns(name, needed, columns)
    if table is not None:
        from poundlock.connectors.postgres.sink.table import matched

        matched(table, name, written(sink, columns))


def check_schema(sink: PostgresSink, name: str, schema: pa.Schema, table: Table | None) -> None:
    """Raise DefinitionError unless the types of the rows fit those of the table."""
    if table is None:
        return
    from poundlock.connectors.postgres.sink.table import check_types, matched

    names = written(sink, schema.names)
    check_types(table, name, matched(table, name, names), [schema.field(column) for column in names])
    if sink.delete_when is not None and str(schema.field(sink.delete_when).type) != "bool":
        raise DefinitionError(
            f"sink {name!r}: delete_when={sink.delete_when!r} is {schema.field(sink.delete_when).type}",
            next="make it a boolean column",
            participant=name,
        )


def written(sink: PostgresSink, columns: Sequence[str]) -> list[str]:
    """Return which of the rows' columns are written."""
    return [name for name in (sink.columns or columns) if name != sink.delete_when]
