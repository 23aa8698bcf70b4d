"""Changes as rows: what happened, where in the log, and the row before and after, as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pyarrow as pa

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
from poundlock.connectors.postgres.types import Column, from_texts
from poundlock.errors import TerminalError

_BATCH_BYTES = 8 << 20  # of the texts of a batch's rows
_ROW_BYTES = 400  # beside its texts
_HEAD = [
    pa.field("op", pa.string()),
    pa.field("lsn", pa.int64()),
    pa.field("number", pa.int32()),
    pa.field("xid", pa.int64()),
    pa.field("commit_time", pa.timestamp("us", tz="UTC")),
]


def change_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the columns of change rows for a table's columns."""
    row = pa.struct([(column.name, column.arrow) for column in columns])
    return pa.schema([*_HEAD, pa.field("before", row), pa.field("after", row)])


def as_changes(batch: pa.RecordBatch, columns: Sequence[Column], lsn: int) -> pa.RecordBatch:
    """Return rows that were there at the beginning as change rows: op "read", without a number, time or image before."""
    schema, count = change_schema(columns), batch.num_rows
    after = pa.StructArray.from_arrays(batch.columns, fields=list(schema.field("after").type))
    head = [
        pa.repeat(pa.scalar("read"), count),
        pa.repeat(pa.scalar(lsn, pa.int64()), count),
        *(pa.nulls(count, field.type) for field in _HEAD[2:]),
    ]
    return pa.RecordBatch.from_arrays([*head, pa.nulls(count, schema.field("before").type), after], schema=schema)


@dataclass
class ChangeRows:
    """Turns the messages of a range of the log into batches of rows.

    Args:
        declared: for each of them, the number of the type it was declared with, which for a domain is another one.
        whole: whether these are all columns, so that a further one is a change.
        full: whether rows before a change must be there, whole.
        start, end: the transactions whose commit stands from `start` to before `end` belong to the range.
    """

    oid: int
    columns: Sequence[Column]
    declared: Sequence[int]
    _: KW_ONLY
    whole: bool
    full: bool = False
    start: int
    end: int
    what: str
    _changed: str = field(default="", init=False)
    _transaction: Begin | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _places: list[int] | None = field(default=None, init=False)
    _bytes: int = field(default=0, init=False)
    _rows: list[tuple[str, int, int, int, Any, Values | None, Values | None]] = field(default_factory=list, init=False)

    def batches(self, messages: Iterable[Message | None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of messages, in the order of commits and in that of a transaction's changes.

        Raises:
            TerminalError: the table's columns changed, or a value was not sent.
        """
        for message in messages:
            if isinstance(message, Begin):
                self._transaction = message if self.start <= message.commit < self.end else None
                self._number = 0
            elif isinstance(message, RelationMessage):
                if message.oid == self.oid:
                    self._describe(message)
            elif isinstance(message, Change):
                if self._transaction is not None and message.oid == self.oid:
                    self._add(message.op, message.old, message.new, old_is_key=message.old_is_key)
            elif isinstance(message, Truncate) and self._transaction is not None and self.oid in message.oids:
                self._add("truncate", None, None)
            if self._bytes >= _BATCH_BYTES:
                yield self._batch()
        if self._rows:
            yield self._batch()

    def _describe(self, message: RelationMessage) -> None:
        place = {name: (i, oid) for i, (name, oid, _) in enumerate(message.columns)}
        wanted = zip(self.columns, self.declared, strict=True)
        wrong = [c.name for c, oid in wanted if place.get(c.name, (0, 0))[1] != oid]
        further = [name for name in place if name not in {c.name for c in self.columns}] if self.whole else []
        # A transaction that is not of this range may be older than the job's view of the table, and nobody reads it.
        self._places = None if wrong or further else [place[c.name][0] for c in self.columns]
        self._changed = (
            f"column {(wrong + further)[0]!r} is not as it was when the job started" if wrong + further else ""
        )

    def _add(self, op: str, old: Values | None, new: Values | None, *, old_is_key: bool = False) -> None:
        transaction = self._transaction
        assert transaction is not None
        if self.full and op in ("update", "delete") and (old is None or old_is_key):
            raise TerminalError(
                f"the server did not log a row of {self.what} as it was before its {op}",
                next=f"ALTER TABLE {self.what} REPLICA IDENTITY FULL, each partition too, for changes from then on; to go on"
                ' over this one, say before="key"',
            )
        if op != "truncate":
            old, new = self._ours(old), self._ours(new)
        if new is not None and UNCHANGED in new:
            new = self._completed(new, old, old_is_key=old_is_key)
        self._number += 1
        self._bytes += _ROW_BYTES + _bytes_of(old) + _bytes_of(new)
        self._rows.append((op, transaction.commit, self._number, transaction.xid, transaction.time, old, new))

    def _ours(self, values: Values | None) -> Values | None:
        if values is None:
            return None
        if self._places is None:
            assert self._transaction is not None
            raise TerminalError(
                f"the columns of {self.what} changed before {lsn_text(self._transaction.commit)}: {self._changed}",
                next="start the job again to read on with the columns as they are now; where changes of both kinds wait,"
                " name those columns that both have in columns=[…]",
            )
        return tuple(values[i] for i in self._places)

    def _completed(self, new: Values, old: Values | None, *, old_is_key: bool) -> Values:
        """Put long values that did not change into the new row, from the old one."""
        before = [UNCHANGED] if old is None else [o for o, n in zip(old, new, strict=True) if n is UNCHANGED]
        # Where only the key is known, null stands for whatever the other columns hold; a column of a key is never null.
        if old is None or UNCHANGED in before or (old_is_key and None in before):
            name = self.columns[new.index(UNCHANGED)].name
            raise TerminalError(
                f"an update of {self.what} left the long value of column {name!r} as it was, so the server did not send it",
                next=f"ALTER TABLE {self.what} REPLICA IDENTITY FULL, for updates from then on; or leave the column out of columns=[…]",
            )
        return tuple(o if n is UNCHANGED else n for o, n in zip(old, new, strict=True))

    def _batch(self) -> pa.RecordBatch:
        rows, self._rows, self._bytes = self._rows, [], 0
        schema = change_schema(self.columns)
        ops, lsns, numbers, xids, times, before, after = zip(*rows, strict=True)
        head = [pa.array(v, f.type) for v, f in zip((ops, lsns, numbers, xids, times), _HEAD, strict=True)]
        images = [self._image(before, schema.field("before").type), self._image(after, schema.field("after").type)]
        return pa.RecordBatch.from_arrays([*head, *images], schema=schema)

    def _image(self, rows: Sequence[Values | None], kind: pa.StructType) -> pa.Array:
        texts: list[list[Any]] = [[None if r is None else r[i] for r in rows] for i in range(len(self.columns))]
        arrays = [
            from_texts([None if v is UNCHANGED else v for v in column], c, self.what)
            for column, c in zip(texts, self.columns, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array([r is None for r in rows]))


def _bytes_of(values: Values | None) -> int:
    """Return how long the texts of a row are."""
    return 0 if values is None else sum(len(value) for value in values if isinstance(value, (str, bytes)))
