"""Ids of documents, made of key columns as Flink makes them: their texts, joined by a delimiter.

Where there are several columns, the delimiter within a text is written as its percent code, so that no two keys make one id.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import ends_in, flags_in, texts_of

_LONGEST = 512  # bytes; the server refuses a whole bulk with a longer one


def check_types(name: str, key: Sequence[str], schema: pa.Schema) -> None:
    """Raise DefinitionError where a key column of the sink of this name has a type that makes no id."""
    for column in key:
        kind = schema.field(column).type if column in schema.names else pa.string()
        t = pa.types
        if t.is_nested(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_duration(kind) or t.is_null(kind):
            raise DefinitionError(
                f"sink {name!r}: key column {column!r} is {kind}, which makes no id of a document",
                next="name columns of text, numbers, truth values or times in key=",
                participant=name,
            )


def document_ids(batch: pa.RecordBatch, key: Sequence[str], delimiter: str) -> tuple[pa.Array, dict[int, str]]:
    """Return the id of each row, and why some rows have none."""
    bad: dict[int, str] = {}
    texts = []
    for name in key:
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        for row in np.flatnonzero(flags_in(column.is_null())).tolist() if column.null_count else ():
            bad.setdefault(row, f"column {name!r} is null, and must not be")
        text = column.cast(pa.string())
        texts.append(_escaped(text, delimiter) if len(key) > 1 else text)
    ids = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, texts_of([delimiter])[0])
    length = np.diff(ends_in(ids))
    for row in np.flatnonzero(length > _LONGEST).tolist():
        bad.setdefault(row, f"the id is longer than {_LONGEST} bytes")
    for row in np.flatnonzero(length == 0).tolist():
        bad.setdefault(row, "the id is empty")
    return ids, bad


def _escaped(texts: pa.Array, delimiter: str) -> pa.Array:
    if not delimiter:
        return texts
    code = "".join(f"%{byte:02X}" for byte in delimiter.encode())
    return pc.replace_substring(pc.replace_substring(texts, "%", "%25"), delimiter, code)
