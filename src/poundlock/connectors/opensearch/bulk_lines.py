"""The body of `_bulk` requests, as one column: the line of each action, and the document behind it, by Arrow and not row by row."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import binary_array, bytes_scalar, ends_in, flags_in
from poundlock.formats.encode import Encoded

_TO_ESCAPE = r'["\\\x00-\x1f]'
_NEWLINE = ord("\n")


def documents_of(encoded: Encoded) -> pa.Array:
    """Return encoded rows as a column, each with its line end."""
    ends = np.zeros(len(encoded.ends) + 1, np.int64)
    ends[1:] = encoded.ends + 1
    return pa.Array.from_buffers(
        pa.large_binary(), len(encoded.ends), [None, pa.py_buffer(ends), pa.py_buffer(encoded.data)]
    )


def own_documents(column: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Return texts of JSON that rows bring along as lines, and why some rows have none.

    A line end within one would be the end of it for the server, so such a text is written again on one line.
    """
    texts = column.cast(pa.large_binary())
    bad = dict.fromkeys(np.flatnonzero(flags_in(texts.is_null())).tolist(), "the document is null")
    several = np.flatnonzero(flags_in(pc.match_substring(texts, b"\n").fill_null(False)))
    if len(several):
        values = texts.to_pylist()
        for row in several.tolist():
            try:
                values[row] = msgspec.json.format(values[row], indent=-1)
            except msgspec.MsgspecError as error:
                bad[row], values[row] = f"the document is no JSON: {error}", None
        texts = binary_array(values)
    return pc.binary_join_element_wise(texts, bytes_scalar(b"\n"), bytes_scalar(b"")), bad


def json_texts(texts: pa.Array) -> pa.Array:
    """Return texts in the quotes of JSON."""
    quote = bytes_scalar(b'"')
    values = texts.cast(pa.large_string())
    if pc.any(pc.match_substring_regex(values, _TO_ESCAPE)).as_py():
        lines = msgspec.json.Encoder().encode_lines(values.to_pylist())
        ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == _NEWLINE)
        quoted = documents_of(Encoded(memoryview(lines), ends))
        return pc.replace_substring(quoted, b"\n", b"")
    return pc.binary_join_element_wise(quote, values.cast(pa.large_binary()), quote, bytes_scalar(b""))


def actions(operation: str, ids: pa.Array | None, indices: pa.Array | None, version: int, rows: int) -> pa.Array:
    """Return the line of each action, with its line end.

    Args:
        operation: "index", "create" or "delete".
        ids: of documents; None = the server gives one to each.
        indices: of rows; None = the one that the request names.
        version: by which the server keeps the newest of a document, where there are ids.
    """
    empty = bytes_scalar(b"")
    parts = [bytes_scalar(b'{"%s":{' % operation.encode())]
    if indices is not None:
        parts += [bytes_scalar(b'"_index":'), json_texts(indices), *([] if ids is None else [bytes_scalar(b",")])]
    if ids is not None:
        parts += [bytes_scalar(b'"_id":'), json_texts(ids)]
        parts.append(bytes_scalar(b',"version":%d,"version_type":"external_gte"' % version))
    parts.append(bytes_scalar(b"}}\n"))
    if ids is None and indices is None:
        line = b"".join(part.as_py() for part in parts)
        ends = np.arange(rows + 1, dtype=np.int64) * len(line)
        data = pa.py_buffer(line * rows)
        return pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(ends), data])
    return pc.binary_join_element_wise(*parts, empty)


def with_documents(lines: pa.Array, documents: pa.Array) -> pa.Array:
    """Return the lines of actions, each with its document behind it."""
    return pc.binary_join_element_wise(lines, documents, bytes_scalar(b""))


def body_of(lines: pa.Array) -> memoryview:
    """Return lines as one body, without a copy."""
    ends = ends_in(lines)
    return memoryview(lines.buffers()[2])[int(ends[0]) : int(ends[-1])]
