"""Text in Arrow columns that is not UTF-8: which rows have it, and such a row as Python values all the same.

Spark hands on bytes that were cast to text as they are, so a column may hold what no Python string can.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def not_utf8(batch: pa.RecordBatch, *, nested_only: bool = False) -> dict[int, str]:
    """Return which rows have text that is not UTF-8, and in which column; where all is well this costs one look at the bytes.

    With `nested_only`, only text within structs, lists and maps is looked at.
    """
    bad: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not _has_text(column.type) or (nested_only and not pa.types.is_nested(column.type)):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row in range(len(column)):
                try:
                    column[row].as_py()
                except UnicodeDecodeError:
                    bad.setdefault(row, f"column {name!r}: text that is not UTF-8")
                except (ValueError, OverflowError):  # a time that Python does not have, which is another matter
                    continue
    return bad


def row_values(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """Return a row as Python values, column name to value; a column with text that is not UTF-8 has bytes in place of text."""
    return {
        name: _readable(column.slice(row, 1)) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _readable(column: pa.Array) -> Any:
    try:
        return column.to_pylist()[0]
    except UnicodeDecodeError:
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return plain.cast(_as_bytes(plain.type)).to_pylist()[0]
    except (ValueError, OverflowError):  # a time that Python does not have: its number stands for it
        if not pa.types.is_timestamp(column.type):
            raise
        return column.cast(pa.int64()).to_pylist()[0]


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type with bytes wherever it has text."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_as_bytes(kind.value_type))
    return pa.list_(_as_bytes(kind.value_type)) if pa.types.is_list(kind) else kind
