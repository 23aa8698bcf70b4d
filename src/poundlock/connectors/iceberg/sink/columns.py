"""Which rows go into a table: by the names of their columns, and by their types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from poundlock.connectors.iceberg.types import goes_into
from poundlock.errors import DefinitionError, did_you_mean


def check_rows(sink: str, table: str, wanted: pa.Schema, rows: pa.Schema, columns: Sequence[str] | None) -> None:
    """Raise DefinitionError unless rows with these columns can be written.

    Args:
        sink: its name in the job.
        table: the table's, for people.
        wanted: the table's columns.
        rows: the columns that come.
        columns: those that are written; None = all.
    """
    for name in columns if columns is not None else rows.names:
        if name not in rows.names:
            raise DefinitionError(
                f"sink {sink!r} needs a column {name!r}, and the rows have {', '.join(rows.names)}",
                next=did_you_mean(name, rows.names, "name one of them", show=repr),
                participant=sink,
            )
        if name not in wanted.names:
            raise DefinitionError(
                f"sink {sink!r}: the rows have a column {name!r}, and {table} has {', '.join(wanted.names)}",
                next="leave it out with columns=[…], or have it added: create=pa.schema([…]) with add_columns=True",
                participant=sink,
            )
        source, target = rows.field(name).type, wanted.field(name).type
        if not goes_into(source, target):
            raise DefinitionError(
                f"sink {sink!r}: column {name!r} is {source}, and in {table} it is {target}",
                next=f'cast it before the sink: .select("cast({name} as …) as {name}", …)',
                participant=sink,
            )
    for field in wanted:
        if not field.nullable and field.name not in (columns if columns is not None else rows.names):
            raise DefinitionError(
                f"sink {sink!r}: column {field.name!r} of {table} is required, and the rows do not have it",
                next="add it to the rows: .with_column(…)",
                participant=sink,
            )
