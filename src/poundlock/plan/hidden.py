"""Columns that travel beside a user's: event time, and the place of a row in its checkpoint.

They pass through row-wise steps untouched and never reach a user's function, a user's `*` or a sink.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

EVENT_TIME = "__event_time"
SPLIT = "__split"
ROW = "__row"

HIDDEN_TYPES = {
    EVENT_TIME: pa.timestamp("us", "UTC"),  # null where a row has none
    SPLIT: pa.int32(),  # which split of the checkpoint the row was read in, -1 where that is not known
    ROW: pa.int64(),  # its place among the rows of the split
}
HIDDEN = tuple(HIDDEN_TYPES)


def visible(names: Iterable[str]) -> list[str]:
    """Return the columns that are the user's, in their order."""
    return [name for name in names if name not in HIDDEN_TYPES]


def visible_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without hidden columns."""
    return pa.schema([field for field in schema if field.name not in HIDDEN_TYPES])
