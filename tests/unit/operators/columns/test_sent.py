"""What was sent is what was added up, whole or some of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import binary_array
from poundlock.operators.columns.partials import Partials, in_ranges
from poundlock.operators.columns.sent import SentPartials

ROWS = Partials(
    np.array([1 << 40, 1 << 50, (1 << 64) - 1], np.uint64),
    binary_array([b"a", b"", b"c" * 40]),
    np.array([-5_000, 0, 1_700_000_000_000]),
    np.array([1, 700, 1]),
    [pa.array([1, None, 3], pa.int64()), pa.array([0.5, -0.0, 2.0], pa.float64())],
)


def lists(rows: Partials) -> list[list[object]]:
    columns = (rows.hashes, rows.slices, rows.counts)
    return [rows.keys.to_pylist(), *(each.tolist() for each in columns), *(each.to_pylist() for each in rows.held)]


def test_what_was_sent_is_unpacked_whole_or_in_part() -> None:
    sent = SentPartials.of(ROWS)
    assert (len(sent), sent.hashes.tolist(), sent.counts.tolist()) == (3, ROWS.hashes.tolist(), [1, 700, 1])
    assert sent.batch.schema.field("c3").type == pa.uint16(), "counts are small"
    assert lists(sent.unpacked()) == lists(ROWS)
    for start in range(4):
        for stop in range(start, 4):
            assert lists(sent.slice(start, stop).unpacked()) == lists(ROWS.slice(start, stop))


def test_some_rows_and_slices_that_are_left_out() -> None:
    sent = SentPartials.of(ROWS).slice(1, 3)
    assert lists(sent.take(np.array([1, 0])).unpacked()) == lists(ROWS.take(np.array([2, 1])))
    assert lists(sent.unpacked_as_one_slice()) == lists(replace(ROWS.slice(1, 3), slices=np.zeros(2, np.int64)))
    nothing = SentPartials.of(ROWS.slice(0, 0))
    assert (len(nothing), lists(nothing.unpacked())) == (0, lists(ROWS.slice(0, 0)))


def test_wide_rows_are_unpacked_some_at_a_time() -> None:
    n = 4_000
    hashes = np.sort(np.random.default_rng(7).integers(0, 1 << 63, n).astype(np.uint64))
    wide = pa.array(["x" * 100_000] * n, pa.string())
    zeros = np.zeros(n, np.int64)
    rows = Partials(hashes, binary_array([b"k"] * n), zeros, zeros + 1, [wide])
    ranges = list(in_ranges([SentPartials.of(rows)], SentPartials.unpacked, SentPartials.columns))
    sizes = [sum(map(len, some)) for some in ranges]
    assert sum(sizes) == n
    assert max(sizes) * 100_000 < 256 << 20, "of 400 MB"
