"""Rows that are added up on their way: the same blocks whatever batches they came in, each to the task that has its keys."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.partials import Partials, SliceAggregation
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.keyed.codec import decode
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.state import hashing
from poundlock.stream.windows.builtin_assigners import TumblingEventTimeWindows
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.blocks import Block, ExchangeInput
from poundlock.tasks.exchange.partial_blocks import PARTIAL_SIDE, PartialWriter, Stretch, partials_of

ADDING = SliceAggregation(
    ("k",),
    "t",
    ("n",),
    ColumnAggregates((SqlAggregate(kind="count"), SqlAggregate(kind="collect_list", column=0)), (pa.int64(),)),
    TumblingEventTimeWindows("10 s"),
    hashing.key_hashes,
)
ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 30_000), st.integers(0, 1)), max_size=60)
Row = tuple[str, int, int]


def written(rows: list[Row], cuts: list[int], tasks: int, stretch: Stretch) -> list[Block]:
    """Return the blocks of rows that come from two splits, in batches that end at some places."""
    to = ExchangeInput(operator="w", keys=("k",), max_parallelism=8)
    writer = PartialWriter(to, ADDING, hashing, 0, tasks, stretch)
    blocks: list[Block] = []
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for split in (0, 1):  # one split after the other
        for first, stop in pairwise(edges):
            own = [(number, row) for number, row in enumerate(rows) if first <= number < stop and row[2] == split]
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array([row[0] for _, row in own], pa.string()),
                    pa.array([row[1] * 1000 for _, row in own], pa.int64()).cast(pa.timestamp("us", "UTC")),
                    pa.array([number for number, _ in own], pa.int64()),
                    pa.nulls(len(own)),
                ],
                ["k", "t", "n", "not needed"],
            )
            blocks += writer.add(batch, SplitPlace("in", f"p{split}", split))
    return [*blocks, *writer.finish()]


@given(
    rows=ROWS,
    cuts=st.lists(st.integers(1, 60)),
    tasks=st.sampled_from([1, 2, 3]),
    stretch=st.builds(
        Stretch,
        unit=st.sampled_from([1, 3, 100]),
        rows=st.sampled_from([1, 6, 900]),
        bytes=st.sampled_from([1, 120, 10**9]),
        most_bytes=st.sampled_from([1, 90, 10**9]),
    ),
)
def test_blocks_do_not_depend_on_the_batches(rows: list[Row], cuts: list[int], tasks: int, stretch: Stretch) -> None:
    blocks = written(rows, cuts, tasks, stretch)
    whole = written(rows, [], tasks, stretch)
    by_place = {(b.target, *b.places[0], b.part): bytes(b.rows) for b in whole}
    assert {(b.target, *b.places[0], b.part): bytes(b.rows) for b in blocks} == by_place
    assert {block.side for block in blocks} <= {PARTIAL_SIDE}
    counted: Counter[tuple[str, int]] = Counter()
    for target in range(tasks):
        parts = [each.unpacked() for each in partials_of([b for b in reversed(blocks) if b.target == target])]
        for part in parts:
            names = [decode(key) for key in part.keys.to_pylist()]
            groups = hashing.groups_of(part.hashes, 8)
            assert set((groups * tasks // 8).tolist()) <= {target}
            assert part.counts.tolist() == part.held[0].to_pylist()
            counted.update(dict(zip(zip(names, part.slices.tolist(), strict=True), part.counts.tolist(), strict=True)))
        order = [number for part in parts for numbers in part.held[1].to_pylist() for number in numbers]
        splits = [rows[number][2] for number in order]
        assert splits == sorted(splits), "what was read in one split stands before what was read in the next"
    assert counted == Counter((key, at - at % 10_000) for key, at, _ in rows)


def test_what_waits_is_bounded_though_many_splits_are_open() -> None:
    to = ExchangeInput(operator="w", keys=("k",), max_parallelism=8)
    writer = PartialWriter(to, ADDING, hashing, 0, stretch=Stretch(unit=1000, rows=10_000, bytes=2_000))
    times = pa.array(range(50), pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(["key"] * 50), times, pa.array(range(50))], ["k", "t", "n"])
    blocks = []
    for number in range(40):
        blocks += writer.add(batch, SplitPlace("in", f"p{number}", number))
        assert sum(waiting.bytes for waiting in writer._open.values()) < 4_000
    assert [block.places[0][1] for block in blocks] == list(range(len(blocks))), (
        "the split that was read first goes first"
    )
    blocks += writer.finish()
    assert sum(int(part.counts.sum()) for part in partials_of(blocks)) == 2_000


def test_a_stretch_of_long_texts_ends_within_its_unit() -> None:
    writer = PartialWriter(
        ExchangeInput(operator="w", keys=("k",), max_parallelism=8),
        ADDING,
        hashing,
        0,
        stretch=Stretch(most_bytes=5_000),
    )
    times = pa.array(range(50), pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(["key" * 300] * 50), times, pa.array(range(50))], ["k", "t", "n"])
    blocks = [*writer.add(batch, SplitPlace("in", "p", 0)), *writer.finish()]
    assert [int(part.counts.sum()) for part in partials_of(blocks)] == [5] * 10


def test_many_partials_travel_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"k{number % 40}", number * 100, 0) for number in range(200)]
    whole = written(rows, [], 2, Stretch())
    monkeypatch.setattr("poundlock.tasks.exchange.partial_blocks.DELIVERY_BYTES", 300)
    pieces = written(rows, [], 2, Stretch())
    assert len(whole) == 2
    assert len(pieces) > 4
    assert len({(block.target, block.part) for block in pieces}) == len(pieces), "each has its place among them"
    for target in (0, 1):
        one, many = (
            Partials.joined(
                [each.unpacked() for each in partials_of([b for b in reversed(blocks) if b.target == target])]
            )
            for blocks in (whole, pieces)
        )
        assert many.hashes.tolist() == one.hashes.tolist()
        assert many.counts.tolist() == one.counts.tolist()
        assert many.keys.to_pylist() == one.keys.to_pylist()
        assert [held.to_pylist() for held in many.held] == [held.to_pylist() for held in one.held]
