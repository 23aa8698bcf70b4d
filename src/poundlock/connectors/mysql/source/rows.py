"""Changes as rows: what happened, where in the log, and the row before and after, as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from poundlock.connectors.changes.chunked_snapshot import RowChange
from poundlock.connectors.mysql.source.log import Image, LoggedTransaction
from poundlock.connectors.mysql.source.positions import LogPlace
from poundlock.connectors.mysql.types import MySqlColumn, from_logged

_HEAD = [
    pa.field("op", pa.string()),
    pa.field("file", pa.string()),
    pa.field("pos", pa.int64()),
    pa.field("number", pa.int32()),
    pa.field("gtid", pa.string()),
    pa.field("commit_time", pa.timestamp("us", tz="UTC")),
    pa.field("table", pa.string()),
]
_SECOND_US = 1_000_000


class LoggedChange(NamedTuple):
    """One change of a row, and which one of its transaction it is."""

    op: str  # "insert", "update", "delete" or "truncate"
    table: str
    transaction: LoggedTransaction
    number: int
    row: RowChange[Image]


def row_type(columns: Sequence[MySqlColumn]) -> pa.StructType:
    """Return the type of a row."""
    return pa.struct([(column.name, column.arrow) for column in columns])


def change_schema(columns: Sequence[MySqlColumn]) -> pa.Schema:
    """Return the columns of change rows for a table's columns."""
    row = row_type(columns)
    return pa.schema([*_HEAD, pa.field("before", row), pa.field("after", row)])


def as_batch(changes: Sequence[LoggedChange], columns: Sequence[MySqlColumn]) -> pa.RecordBatch:
    """Return changes as rows."""
    heads = (
        [c.op for c in changes],
        [c.transaction.file for c in changes],
        [c.transaction.pos for c in changes],
        [c.number for c in changes],
        [c.transaction.gtid for c in changes],
        [c.transaction.time * _SECOND_US for c in changes],
        [c.table for c in changes],
    )
    head = [pa.array(values, field.type) for values, field in zip(heads, _HEAD, strict=True)]
    images = [
        images_of([getattr(c.row, side) for c in changes], columns, changes[0].table) for side in ("before", "after")
    ]
    return pa.RecordBatch.from_arrays([*head, *images], schema=change_schema(columns))


def images_of(rows: Sequence[Image | None], columns: Sequence[MySqlColumn], what: str) -> pa.StructArray:
    """Return rows of the log as a column; a column that a row has not is null in it."""
    arrays = [from_logged([None if r is None else r.get(c.name) for r in rows], c, what) for c in columns]
    return pa.StructArray.from_arrays(
        arrays, fields=list(row_type(columns)), mask=pa.array([r is None for r in rows], pa.bool_())
    )


def as_read(table: str, rows: pa.RecordBatch, columns: Sequence[MySqlColumn], place: LogPlace) -> pa.RecordBatch:
    """Return rows that were there at a place of the log as change rows: op "read", without a number, time or image before."""
    schema, count = change_schema(columns), rows.num_rows
    known: dict[str, Any] = {"op": "read", "file": place.file, "pos": place.pos, "table": table}
    head = [pa.repeat(pa.scalar(known.get(field.name), field.type), count) for field in _HEAD]
    after = pa.StructArray.from_arrays(rows.columns, fields=list(schema.field("after").type))
    return pa.RecordBatch.from_arrays([*head, pa.nulls(count, schema.field("before").type), after], schema=schema)


def size_of(image: Image | None) -> int:
    """Return about how many bytes a row takes."""
    return 0 if image is None else sum(len(v) if isinstance(v, (str, bytes)) else 16 for v in image.values())
