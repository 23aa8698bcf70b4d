"""Changes as rows: what happened, where in the log, and the row before and after, as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from poundlock.connectors.changes.chunked_snapshot import RowChange
from poundlock.connectors.postgres.source.cdc_messages import (
    UNCHANGED,
    Begin,
    Change,
    Message,
    RelationMessage,
    Truncate,
    Values,
    lsn_text,
)
from poundlock.connectors.postgres.source.tables import PublishedTable
from poundlock.connectors.postgres.types import Column, from_texts
from poundlock.errors import TerminalError

_HEAD = [
    pa.field("op", pa.string()),
    pa.field("lsn", pa.int64()),
    pa.field("number", pa.int32()),
    pa.field("xid", pa.int64()),
    pa.field("commit_time", pa.timestamp("us", tz="UTC")),
]
_TABLE = pa.field("table", pa.string())


class DecodedChange(NamedTuple):
    """One change, and which one of its transaction it is.

    Args:
        op: "insert", "update", "delete" or "truncate".
        row: before and after, each by the table's columns.
        is_whole: whether the row before is there, whole, if there was one; else there may be its key, or nothing.
    """

    op: str
    table: PublishedTable
    transaction: Begin
    number: int
    row: RowChange[Values]
    is_whole: bool


def row_type(columns: Sequence[Column]) -> pa.StructType:
    """Return the type of a row."""
    return pa.struct([(column.name, column.arrow) for column in columns])


def change_schema(columns: Sequence[Column], *, has_table: bool = False) -> pa.Schema:
    """Return the columns of change rows for a table's columns."""
    row = row_type(columns)
    head = [*_HEAD, _TABLE] if has_table else _HEAD
    return pa.schema([*head, pa.field("before", row), pa.field("after", row)])


def as_read(rows: pa.RecordBatch, table: PublishedTable, lsn: int, *, has_table: bool) -> pa.RecordBatch:
    """Return rows that were there at a place of the log as change rows: op "read", without a number, time or image before."""
    schema, count = change_schema(table.columns, has_table=has_table), rows.num_rows
    after = pa.StructArray.from_arrays(rows.columns, fields=list(schema.field("after").type))
    known: dict[str, Any] = {"op": "read", "lsn": lsn, "table": table.name}
    head = [pa.repeat(pa.scalar(known.get(f.name), f.type), count) for f in schema if f.name not in ("before", "after")]
    return pa.RecordBatch.from_arrays([*head, pa.nulls(count, schema.field("before").type), after], schema=schema)


def as_batch(changes: Sequence[DecodedChange], *, has_table: bool) -> pa.RecordBatch:
    """Return changes as rows, of tables with the same columns."""
    table = changes[0].table
    heads: Mapping[str, list[Any]] = {
        "op": [c.op for c in changes],
        "lsn": [c.transaction.commit for c in changes],
        "number": [c.number for c in changes],
        "xid": [c.transaction.xid for c in changes],
        "commit_time": [c.transaction.time for c in changes],
        "table": [c.table.name for c in changes],
    }
    schema = change_schema(table.columns, has_table=has_table)
    head = [pa.array(heads[f.name], f.type) for f in schema if f.name in heads]
    images = [
        images_of([getattr(c.row, side) for c in changes], table.columns, table.name) for side in ("before", "after")
    ]
    return pa.RecordBatch.from_arrays([*head, *images], schema=schema)


def images_of(rows: Sequence[Values | None], columns: Sequence[Column], what: str) -> pa.StructArray:
    """Return rows of the log as a column."""
    texts: list[list[Any]] = [[None if r is None else r[i] for r in rows] for i in range(len(columns))]
    arrays = [
        from_texts([None if v is UNCHANGED else v for v in column], c, what)
        for column, c in zip(texts, columns, strict=True)
    ]
    mask = pa.array([r is None for r in rows], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(row_type(columns)), mask=mask)


def size_of(values: Values | None) -> int:
    """Return how long the texts of a row are."""
    return 0 if values is None else sum(len(value) for value in values if isinstance(value, (str, bytes)))


@dataclass
class DecodedChanges:
    """Makes changes of the messages of a range of the log.

    Args:
        tables: whose changes they are.
        full: whether rows before a change must be there, whole.
        start, end: the transactions whose commit stands from `start` to before `end` belong to the range; None = no end.
        later: whether a column that is not there was added later; else the table is another one, which is refused.
    """

    tables: Sequence[PublishedTable]
    _: KW_ONLY
    full: bool = False
    start: int
    end: int | None = None
    later: bool = True
    _places: dict[int, list[int | None] | str] = field(default_factory=dict, init=False)

    def of(self, messages: Iterable[Message | None]) -> Iterator[DecodedChange]:
        """Yield changes in the order of commits and in that of a transaction's changes.

        Raises:
            TerminalError: a table's columns changed in a way that cannot be followed, or a value was not sent.
        """
        tables = {table.oid: table for table in self.tables}
        transaction, number = None, 0
        for message in messages:
            if isinstance(message, Begin):
                is_ours = message.commit >= self.start and (self.end is None or message.commit < self.end)
                transaction, number = message if is_ours else None, 0
            elif isinstance(message, RelationMessage):
                if (described := tables.get(message.oid)) is not None:
                    # A transaction that is not of this range may be older than the job's view of the table, and nobody reads it.
                    self._places[message.oid] = self._described(message, described)
            elif transaction is None:
                continue
            elif isinstance(message, Change):
                if (table := tables.get(message.oid)) is not None:
                    number += 1
                    yield self._change(message, table, transaction, number)
            elif isinstance(message, Truncate):
                for oid in message.oids:
                    if oid in tables:
                        number += 1
                        nothing: RowChange[Values] = RowChange(None, None)
                        yield DecodedChange("truncate", tables[oid], transaction, number, nothing, True)

    def _described(self, message: RelationMessage, table: PublishedTable) -> list[int | None] | str:
        """Return where each column is, None where it is not there; or why that cannot be said."""
        place = {name: (i, oid) for i, (name, oid, _) in enumerate(message.columns)}
        made: list[int | None] = []
        for column, declared in zip(table.columns, table.declared, strict=True):
            if column.name not in place:
                if not self.later or column.name in table.key:
                    return f"column {column.name!r} is not as it was when the job started"
                made.append(None)
            elif place[column.name][1] != declared:
                return f"column {column.name!r} is not as it was when the job started"
            else:
                made.append(place[column.name][0])
        return made

    def _change(self, message: Change, table: PublishedTable, transaction: Begin, number: int) -> DecodedChange:
        is_whole = message.op == "insert" or (message.old is not None and not message.old_is_key)
        if self.full and not is_whole:
            raise TerminalError(
                f"the server did not log a row of {table.name} as it was before its {message.op}",
                next=f"ALTER TABLE {table.source} REPLICA IDENTITY FULL, each partition too, for changes from then on; to go on"
                ' over this one, say before="key"',
            )
        places = self._places[message.oid]
        if isinstance(places, str):
            raise TerminalError(
                f"the columns of {table.name} changed before {lsn_text(transaction.commit)}: {places}",
                next="start the job again to read on with the columns as they are now; where changes of both kinds wait,"
                " name those columns that both have in columns=[…]",
            )
        old, new = (_ours(values, places) for values in (message.old, message.new))
        if new is not None and UNCHANGED in new:
            new = _completed(new, old, table, old_is_key=message.old_is_key)
        return DecodedChange(message.op, table, transaction, number, RowChange(old, new), is_whole)


def _ours(values: Values | None, places: Sequence[int | None]) -> Values | None:
    return None if values is None else tuple(None if i is None else values[i] for i in places)


def _completed(new: Values, old: Values | None, table: PublishedTable, *, old_is_key: bool) -> Values:
    """Put long values that did not change into the new row, from the old one."""
    before = [UNCHANGED] if old is None else [o for o, n in zip(old, new, strict=True) if n is UNCHANGED]
    # Where only the key is known, null stands for whatever the other columns hold; a column of a key is never null.
    if old is None or UNCHANGED in before or (old_is_key and None in before):
        name = table.columns[new.index(UNCHANGED)].name
        raise TerminalError(
            f"an update of {table.name} left the long value of column {name!r} as it was, so the server did not send it",
            next=f"ALTER TABLE {table.source} REPLICA IDENTITY FULL, for updates from then on; or leave the column out of columns=[…]",
        )
    return tuple(o if n is UNCHANGED else n for o, n in zip(old, new, strict=True))
