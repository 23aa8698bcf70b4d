"""Each split of a checkpoint is read by exactly one task, however Spark lays the ticker's rows out over tasks."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.base import Split
from poundlock.plan.splits import pack, spread, task_splits, ticker_options

weights = st.lists(st.integers(0, 1000), max_size=40)


def splits(of: list[int]) -> list[Split]:
    return [Split(f"{i:04d}", {"n": i, "name": "\udcff"}, weight) for i, weight in enumerate(of)]


def ticker(rows: list[int]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array(rows, pa.int64())], ["value"])]


@given(weights, st.integers(1, 9), st.integers(0, 10_000), st.integers(1, 9))
def test_every_split_goes_to_one_task(of: list[int], rows: int, first: int, partitions: int) -> None:
    """A batch that was planned with another number of tasks is delivered with as many rows as it had then."""
    work = splits(of)
    directive = {"decided": False, "splits": {"in": pack(work, first, rows)}}
    parts = [list(range(first, first + rows))[p::partitions] for p in range(partitions)]
    read = [split for part in parts for split in task_splits(iter(ticker(part)), "in", directive)]
    assert sorted(split.id for split in read) == [split.id for split in work]
    assert {split.id: (split.payload, split.weight) for split in read} == {s.id: (s.payload, s.weight) for s in work}


@given(weights, st.integers(1, 9))
def test_groups_are_even_and_the_same_again(of: list[int], tasks: int) -> None:
    groups = spread(splits(of), tasks)
    assert groups == spread(list(reversed(splits(of))), tasks)
    sums = [sum(split.weight for split in group) for group in groups]
    assert len(groups) == min(tasks, len(of))
    assert not sums or max(sums) - min(sums) <= max(of)


def test_the_ticker_gives_each_task_one_row() -> None:
    options = ticker_options(3)
    assert options["rowsPerBatch"] == options["numPartitions"] == "3"
