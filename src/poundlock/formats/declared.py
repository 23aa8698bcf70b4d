"""Records of a user's function, held against the columns it declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats import convert
from poundlock.formats.chunk import NoOrigin, Records
from poundlock.formats.reject import Reject


def declared_rows(operator: str, schema: pa.Schema, values: Sequence[Any]) -> pa.RecordBatch:
    """Return records as columns.

    Args:
        operator: id of the operator whose function gave them, for errors.
        schema: the columns that were declared.
        values: the records, dicts of column to value.

    Raises:
        DefinitionError: one is no dict, or has another column.
        TerminalError: a value does not fit its column.
    """
    known = set(schema.names)
    for value in values:
        if type(value) is not dict:
            raise DefinitionError(
                f"{operator} emitted {type(value).__name__}, not a dict",
                next="yield {column: value, …} with the declared schema",
            )
        if not value.keys() <= known:
            extra = min(value.keys() - known)
            raise DefinitionError(
                f"{operator} emitted the undeclared column {extra!r}",
                next=f"add it to schema=, or yield only {', '.join(schema.names)}",
            )
    bad: list[Reject] = []
    rows = convert.to_batch(Records(values, NoOrigin(operator)), schema, bad.append).batch
    if bad:
        raise TerminalError(
            f"{operator} emitted a record that does not fit: {bad[0].reason}",
            next="make its values fit the declared schema, or change the schema",
        )
    return rows
