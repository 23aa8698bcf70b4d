"""Whole rows as the bytes that state keeps, and back, by columns: a row is a list in msgpack, one item a column.

Numbers, dates and times are whole numbers of the width of their type, texts and bytes are what they are, a decimal is its 16 bytes;
an item of any other type is the bytes that the codec of single values makes of it. The types are needed to read them: state that is
kept so says them in its manifest, as the one text that `layout_of` gives.

This is the one format of rows that cannot be read without its manifest; all other state has values as `msgpack.values` writes them,
which say themselves what they are. Both are put together and read by `msgpack.writing` and `msgpack.cursor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats import ddl
from poundlock.formats.arrays import binary_array, flags_in, is_binary, is_float, is_text, joined, numbers_in, valid_in
from poundlock.formats.convert import column_values
from poundlock.operators.columns.msgpack.cursor import Build, Cursor, UnexpectedValue
from poundlock.operators.columns.msgpack.tags import BINARIES, FLOATS, INTS
from poundlock.operators.columns.msgpack.writing import Fixed, Part, flags, list_head, texts, written
from poundlock.operators.keyed.codec import decode, encode_each

LAYOUT = "rows of "
"""What the text begins with that says the columns of rows that are kept whole."""

_OF_16 = bytes([BINARIES[1], 16])  # what byte strings of sixteen bytes begin with


def layout_of(schema: pa.Schema) -> str | None:
    """Return the columns of rows as the text that stands in a manifest, None where one is of a type that has no name in DDL."""
    try:
        layout = LAYOUT + ddl.render(schema)
    except DefinitionError:
        return None
    return layout if columns_of(layout).types == schema.types else None


@lru_cache(64)
def columns_of(layout: str) -> pa.Schema:
    """Return the columns that a text of a manifest says."""
    return ddl.parse(layout.removeprefix(LAYOUT))


def encode_records(rows: pa.RecordBatch) -> pa.Array:
    """Return each row as the bytes of a list, large_binary."""
    parts = [part for column in rows.columns for part in _parts(column)]
    return written([list_head(rows.num_columns), *parts], rows.num_rows)


def decode_records(values: pa.Array, schema: pa.Schema, wanted: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return rows that were encoded.

    Args:
        schema: their columns.
        wanted: those that are to be read; None = all.

    Raises:
        TerminalError: they have other columns.
    """
    cursor = Cursor(values)
    try:
        cursor.skip(list_head(len(schema)))
        builds = [_read(cursor, field.type) for field in schema]
    except UnexpectedValue:
        raise TerminalError(
            "a row in state has other columns than its manifest says", next="report this as a bug, with the state"
        ) from None
    names = set(schema.names if wanted is None else wanted)
    read = [(field, build()) for field, build in zip(schema, builds, strict=True) if field.name in names]
    return pa.RecordBatch.from_arrays([column for _, column in read], schema=pa.schema([field for field, _ in read]))


def _parts(column: pa.Array) -> list[Part]:
    """Return the parts of each value of a column."""
    kind, valid = column.type, valid_in(column)
    if pa.types.is_boolean(kind):
        return [flags(flags_in(column), valid)]
    if _is_number(kind):
        return [Fixed(_head(kind), numbers_in(column), _big(kind)).or_nil(valid)]
    if pa.types.is_decimal128(kind):
        words = np.frombuffer(column.buffers()[1] or b"", "V16", len(column), 16 * column.offset)
        return [Fixed(_OF_16, words, "V16").or_nil(valid)]
    if is_text(kind) or is_binary(kind):
        return texts(column)
    return texts(binary_array(encode_each(column_values(column))))


def _read(cursor: Cursor, kind: pa.DataType) -> Build:
    """Go past a value of each row.

    Raises:
        UnexpectedValue: one is of another type.
    """
    if pa.types.is_boolean(kind):
        return cursor.flags()
    if _is_number(kind):
        return cursor.fixed(_head(kind), _big(kind), kind)
    if pa.types.is_decimal128(kind):
        return cursor.fixed(_OF_16, "V16", kind)
    if is_text(kind) or is_binary(kind):
        return cursor.texts(kind)
    build = cursor.texts(pa.large_binary())
    return lambda: pa.array([decode(item) for item in build().to_pylist()], kind)


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_signed_integer, pa.types.is_temporal)
    return is_float(kind) or (any(test(kind) for test in tests) and not pa.types.is_interval(kind))


def _head(kind: pa.DataType) -> bytes:
    return bytes([(FLOATS if is_float(kind) else INTS)[kind.bit_width // 8]])


def _big(kind: pa.DataType) -> str:
    """Return how numpy calls the numbers of a type, written from their highest byte on."""
    return f">{'f' if is_float(kind) else 'i'}{kind.bit_width // 8}"


def joined_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return rows of the same columns, one behind the other; of one part it is the very same."""
    if len(parts) == 1:
        return parts[0]
    columns: list[Any] = [joined(list(column)) for column in zip(*(part.columns for part in parts), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)
