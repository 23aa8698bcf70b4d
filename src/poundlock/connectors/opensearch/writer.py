"""The task's half of the sinks of OpenSearch: chunks in, bulks out, every row either written and counted or rejected with a reason.

A chunk's rows are with the server when `write` returns, for only then is it known which of them it refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.checkpoint.participant import WriterContext
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.opensearch.bulk_lines import (
    actions,
    documents_of,
    own_documents,
    with_documents,
)
from poundlock.connectors.opensearch.document_ids import document_ids
from poundlock.connectors.opensearch.sender import BulkSender
from poundlock.connectors.write_order import POSITION_BITS, BulkRequestWriter
from poundlock.errors import TerminalError
from poundlock.formats.arrays import Numbers, flags_in, indices_of, last_of_each, pieces
from poundlock.formats.chunk import Batch
from poundlock.formats.convert import not_utf8
from poundlock.formats.encode import JsonEncoder

if TYPE_CHECKING:
    from poundlock.connectors.opensearch.sink import OpenSearchSink


class OpenSearchWriter(BulkRequestWriter):
    """Writes the rows of one task attempt."""

    def __init__(self, context: WriterContext, sink: OpenSearchSink) -> None:
        super().__init__(context, sink.requests, "opensearch")
        self._sink = sink
        self._server = sink.login.open(connections=sink.requests, first=context.subtask)
        self._sender = BulkSender(self._server, sink.name.fixed, self._begun_ms, sink.retry_s)
        hidden = () if sink.delete_when is None else (sink.delete_when,)
        self._encoder = JsonEncoder(sink.columns, hidden)

    def _close(self) -> None:
        super()._close()
        self._server.close()

    def _written(self, rows: Batch) -> dict[int, str]:
        lines, places, bad = self._lines(rows.batch)
        replaced = len(rows) - len(places) - len(bad)
        cut = list(pieces(lines, self._sink.bulk_bytes, self._sink.bulk_actions))
        answers = self._answers(self._sender.send, [piece for _, piece in cut])
        for (first, _), refused in zip(cut, answers, strict=True):
            bad |= {int(places[first + place]): f"{self._sink.index}: {why}" for place, why in refused.items()}
        self._bytes += lines.nbytes
        return self._with_older(rows.batch, bad) if bad and replaced else bad

    def _with_older(self, batch: pa.RecordBatch, bad: dict[int, str]) -> dict[int, str]:
        """Write the rows that refused ones would have replaced, as if those had not come; return why rows were refused."""
        sink, refused = self._sink, sorted(bad)
        ids, without = document_ids(batch, sink.key or (), sink.key_delimiter)
        named = indices_of(np.array([row for row in refused if row not in without], np.int64))
        older = np.setdiff1d(np.flatnonzero(flags_in(pc.is_in(ids, ids.take(named)))), refused)
        if not len(older):
            return bad
        again = self._written(Batch(batch.take(indices_of(older))))
        return bad | {int(older[row]): why for row, why in again.items()}

    def _lines(self, batch: pa.RecordBatch) -> tuple[pa.Array, Numbers, dict[int, str]]:
        """Return the lines to send, of which row each is, and why some rows cannot be sent."""
        sink = self._sink
        need_columns(self._context.sink, sink.needed, batch.schema.names)
        bad = not_utf8(batch)
        ids = indices = None
        if bad:  # Arrow's functions of text take no other text
            keep = np.delete(np.arange(batch.num_rows), sorted(bad))
            lines, places, others = self._lines(batch.take(indices_of(keep)))
            return lines, keep[places], {**bad, **{int(keep[row]): why for row, why in others.items()}}
        if sink.key:
            ids, bad = document_ids(batch, sink.key, sink.key_delimiter)
        if sink.name.fixed is None:
            indices = sink.name.of(batch, self._begun_ms)
            for row in np.flatnonzero(flags_in(indices.is_null())).tolist():
                bad.setdefault(row, f"a column of index={sink.index!r} is null")
        places = np.delete(np.arange(batch.num_rows), sorted(bad))
        if ids is not None and len(places):
            some = indices_of(places)
            among = [] if indices is None else [indices.take(some)]
            places = places[last_of_each([ids.take(some), *among])]
        deleted = np.zeros(len(places), np.bool_)
        if sink.delete_when is not None:
            deleted = flags_in(batch.column(sink.delete_when).fill_null(False))[places]
        version = self._version()
        kept, documents = self._documents(batch, places[~deleted], bad)
        parts = [
            with_documents(
                self._actions("index" if ids is not None else "create", ids, indices, kept, version), documents
            )
        ]
        gone = places[deleted]
        if len(gone):
            parts.append(self._actions("delete", ids, indices, gone, version))
        return pa.concat_arrays(parts), np.concatenate([kept, gone]), bad

    def _actions(
        self, operation: str, ids: pa.Array | None, indices: pa.Array | None, places: Numbers, version: int
    ) -> pa.Array:
        some = indices_of(places)
        ids, indices = (None if each is None else each.take(some) for each in (ids, indices))
        return actions(operation, ids, indices, version, len(places))

    def _documents(self, batch: pa.RecordBatch, places: Numbers, bad: dict[int, str]) -> tuple[Numbers, pa.Array]:
        """Return the rows that have a document, and those; note why others have none."""
        chosen = batch if len(places) == batch.num_rows else batch.take(indices_of(places))
        if self._sink.document is None:
            encoded = self._encoder.encode(Batch(chosen))
            documents, failed = documents_of(encoded), dict(encoded.bad)
        else:
            documents, failed = own_documents(chosen.column(self._sink.document))
            if failed:
                documents = documents.filter(documents.is_valid())
        bad |= {int(places[row]): why for row, why in failed.items()}
        return (np.delete(places, sorted(failed)) if failed else places), documents

    def _version(self) -> int:
        """Return the version of the next chunk's documents: when the checkpoint was begun, and the chunk's number in the task."""
        number, self._chunks = self._chunks, self._chunks + 1
        if number >> POSITION_BITS:
            raise TerminalError(
                f"a task got more than {number} batches of rows in one checkpoint, and a version has no number for more",
                next="take checkpoints more often: checkpoint_interval, or fewer records a checkpoint",
            )
        return self._begun_ms << POSITION_BITS | number
