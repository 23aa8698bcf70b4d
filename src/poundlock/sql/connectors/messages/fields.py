"""What a message has beside its body, as columns of a table: METADATA of the connectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from poundlock.errors import did_you_mean
from poundlock.sql.coercion import can_cast
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn
from poundlock.sql.types import SqlType


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of a message.

    Args:
        column: what source and sink call it.
        is_writable: whether a table's rows may say it.
    """

    column: str
    type: SqlType
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """A column of a table that shows a field of the message."""

    shows: MessageField
    field: Field

    def read(self, messages: pa.RecordBatch, context: EvaluationContext) -> pa.Array:
        """Return the column of some messages."""
        return read_as(messages.column(self.shows.column), self.shows.type, self.field, context)

    def written(self, rows: pa.RecordBatch, context: EvaluationContext) -> pa.Array:
        """Return the field of the messages that rows become."""
        return evaluate(cast_to(self.field.ref, self.shows.type), rows, context)


def read_as(given: pa.Array, type: SqlType, wanted: Field, context: EvaluationContext) -> pa.Array:
    """Return values of a type as those of a table's column."""
    one = pa.RecordBatch.from_arrays([given], ["given"])
    return evaluate(cast_to(ColumnRef("given", type), wanted.type), one, context)


def fields_shown(
    table: TableContext, fields: Mapping[str, MessageField], what: str, system: str, *, written: bool
) -> list[tuple[MessageField, Field]]:
    """Return the columns of a table that are fields of the message, each behind the field that it shows.

    Args:
        fields: that there are, as tables name them.
        what: a message is called, such as "a record".
        system: whose it is.
        written: whether the table is written to.

    Raises:
        OptionError: there is no such field, it is of another type, or cannot be written.
    """
    known = {field.name: field for field in table.fields}
    made = []
    for column in table.definition.columns:
        if not isinstance(column, ConnectorColumn) or column.name not in known:
            continue
        name, shows = f"{table.name.name}.{column.name}", fields.get(column.key)
        if shows is None:
            raise OptionError(
                f"{name}: {what} of {system} has no metadata {column.key!r}",
                next=did_you_mean(column.key, fields, f"use one of {', '.join(fields)}"),
                kind="unknown_column",
            )
        if written and not shows.is_writable:
            raise OptionError(f"{name}: {column.key} of {what} cannot be written", next="declare it METADATA VIRTUAL")
        given, wanted = (shows.type, column.type) if not written else (column.type, shows.type)
        if not can_cast(given, wanted):
            raise OptionError(
                f"{name} is {column.type}, and {column.key} of {what} {shows.type}",
                next=f"declare it {shows.type}",
                kind="type_mismatch",
            )
        made.append((shows, known[column.name]))
    return made
