"""Records of state by columns: a dict of a row's columns for each, as it is written where records are worked one by one.

What is read is the same whoever wrote it, and a column that a record does not have is null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, joined
from poundlock.operators.columns.msgpack.cursor import Cursor, UnexpectedValue
from poundlock.operators.columns.msgpack.values import columns_of, read_record, read_value, unpacked
from poundlock.operators.columns.msgpack.writing import list_head


def records_of(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records that were packed, of which none is null.

    Raises:
        TerminalError: one has values of other types.
    """
    try:
        return read_record(Cursor(values), schema)
    except UnexpectedValue:
        return columns_of(unpacked(values), schema)


def timed_records_of(values: pa.Array, schema: pa.Schema) -> tuple[pa.Array, list[pa.Array]]:
    """Return times, and the columns of records, of lists of the two; raises as `records_of`."""
    cursor = Cursor(values)
    try:
        cursor.skip(list_head(2))
        return read_value(cursor, pa.int64()), read_record(cursor, schema)
    except UnexpectedValue:
        held = unpacked(values)
        (times,) = columns_of([{"time": time} for time, _ in held], pa.schema([("time", pa.int64())]))
        return times, columns_of([record for _, record in held], schema)


def lists_of_records(values: pa.Array, schema: pa.Schema) -> tuple[Numbers, list[pa.Array]]:
    """Return how many records each of some lists has, and the columns of all of them; raises as `records_of`."""
    cursor = Cursor(values)
    try:
        counts = cursor.list_lengths()
        if counts.any():
            return counts, _each_in_turn(cursor, counts, schema)
    except UnexpectedValue:
        pass
    if not len(values):
        return np.empty(0, np.int64), [pa.nulls(0, kind) for kind in schema.types]
    lists = unpacked(values)
    lengths = np.array(list(map(len, lists)), np.int64)
    return lengths, columns_of([record for each in lists for record in each], schema)


def _each_in_turn(cursor: Cursor, counts: Numbers, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of the records of lists: the first of each list is read, then the second. Raises UnexpectedValue."""
    parts: list[list[pa.Array]] = []
    places: list[Numbers] = []
    for turn in range(int(counts.max())):
        own = np.flatnonzero(counts > turn)
        one = cursor.at(own)
        parts.append(read_record(one, schema))
        cursor.move(own, one)
        places.append(own)
    order = indices_of(np.argsort(np.concatenate(places), kind="stable"))
    return [joined(list(column)).take(order) for column in zip(*parts, strict=True)]
