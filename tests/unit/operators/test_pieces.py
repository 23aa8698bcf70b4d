"""Rows in pieces: bounded in rows and bytes, in order, each row once; the same bytes however columns are sliced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.pieces import content_bytes, pieces, pieces_of_places, slices
from support.examples import examples

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "number": (pa.int64(), st.integers(0, 9)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=40)),
    "long": (pa.large_binary(), st.binary(max_size=200)),
    "list": (pa.list_(pa.string()), st.lists(st.text(max_size=20), max_size=5)),
    "struct": (pa.struct([("a", pa.string()), ("b", pa.int32())]), st.fixed_dictionaries({"a": st.text(max_size=30)})),
    "map": (pa.map_(pa.string(), pa.int64()), st.lists(st.tuples(st.text(max_size=5), st.integers(0, 9)), max_size=3)),
    "pair": (pa.list_(pa.int32(), 2), st.just([1, 2])),
    "nothing": (pa.null(), st.none()),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(0, 30))
    columns = [
        pa.array(draw(st.lists(st.none() | KINDS[name][1], min_size=rows, max_size=rows)), KINDS[name][0])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, names)


@given(batches(), st.integers(1, 12), st.integers(1, 500))
@examples(100)
def test_pieces_are_bounded_and_whole(rows: pa.RecordBatch, most_rows: int, most_bytes: int) -> None:
    cut = list(slices(rows, most_rows=most_rows, most_bytes=most_bytes))
    assert all(0 < piece.num_rows <= most_rows for piece in cut)
    assert all(content_bytes(piece.columns) <= most_bytes for piece in cut if piece.num_rows > 1)
    assert pa.Table.from_batches(cut, rows.schema).to_pylist() == rows.to_pylist()


@given(batches(), st.integers(0, 10), st.integers(0, 10))
@examples(100)
def test_slices_have_the_bytes_of_their_rows(rows: pa.RecordBatch, first: int, count: int) -> None:
    some = rows.slice(first, count)
    each = [content_bytes(some.slice(row, 1).columns) for row in range(some.num_rows)]
    assert content_bytes(some.columns) == sum(each)


@given(batches(), st.lists(st.integers(0, 29), max_size=60), st.integers(1, 20), st.integers(1, 500))
@examples(100)
def test_rows_that_are_taken_are_bounded(
    rows: pa.RecordBatch, wanted: list[int], most_rows: int, most_bytes: int
) -> None:
    places = np.array([place for place in wanted if place < rows.num_rows], np.int64)
    cut = list(pieces_of_places(rows.columns, places, most_rows=most_rows, most_bytes=most_bytes))
    assert [place for some in cut for place in places[some].tolist()] == places.tolist()
    for some in cut:
        taken = rows.take(pa.array(places[some]))
        assert 0 < taken.num_rows <= most_rows
        assert taken.num_rows == 1 or content_bytes(taken.columns) <= most_bytes


def test_narrow_rows_are_cut_by_their_number_alone() -> None:
    rows = [pa.array(range(150_000))]
    assert list(pieces(rows)) == [(0, 65_536), (65_536, 65_536), (131_072, 18_928)]
    assert list(pieces_of_places(rows, np.zeros(70_000, np.int64))) == [slice(0, 65_536), slice(65_536, 70_000)]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_what_all_pieces_share_is_no_reason_to_cut(kind: pa.DataType) -> None:
    column = pa.array(["x" * 1_000] * 100).cast(kind)
    assert len(list(pieces([column], most_bytes=2_000))) == 1
