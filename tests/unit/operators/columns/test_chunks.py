"""The chunks that operators by columns emit: however wide rows are, and whichever of them are taken, a chunk has a set number of bytes at most."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from poundlock.operators.columns.encoding import encode_key_columns
from poundlock.operators.columns.operator import (
    INSERT,
    ColumnChunk,
    ResultColumns,
    change_chunks,
    change_schema,
    row_chunks,
)
from poundlock.operators.pieces import PIECE_BYTES

MB = 1 << 20
WIDE = pa.array([b"x" * MB] * 80, pa.large_binary())
ROWS = pa.RecordBatch.from_arrays([pa.array(range(80)), WIDE], ["n", "wide"])


def checked(chunks: Iterator[ColumnChunk]) -> list[int]:
    """Return the numbers in the chunks; each is bounded, and has a time for each row."""
    numbers: list[int] = []
    for chunk in chunks:
        assert chunk.rows.nbytes <= PIECE_BYTES + MB
        assert len(chunk.times) == len(chunk)
        numbers += chunk.rows.column("n").to_pylist()
    return numbers


def test_results_of_windows() -> None:
    output = ResultColumns([pa.field("n", pa.int64())], [pa.field("wide", pa.large_binary())])
    keys = encode_key_columns([ROWS.column("n")])
    assert checked(output.chunks(keys, [WIDE], np.zeros(80, np.int64), np.arange(80))) == list(range(80))


def test_rows_that_are_sent_on() -> None:
    assert checked(row_chunks(ROWS, np.arange(79, -1, -1), np.arange(80))) == list(range(79, -1, -1))


def test_one_wide_row_many_times() -> None:
    """The rows together are small: what is taken of them is not."""
    rows = pa.RecordBatch.from_arrays([pa.array([0, 1]), pa.array([b"", b"x" * MB])], ["n", "wide"])
    places = np.array([0, *[1] * 100])
    times, kinds = np.zeros(101, np.int64), np.full(101, INSERT)
    changes = change_chunks(rows.columns, change_schema(rows.schema), places, kinds, times)
    assert checked(changes) == places.tolist()
