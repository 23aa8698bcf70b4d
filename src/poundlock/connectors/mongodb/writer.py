"""The task's half of the MongoDB sink: chunks in, statements out, every row either written and counted or rejected with a reason.

A chunk's rows are with the server when `write` returns, for only then is it known which of them it refuses.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.checkpoint.participant import WriterContext
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.mongodb.bson_columns import MOST_BYTES, document, object_ids
from poundlock.connectors.mongodb.sender import MongoStatementSender, MongoTarget
from poundlock.connectors.mongodb.statements import ID, MongoStatements, document_elements, key_elements
from poundlock.connectors.write_order import POSITION_BITS, BulkRequestWriter
from poundlock.errors import TerminalError
from poundlock.formats.arrays import Numbers, ends_in, flags_in, indices_of, last_of_each, pieces
from poundlock.formats.chunk import Batch
from poundlock.formats.convert import not_utf8

if TYPE_CHECKING:
    from poundlock.connectors.mongodb.sink import MongoSink


class MongoWriter(BulkRequestWriter):
    """Writes the rows of one task attempt."""

    def __init__(self, context: WriterContext, sink: MongoSink) -> None:
        super().__init__(context, sink.requests, "mongodb")
        self._sink = sink
        target = MongoTarget(sink.database, sink.collection, sink.version_field)
        self._sender = MongoStatementSender(sink.login, target, self._begun_ms, sink.retry_s)
        self._process, self._added = os.urandom(5), int.from_bytes(os.urandom(3), "big")

    def _written(self, rows: Batch) -> dict[int, str]:
        sink, batch = self._sink, rows.batch
        need_columns(self._context.sink, sink.needed, batch.schema.names)
        bad = not_utf8(batch)
        if bad:  # Arrow's functions of text take no other text
            keep = np.delete(np.arange(batch.num_rows), sorted(bad))
            others = self._written(Batch(batch.take(indices_of(keep))))
            return {**bad, **{int(keep[row]): why for row, why in others.items()}}
        columns, bad = document_elements(batch, sink.written(batch.schema.names))
        if not sink.key:
            return self._add(columns, batch.num_rows, bad)
        ids, without = key_elements(batch, sink.key)
        bad |= without
        places = np.delete(np.arange(batch.num_rows), sorted(bad))
        places = places[last_of_each([ids.take(indices_of(places))])] if len(places) else places
        deleted = np.zeros(len(places), np.bool_)
        if sink.delete_when is not None:
            deleted = flags_in(batch.column(sink.delete_when).fill_null(False))[places]
        kept, gone = places[~deleted], places[deleted]
        statements = MongoStatements(sink, self._version(), self._begun_ms)
        replaced = batch.num_rows - len(places) - len(bad)
        if len(kept):
            some = indices_of(kept)
            wanted = [column.take(some) for column in columns]
            bad |= self._send("update", statements.writes(ids.take(some), wanted), kept)
        if len(gone):
            command = "update" if sink.deletes == "mark" else "delete"
            bad |= self._send(command, statements.deletions(ids.take(indices_of(gone))), gone)
        return self._with_older(batch, ids, bad) if bad and replaced else bad

    def _add(self, columns: Sequence[pa.Array], rows: int, bad: dict[int, str]) -> dict[int, str]:
        """Add rows, under ids that are made here: one that is sent again after a lost answer is the same."""
        places = np.delete(np.arange(rows), sorted(bad))
        if not len(places):
            return bad
        ids = object_ids(ID, self._added, self._begun_ms // 1000, self._process, len(places))
        self._added += len(places)
        some = indices_of(places)
        return bad | self._send("insert", document([ids, *(column.take(some) for column in columns)]), places)

    def _send(self, command: str, lines: pa.Array, places: Numbers) -> dict[int, str]:
        """Send statements; return why rows were refused, by their number. Args: places: of which row each statement is."""
        refused: dict[int, str] = {}
        long = np.diff(ends_in(lines)) > MOST_BYTES
        if long.any():
            refused = dict.fromkeys(places[long].tolist(), "the document is longer than 16 MB")
            lines, places = lines.take(indices_of(np.flatnonzero(~long))), places[~long]
        cut = list(pieces(lines, self._sink.bulk_bytes, self._sink.bulk_actions))
        answers = self._answers(lambda piece: self._sender.send(command, piece), [piece for _, piece in cut])
        for (first, _), answer in zip(cut, answers, strict=True):
            refused |= {int(places[first + place]): why for place, why in answer.items()}
        self._bytes += lines.nbytes
        return refused

    def _with_older(self, batch: pa.RecordBatch, ids: pa.Array, bad: dict[int, str]) -> dict[int, str]:
        """Write the rows that refused ones would have replaced, as if those had not come; return why rows were refused."""
        refused = sorted(bad)
        named = ids.take(indices_of(np.array(refused, np.int64))).drop_null()
        older = np.setdiff1d(np.flatnonzero(flags_in(pc.is_in(ids, named))), refused)
        if not len(older):
            return bad
        again = self._written(Batch(batch.take(indices_of(older))))
        return bad | {int(older[row]): why for row, why in again.items()}

    def _version(self) -> int:
        """Return the version of the next chunk's rows: when the checkpoint was begun, and the chunk's number in the task."""
        number, self._chunks = self._chunks, self._chunks + 1
        if number >> POSITION_BITS:
            raise TerminalError(
                f"a task got more than {number} batches of rows in one checkpoint, and a version has no number for more",
                next="take checkpoints more often: checkpoint_interval, or fewer records a checkpoint",
            )
        return self._begun_ms << POSITION_BITS | number
