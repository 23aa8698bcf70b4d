"""Python's functions over columns: called once for each distinct value, or combination of values, and not once a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import (
    Flags,
    Numbers,
    binary_array,
    column_of,
    indices_of,
    lists_of,
    numbers_in,
    texts_of,
    valid_in,
    with_nulls,
)


def over_distinct(
    columns: Sequence[pa.Array], compute: Callable[..., Any], kind: pa.DataType, *, takes_nulls: bool = False
) -> pa.Array:
    """Return what a function makes of the values of each row.

    Args:
        columns: one an argument, all of one length.
        compute: gets one value of each column and returns a Python value of `kind` or None.
        kind: the type of the result, see `python_column`.
        takes_nulls: whether it is called with None where a column is null; otherwise the result is null there.
    """
    parts = [_distinct_in(column) for column in columns]
    varying = [place for place, (values, _) in enumerate(parts) if len(values) > 1]
    if len(varying) > 1:
        codes, rows = _combined(parts)
    else:
        place = varying[0] if varying else 0
        values, codes = parts[place]
        before, after = _constants(parts[:place]), _constants(parts[place + 1 :])
        rows = [(*before, value, *after) for value in values] if len(parts) > 1 else [(value,) for value in values]
    made = [None if None in row and not takes_nulls else compute(*row) for row in rows]
    return python_column(made, kind).take(indices_of(codes))


def _constants(parts: Sequence[tuple[list[Any], Numbers]]) -> list[Any]:
    return [values[0] for values, _ in parts if values]


def constant_in(column: pa.Array) -> Any:
    """Return the value of a column whose rows are all the same and not null as a Python value; None of every other column."""
    if not len(column) or column.null_count or pa.types.is_nested(column.type):
        return None
    first = column[0]
    if not first.equals(column[len(column) - 1]) or not pc.all(pc.equal(column, first)).as_py():
        return None
    return first.as_py()


def valid_of(columns: Sequence[pa.Array]) -> Flags | None:
    """Return in which rows no column is null; None = in all of them."""
    known = [valid for valid in map(valid_in, columns) if valid is not None]
    if not known:
        return None
    result: Flags = np.logical_and.reduce(known)
    return result


def with_validity(column: pa.Array, valid: Flags | None) -> pa.Array:
    """Return a column that is null as well where `valid` is false."""
    if valid is None or bool(valid.all()):
        return column
    return pc.if_else(column_of(valid, pa.bool_()), column, pa.nulls(len(column), column.type))


def python_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return Python values, or None, as a column of texts, byte strings, truth values, numbers or lists of texts.

    Dates are whole days, timestamps and times whole units of theirs.
    """
    missing = sum(value is None for value in values)
    if missing == len(values):
        return pa.nulls(len(values), kind)
    valid = None
    if missing:
        valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if pa.types.is_string(kind):
        texts = texts_of([value or "" for value in values] if missing else values)
        return texts if valid is None else with_nulls(texts, valid)
    if pa.types.is_binary(kind):
        return pc.cast(binary_array(values), kind)
    if pa.types.is_list(kind):
        counts = np.fromiter((len(value or ()) for value in values), np.int64, len(values))
        items = python_column([each for value in values for each in value or ()], kind.value_type)
        return with_validity(pc.cast(lists_of(items, counts), kind), valid)
    dtype = np.dtype(np.float64) if kind == pa.float64() else np.dtype(np.int64)
    numbers = np.fromiter((0 if value is None else value for value in values), dtype, len(values))
    if kind == pa.bool_():
        return column_of(numbers, kind, valid)
    width = np.dtype(f"<i{kind.bit_width // 8}") if kind != pa.float64() else dtype
    return column_of(numbers.astype(width), kind, valid)


def integers_in(column: pa.Array) -> Numbers:
    """Return whole numbers of any width with 64 bits, those at nulls any."""
    numbers: Numbers = numbers_in(column).astype(np.int64)
    return numbers


def _distinct_in(column: pa.Array) -> tuple[list[Any], Numbers]:
    """Return the values of a column without those that repeat, and which one each row has."""
    if pa.types.is_null(column.type):
        return [None], np.zeros(len(column), np.int64)
    if pa.types.is_nested(column.type):
        return column.to_pylist(), np.arange(len(column))
    same = constant_in(column)
    if same is not None:
        return [same], np.zeros(len(column), np.int64)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.dictionary.to_pylist(), integers_in(encoded.indices)


def _combined(parts: Sequence[tuple[list[Any], Numbers]]) -> tuple[Numbers, Sequence[tuple[Any, ...]]]:
    """Return the number of the combination of values that each row has, and the combinations."""
    whole = parts[0][1]
    for values, codes in parts[1:]:
        if len(values) > 1:
            _, whole = np.unique(whole, return_inverse=True)
            whole = whole * len(values) + codes
    _, firsts, numbered = np.unique(whole, return_index=True, return_inverse=True)
    columns = [[values[code] for code in codes[firsts].tolist()] for values, codes in parts]
    return numbered.astype(np.int64), list(zip(*columns, strict=True))
