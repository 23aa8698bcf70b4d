"""The order of rows through an exchange: windows whose slices are merged by time give what they give record by record, in which rows come
by source, split and position, whichever tasks read them and whether they were added up on their way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.columns.operator import ResultColumns
from poundlock.operators.columns.partials import SliceAggregation, merges_by_time
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.columns.windows import ColumnWindows
from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.group import MIN
from poundlock.operators.records import RecordMaker
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.state import hashing
from poundlock.state.scratch import ScratchState
from poundlock.stream.windows.builtin_assigners import CumulativeEventTimeWindows, SlidingEventTimeWindows
from poundlock.tasks.columns import bool_column
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.arrivals import RowNumbers, with_places
from poundlock.tasks.exchange.blocks import Block, BlockWriter, ExchangeInput
from poundlock.tasks.exchange.partial_blocks import PARTIAL_SIDE, PartialWriter, Stretch
from poundlock.tasks.exchange.received import grouped, grouped_pieces
from poundlock.tasks.keyed_rows import KeyedInput
from support.examples import examples

GROUPS = 4
AGGREGATES = (
    SqlAggregate(kind="first", column=0),
    SqlAggregate(kind="last", column=0, ignore_nulls=True),
    SqlAggregate(kind="collect_list", column=0),
    SqlAggregate(kind="min_by", column=0, by=1),
)
KINDS = (pa.int64(), pa.int64())
TO = ExchangeInput(operator="w", keys=("k",), max_parallelism=GROUPS)
TAKEN = KeyedInput(keys=["k"], time="t", elements=RecordMaker(("n", "rank"), tuple), whole=[])
SPLITS = [SplitPlace(source, f"p{number}", number) for source in ("b", "a") for number in (0, 1, 2)]
STRETCH = Stretch(unit=3, rows=6)
Result = tuple[str, int, int, list[Any]]


def batch_of(dice: random.Random, now: int, first: int) -> pa.RecordBatch:
    """Return some rows; `n` is another number in each, or null."""
    count = dice.randrange(12)
    times = pa.array([(now + dice.randrange(-9_000, 3_000)) * 1000 for _ in range(count)], pa.int64())
    columns = [
        pa.array([dice.choice("abc") for _ in range(count)], pa.string()),
        times.cast(pa.timestamp("us", "UTC")),
        pa.array([dice.choice([first + number] * 4 + [None]) for number in range(count)], pa.int64()),
        pa.array([dice.randrange(2) for _ in range(count)], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["k", "t", "n", "rank"])


def written_as_they_are(task: Sequence[tuple[SplitPlace, pa.RecordBatch]]) -> list[Block]:
    """Return the blocks of what one task read."""
    writer = BlockWriter(TO, hashing, flush_bytes=400)
    return [*(block for place, rows in task for block in writer.add(rows, place)), *writer.finish()]


def written(windows: ColumnWindows, task: Sequence[tuple[SplitPlace, pa.RecordBatch]], before: int) -> list[Block]:
    """Return the same, added up but for the rows that go one by one."""
    writer = BlockWriter(TO, hashing, flush_bytes=400)
    adding, numbers = PartialWriter(TO, windows.partial, hashing, 0, stretch=STRETCH), RowNumbers()
    blocks: list[Block] = []
    for place, read in task:
        rows = numbers.numbered(read, place)
        alone = windows.alone(windows.partial.times(rows, 0), before) if rows.num_rows else np.zeros(0, np.bool_)
        blocks += adding.add(rows.filter(bool_column(~alone)), place)
        blocks += writer.add(rows.filter(bool_column(alone)), place)
    return [*blocks, *adding.finish(), *writer.finish()]


def of_records(chunks: Iterable[Any]) -> list[Result]:
    return [
        (key, *window, list(value))
        for chunk in chunks
        for key, window, value in zip(chunk.keys, chunk.windows, chunk.values, strict=True)
    ]


def of_columns(chunks: Iterable[Any]) -> list[Result]:
    results: list[Result] = []
    for chunk in chunks:
        starts, ends = (chunk.rows.column(name).cast(pa.int64()) for name in ("window_start", "window_end"))
        values = [column.to_pylist() for column in chunk.rows.columns[3:]]
        keys = chunk.rows.column(0).to_pylist()
        for key, start, end, *value in zip(keys, starts.to_pylist(), ends.to_pylist(), *values, strict=True):
            results.append((key, start // 1000, end // 1000, value))
    return results


def by_window(results: Iterable[Result]) -> list[Result]:
    """Return results by key and window, those of one in the order they came."""
    return sorted(results, key=lambda result: result[:3])


@examples(40)
@given(
    seed=st.integers(0, 1 << 32),
    assigner=st.sampled_from(
        [
            SlidingEventTimeWindows("4 s", "1 s"),
            SlidingEventTimeWindows("5 s", "3 s"),
            CumulativeEventTimeWindows("2 s", "6 s"),
        ]
    ),
    lateness=st.sampled_from([0, 4_000]),
)
def test_values_stand_in_the_order_in_which_rows_were_read(seed: int, assigner: Any, lateness: int) -> None:
    dice = random.Random(seed)
    spec = WindowSpec(
        assigner=assigner, function=SqlAggregates(AGGREGATES), allowed_lateness_ms=lateness, late_tag="late"
    )
    aggregates = ColumnAggregates(AGGREGATES, KINDS, merges_by_time(assigner))
    types = [pa.int64(), pa.int64(), pa.list_(pa.int64()), pa.int64()]
    results = [pa.field(f"r{number}", kind) for number, kind in enumerate(types)]
    rows = SliceAggregation(("k",), "t", ("n", "rank"), aggregates, assigner, hashing.key_hashes)
    windows = ColumnWindows(spec, rows, ResultColumns([pa.field("k", pa.string())], results), ("k", "t", "n"))
    records, columns = ScratchState(GROUPS), ScratchState(GROUPS)
    now, before, places = 0, MIN, 0
    for number in range(dice.randrange(1, 6)):
        now += dice.randrange(3_000)
        after = max(before, now - dice.randrange(4_000))
        reads: list[list[tuple[SplitPlace, pa.RecordBatch]]] = [[], [], []]
        splits = {split: dice.randrange(3) for split in dice.sample(SPLITS, dice.randrange(1, 4))}
        for first in range(4):  # of each split that a task reads some rows, in turn
            for split, task in splits.items():
                values = 1000 * number + 100 * SPLITS.index(split) + 20 * first
                reads[task].append((split, batch_of(dice, now, values)))
        as_they_are = [block for task in reads for block in written_as_they_are(task)]
        added = [block for task in reads for block in written(windows, task, before)]
        dice.shuffle(added)

        group, by_record = records.open(0, before), window_operator(spec)
        whole = grouped(as_they_are)
        chunks = [] if whole is None else list(by_record.process(group, TAKEN.batch(whole, 0)))
        mine = of_records(each for each in chunks if each.tag != "late")
        mine_then = of_records(by_record.advance_watermark(group, after))

        state, by_column = columns.open(0, before), windows.operator()
        assert state.arrived == places
        sides: list[list[Block]] = [[block for block in added if block.side == side] for side in (PARTIAL_SIDE, 0)]
        came = with_places(*sides, rows.places, places)
        places = state.arrived = came.next
        by_column.take(state, came.partials)
        theirs = [chunk for piece in grouped_pieces(came.rows) for chunk in by_column.take_rows(state, piece)]
        assert by_window(of_columns(each for each in theirs if each.tag != "late")) == by_window(mine)
        assert by_window(of_columns(by_column.advance_watermark(state, after))) == by_window(mine_then)
        by_column.store(state)
        records.write()
        columns.write()
        before = after


def test_splits_stand_one_behind_the_other_whatever_came_of_them() -> None:
    numbers, writer = RowNumbers(), BlockWriter(TO, hashing)
    rows = pa.RecordBatch.from_pydict({"k": ["a", "a"]})
    blocks: list[Block] = []
    for place in (SPLITS[4], SPLITS[0], SPLITS[4]):
        blocks += writer.add(numbers.numbered(rows, place), place)
    came = with_places([], [*blocks, *writer.finish()], [], 70)
    whole = grouped(came.rows)
    assert whole is not None
    assert whole.column("__place").to_pylist() == [70, 71, 72, 73, 74, 75]
    assert came.next == 76
    assert with_places([], [], [], 76).next == 76
