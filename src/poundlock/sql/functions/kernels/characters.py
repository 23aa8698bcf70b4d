"""Texts as their bytes: parts of them, and whether they are ASCII, without a Python object a row.

Characters are Unicode's: a letter outside the basic plane is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import (
    Flags,
    Numbers,
    column_of,
    copied,
    ends_in,
    ranges,
    texts_of,
    valid_in,
    with_nulls,
)
from poundlock.sql.functions.kernels.distinct import valid_of

Bytes = npt.NDArray[np.uint8]


def bytes_in(column: pa.Array) -> Bytes:
    """Return the buffer of texts or byte strings, which `ends_in` counts in."""
    data = column.buffers()[2]
    return np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def is_ascii(column: pa.Array) -> bool:
    """Return whether all texts of a column are ASCII."""
    ends = ends_in(column)
    data = bytes_in(column)[ends[0] : ends[-1]]
    return not len(data) or bool(data.max() < 0x80)


def text_column(data: Bytes, starts: Numbers, ends: Numbers, valid: Flags | None) -> pa.Array:
    """Return the bytes from each start to each end, ascending, as texts."""
    if not len(starts):
        return pa.nulls(0, pa.string())
    texts = copied(data, starts, ends, pa.string())
    return texts if valid is None else with_nulls(texts, valid)


def sliced(column: pa.Array, first: Numbers, count: Numbers, valid: Flags | None) -> pa.Array:
    """Return some characters of each text.

    Args:
        first: of them, from 0; before the text counts as its beginning, behind it as its end.
        count: how many at most.
        valid: in which rows the result is not null; None = in all.
    """
    if not len(column):
        return column
    starts, ends, data = ends_in(column)[:-1], ends_in(column)[1:], bytes_in(column)
    if is_ascii(column):
        lengths = ends - starts
        skipped = np.clip(first, 0, lengths)
        taken = np.clip(count, 0, lengths - skipped)
        return text_column(data, starts + skipped, starts + skipped + taken, valid)
    before = _characters_before(column)
    points = np.append(np.flatnonzero(np.diff(before)), len(before) - 1) + starts[0]
    opening, closing = before[starts - starts[0]], before[ends - starts[0]]
    skipped = np.clip(first, 0, closing - opening)
    taken = np.clip(count, 0, closing - opening - skipped)
    return text_column(data, points[opening + skipped], points[opening + skipped + taken], valid)


def characters_to(column: pa.Array, places: Numbers) -> Numbers:
    """Return how many characters each text has in its first bytes, so many as `places` says."""
    if is_ascii(column):
        return places
    starts = ends_in(column)[:-1] - ends_in(column)[0]
    before = _characters_before(column)
    result: Numbers = before[starts + np.maximum(places, 0)] - before[starts]
    return result


def joined_present(texts: Sequence[pa.Array], separator: pa.Array) -> pa.Array:
    """Return texts with another one between them, without those that are null: an empty text where all are; null where the separator is.

    Arrow's own join leaves out the rows in which all are null.
    """
    if all(not text.null_count for text in texts):
        return pc.binary_join_element_wise(*texts, separator, null_handling="emit_null")
    empty = texts_of([""])[0]
    parts = [pc.coalesce(_concatenated([separator, text], empty), empty) for text in texts]
    whole = _concatenated(parts, empty)
    is_any = np.zeros(len(whole), np.bool_)
    for text in texts:
        valid = valid_in(text)
        is_any |= True if valid is None else valid
    ends = ends_in(whole)
    skipped = np.where(is_any, np.diff(ends_in(separator)), 0)
    valid = valid_in(separator)
    if valid is not None:
        skipped = np.where(valid, skipped, 0)
    return text_column(bytes_in(whole), ends[:-1] + skipped, ends[1:], valid)


def _concatenated(texts: Sequence[pa.Array], empty: pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*texts, empty, null_handling="emit_null")


def has_at(column: pa.Array, other: pa.Array, *, from_end: bool) -> pa.Array:
    """Return whether each text or byte string begins, or ends, with the one of another column."""
    starts, ends = ends_in(column)[:-1], ends_in(column)[1:]
    wanted = np.diff(ends_in(other))
    fits = wanted <= ends - starts
    wanted = np.where(fits, wanted, 0)
    begin = ends - wanted if from_end else starts
    data, sought = bytes_in(column), bytes_in(other)
    differs = data[ranges(begin, wanted)] != sought[ranges(ends_in(other)[:-1], wanted)]
    fits[np.repeat(np.arange(len(wanted)), wanted)[differs]] = False
    return column_of(fits, pa.bool_(), valid_of((column, other)))


def _characters_before(column: pa.Array) -> Numbers:
    """Return how many characters begin before each byte of the texts of a column, and before their end."""
    ends = ends_in(column)
    data = bytes_in(column)[ends[0] : ends[-1]]
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum((data & 0xC0) != 0x80, out=before[1:])
    return before
