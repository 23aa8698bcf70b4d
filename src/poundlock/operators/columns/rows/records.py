"""Records of state by columns: a dict of a row's columns for each, as it is written where records are worked one by one.

What is read is the same whoever wrote it, and a column that a record does not have is null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, joined
from poundlock.operators.columns.rows.cursor import Cursor, columns_of
from poundlock.operators.columns.rows.packing import LIST, unpacked


def records_of(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of records that were packed, of which none is null. Raises TerminalError: one has values of other types."""
    columns = Cursor.of(values).record(schema)
    return columns_of(unpacked(values), schema) if columns is None else columns


def timed_records_of(values: pa.Array, schema: pa.Schema) -> tuple[pa.Array, list[pa.Array]]:
    """Return times, and the columns of records, of lists of the two; raises as `records_of`."""
    cursor = Cursor.of(values)
    times = cursor.read(pa.int64()) if cursor.passes(bytes([LIST + 2])) else None
    columns = None if times is None else cursor.record(schema)
    if times is not None and columns is not None:
        return times, columns
    held = unpacked(values)
    (times,) = columns_of([{"time": time} for time, _ in held], pa.schema([("time", pa.int64())]))
    return times, columns_of([record for _, record in held], schema)


def lists_of_records(values: pa.Array, schema: pa.Schema) -> tuple[Numbers, list[pa.Array]]:
    """Return how many records each of some lists has, and the columns of all of them; raises as `records_of`."""
    cursor = Cursor.of(values)
    counts = cursor.list_lengths()
    columns = None if counts is None else _each_in_turn(cursor, counts, schema)
    if counts is not None and columns is not None:
        return counts, columns
    lists = unpacked(values)
    lengths = np.array(list(map(len, lists)), np.int64)
    return lengths, columns_of([record for each in lists for record in each], schema)


def _each_in_turn(cursor: Cursor, counts: Numbers, schema: pa.Schema) -> list[pa.Array] | None:
    """Return the columns of the records of lists: the first of each list is read, then the second; None where one is not read so."""
    parts: list[list[pa.Array]] = []
    places: list[Numbers] = []
    for turn in range(int(counts.max(initial=0))):
        own = np.flatnonzero(counts > turn)
        one = cursor.at(own)
        columns = one.record(schema)
        if columns is None:
            return None
        cursor.move(own, one)
        parts.append(columns)
        places.append(own)
    if not parts:
        return None
    order = indices_of(np.argsort(np.concatenate(places), kind="stable"))
    return [joined(list(column)).take(order) for column in zip(*parts, strict=True)]
