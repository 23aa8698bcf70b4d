"""Columns of one value, of some rows, of decimals, and truth values as flags: what functions of SQL need, without pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, column_of, flags_in, indices_of, texts_of, valid_in

_EXACT = Context(prec=80)


def repeated(value: pa.Array, rows: int) -> pa.Array:
    """Return the one value of a column as a column of so many rows."""
    if len(value) == rows:
        return value
    if value.null_count:
        return pa.nulls(rows, value.type)
    if pa.types.is_nested(value.type):
        return value.take(indices_of(np.zeros(rows, np.int64)))
    return pa.repeat(value[0], rows)


def one_text(text: str) -> pa.Scalar:
    """Return a text as a value of Arrow's; a text of Python's among the arguments of Arrow's functions would import pandas."""
    return texts_of([text])[0]


def decimals(unscaled: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Return decimals, given as whole numbers of their last digit, as a column; None for null."""
    width = kind.byte_width
    data = b"".join((value or 0).to_bytes(width, "little", signed=True) for value in unscaled)
    flags = np.fromiter((value is not None for value in unscaled), np.bool_, len(unscaled))
    missing = int(np.count_nonzero(~flags))
    bits = pa.py_buffer(np.packbits(flags, bitorder="little")) if missing else None
    return pa.Array.from_buffers(kind, len(unscaled), [bits, pa.py_buffer(data)], missing)


def unscaled_in(column: pa.Array) -> list[int | None]:
    """Return decimals as whole numbers of their last digit."""
    scale = column.type.scale
    return [None if value is None else int(value.scaleb(scale, _EXACT)) for value in column.to_pylist()]


def by_value(column: pa.Array, change: Callable[[list[Any]], pa.Array]) -> pa.Array:
    """Return a column whose values a Python function makes: it is called with the different ones that are not null."""
    if not len(column):
        return change([])
    encoded = column.dictionary_encode()
    made = change(encoded.dictionary.to_pylist())
    if not len(made):
        return pa.nulls(len(column), made.type)
    return made.take(encoded.indices)


def trues(condition: pa.Array) -> Flags:
    """Return where a condition is true, neither false nor null."""
    flags, valid = flags_in(condition), valid_in(condition)
    return flags if valid is None else flags & valid


def truths(flags: Flags, valid: Flags | None = None) -> pa.Array:
    """Return truth values as a column; null where they are not valid."""
    return column_of(flags, pa.bool_(), valid)


def valid_flags(column: pa.Array) -> Flags:
    """Return where a column is not null."""
    valid = valid_in(column)
    return np.ones(len(column), np.bool_) if valid is None else valid


def null_where(column: pa.Array, flags: Flags) -> pa.Array:
    """Return a column with null where flags are true."""
    if not flags.any():
        return column
    return pc.if_else(truths(flags), pa.nulls(len(column), column.type), column)


def placed(parts: Sequence[tuple[npt.NDArray[np.int64], pa.Array]], rows: int, kind: pa.DataType) -> pa.Array:
    """Return a column put together of parts, each with the rows that its values stand in; null where no part has a row."""
    where = np.full(rows, -1, np.int64)
    begin = 0
    for places, values in parts:
        where[places] = np.arange(begin, begin + len(values))
        begin += len(values)
    whole = pa.concat_arrays([values for _, values in parts]) if parts else pa.nulls(0, kind)
    return whole.take(column_of(np.maximum(where, 0), pa.int64(), None if (where >= 0).all() else where >= 0))


def wrapped(values: npt.NDArray[np.int64], kind: pa.DataType) -> npt.NDArray[Any]:
    """Return whole numbers in the width of a type, without the bits that do not fit, as Java does."""
    return values.astype(np.dtype(f"<i{kind.bit_width // 8}"))
