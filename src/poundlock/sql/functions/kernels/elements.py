"""Arrays and maps as their elements: where those of each row are, which are equal, and columns that are made of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, indices_of, numbers_in, ranges, valid_in


@dataclass(frozen=True, slots=True)
class ListElements:
    """The elements of arrays, or the keys or values of maps.

    Args:
        items: of all rows, and others that are in none.
        starts: the first of each row.
        counts: how many a row has; none where it is null.
        valid: which rows are not null; None = all.
    """

    items: pa.Array
    starts: Numbers
    counts: Numbers
    valid: Flags | None

    @property
    def rows(self) -> Numbers:
        """The row of each element, one behind the other."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def places(self) -> Numbers:
        """Where each element is among the items."""
        return ranges(self.starts, self.counts)

    def packed(self) -> ListElements:
        """Return them with the items of the rows and no others, in their order."""
        items = self.items.take(indices_of(self.places))
        return ListElements(items, np.cumsum(self.counts) - self.counts, self.counts, self.valid)

    def chosen(self, places: Numbers, counts: Numbers) -> ListElements:
        """Return other elements of the same items, some in each row, whose places are those."""
        return ListElements(self.items.take(indices_of(places)), np.cumsum(counts) - counts, counts, self.valid)


def elements_of(column: pa.Array) -> ListElements:
    """Return the elements of arrays."""
    return _parts(column, column.values)


def keys_of(column: pa.Array) -> ListElements:
    """Return the keys of maps."""
    return _parts(column, column.keys)


def values_of(column: pa.Array) -> ListElements:
    """Return the values of maps."""
    return _parts(column, column.items)


def _parts(column: pa.Array, items: pa.Array) -> ListElements:
    ends, valid = ends_in(column), valid_in(column)
    counts = np.diff(ends)
    return ListElements(items, ends[:-1], counts if valid is None else np.where(valid, counts, 0), valid)


def single(column: pa.Array) -> ListElements:
    """Return each value of a column as the one element of its row."""
    return ListElements(column, np.arange(len(column)), np.ones(len(column), np.int64), None)


def joined(parts: Sequence[ListElements]) -> ListElements:
    """Return the elements of each row one behind the other; null where one of the parts is."""
    kind = parts[0].items.type
    items = pa.concat_arrays([each.items.cast(kind) for each in parts])
    before = np.cumsum([0, *(len(each.items) for each in parts)])
    known = [each.valid for each in parts if each.valid is not None]
    valid = np.logical_and.reduce(known) if known else None
    starts = np.stack([each.starts + first for each, first in zip(parts, before.tolist(), strict=False)], axis=1)
    counts = np.stack([each.counts for each in parts], axis=1)
    if valid is not None:
        counts[~valid] = 0
    return ListElements(items, np.arange(0), np.arange(0), valid).chosen(
        ranges(starts.ravel(), counts.ravel()), counts.sum(axis=1)
    )


def codes_of(*columns: pa.Array) -> list[Numbers]:
    """Return the number of each value among the different ones of some columns of one type; null is a value as well."""
    whole = pa.concat_arrays(columns)
    if pa.types.is_nested(whole.type):
        seen: dict[str, int] = {}
        codes = np.fromiter(
            (seen.setdefault(repr(each), len(seen)) for each in whole.to_pylist()), np.int64, len(whole)
        )
    else:
        codes = numbers_in(pc.dictionary_encode(whole, null_encoding="encode").indices).astype(np.int64)
    bounds = np.cumsum([0, *map(len, columns)])
    return [codes[first:last] for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]


def pairs_of(rows: Numbers, codes: Numbers) -> Numbers:
    """Return one number for a row and a code, the same for the same two; codes of both sides of a comparison are below 2^31."""
    return (rows << np.int64(31)) | codes


def array_column(kind: pa.DataType, elements: ListElements) -> pa.Array:
    """Return packed elements as arrays."""
    items = elements.items.cast(kind.value_type) if elements.items.type != kind.value_type else elements.items
    return _nested(kind, elements.counts, elements.valid, items)


def map_column(kind: pa.DataType, keys: ListElements, values: ListElements) -> pa.Array:
    """Return packed keys and values as maps.

    Raises:
        TerminalError: a key is null; Flink's maps have such a key, Arrow's do not.
    """
    if keys.items.null_count:
        raise TerminalError("a map of which a key is NULL", next="leave such keys out, or write COALESCE around them")
    fields = [kind.key_field.with_nullable(False), kind.item_field]
    columns = [keys.items.cast(kind.key_type), values.items.cast(kind.item_type)]
    entries = pa.StructArray.from_arrays(columns, fields=fields)
    return _nested(kind, keys.counts, keys.valid, entries)


def _nested(kind: pa.DataType, counts: Numbers, valid: Flags | None, items: pa.Array) -> pa.Array:
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    missing = 0 if valid is None else int(np.count_nonzero(~valid))
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(counts), [bits, pa.py_buffer(ends)], missing, children=[items])


def flags_column(flags: Flags, valid: Flags | None) -> pa.Array:
    """Return truth values, null where `valid` is false."""
    return column_of(flags, pa.bool_(), valid)
