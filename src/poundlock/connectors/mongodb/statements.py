"""What is sent for rows: statements of `update` and `delete`, each on the one document of its key unless that is newer, as one column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from poundlock.connectors.mongodb.bson_columns import (
    document,
    document_element,
    element,
    has_micros,
    moment,
    subdocument,
    truth,
    whole_number,
)
from poundlock.formats.arrays import bytes_scalar, flags_in

if TYPE_CHECKING:
    from poundlock.connectors.mongodb.sink import MongoSink


ID = "_id"
_ONLY_ONE = b"\x10limit\0\x01\0\0\0"
DELETED = "_deleted"
"""The field of a document that is marked as deleted: since when."""


def key_elements(batch: pa.RecordBatch, key: Sequence[str]) -> tuple[pa.Array, dict[int, str]]:
    """Return the `_id` of each row, and why some rows have none."""
    bad: dict[int, str] = {}
    columns = [batch.column(name) for name in key]
    for name, column in zip(key, columns, strict=True):
        for row in np.flatnonzero(flags_in(column.is_null())).tolist() if column.null_count else ():
            bad.setdefault(row, f"column {name!r} is null, and must not be")
        if pa.types.is_timestamp(column.type):
            for row in np.flatnonzero(has_micros(column)).tolist():
                bad.setdefault(row, f"column {name!r} has parts of a millisecond, and dates of MongoDB have none")
    one = columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, list(key))
    ids = element(ID, one)
    return ids, _unfit(", ".join(key), ids) | bad


def document_elements(batch: pa.RecordBatch, names: Sequence[str]) -> tuple[list[pa.Array], dict[int, str]]:
    """Return the columns of documents, and why some rows cannot be one."""
    bad: dict[int, str] = {}
    columns = []
    for name in names:
        columns.append(element(name, batch.column(name)))
        bad = _unfit(name, columns[-1]) | bad
    return columns, bad


def _unfit(name: str, column: pa.Array) -> dict[int, str]:
    if not column.null_count:
        return {}
    rows = np.flatnonzero(flags_in(column.is_null())).tolist()
    return dict.fromkeys(
        rows, f"column {name!r} has a value that BSON cannot hold: too many digits, or a zero in a name"
    )


class MongoStatements:
    """Makes the statements of a sink for rows of one version."""

    def __init__(self, sink: MongoSink, version: int, begun_ms: int) -> None:
        self._sink, self._begun_ms = sink, begun_ms
        self._version = bytes_scalar(whole_number(sink.version_field, version))
        newer = subdocument("$not", whole_number("$gt", version))
        self._unless_newer = bytes_scalar(subdocument(sink.version_field, newer))

    def writes(self, ids: pa.Array, columns: Sequence[pa.Array]) -> pa.Array:
        """Return what puts documents in the places of those of the same ids."""
        made = document([*columns, self._version])
        if self._sink.update == "set":
            changes = [document_element("$set", made)]
            if self._sink.deletes == "mark":
                changes.append(bytes_scalar(subdocument("$unset", truth(DELETED))))
            made = document(changes)
        return self._update(ids, document_element("u", made))

    def deletions(self, ids: pa.Array) -> pa.Array:
        """Return what deletes the documents of ids, or marks them as deleted."""
        if self._sink.deletes == "mark":
            mark = subdocument("u", self._version.as_py(), moment(DELETED, self._begun_ms))
            return self._update(ids, bytes_scalar(mark))
        return document([self._query(ids), bytes_scalar(_ONLY_ONE)])

    def _query(self, ids: pa.Array) -> pa.Array:
        return document_element("q", document([ids, self._unless_newer]))

    def _update(self, ids: pa.Array, change: pa.Array | pa.Scalar) -> pa.Array:
        return document([self._query(ids), change, bytes_scalar(truth("upsert"))])
