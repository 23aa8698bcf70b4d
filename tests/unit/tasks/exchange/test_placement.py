"""Rows that are placed: by their place in a split or by a function, the same whoever reads them and in whatever batches."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DefinitionError
from poundlock.state import hashing
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.blocks import Block, BlockWriter, ExchangeInput, deliveries, message_bytes
from poundlock.tasks.exchange.placement import Custom, RoundRobin
from poundlock.tasks.exchange.received import in_order
from support.examples import examples


def place(sequence: int, source: str = "s") -> SplitPlace:
    return SplitPlace(source, f"p{sequence}", sequence)


def rows(sequence: int, first: int, count: int, payload: str = "") -> pa.RecordBatch:
    names = [f"{sequence}/{first + i:04d}{payload}" for i in range(count)]
    return pa.RecordBatch.from_pydict(
        {"at": pa.array(names), "k": pa.array([f"k{i % 7}" for i in range(first, first + count)])}
    )


def placed(how: Any, splits: Sequence[Sequence[int]], flush: int, tasks: int = 3, readers: int = 2) -> list[list[str]]:
    """Return what comes to each task: `splits` are the lengths of the batches of each, read by some writers in turn."""
    partitioner = (lambda key, n: len(key + "x") * int(key[1:]) % n) if how == "custom" else None
    keys = ("k",) if how == "custom" else ()
    to = ExchangeInput(operator="op", keys=keys, how=how, max_parallelism=None, partitioner=partitioner)
    blocks: list[Block] = []
    for reader in range(readers):
        writer = BlockWriter(to, hashing, tasks, {"s": len(splits)}, flush_bytes=flush)
        for sequence in range(reader, len(splits), readers):
            first = 0
            for count in splits[sequence]:
                blocks += writer.add(rows(sequence, first, count), place(sequence))
                first += count
        blocks += writer.finish()
    by_task = [[block for block in reversed(blocks) if block.target == task] for task in range(tasks)]
    return [[at for _, batch in in_order(mine) for at in batch.column("at").to_pylist()] for mine in by_task]


SPLITS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=5)


@examples(80)
@given(SPLITS, st.sampled_from(["spread", "rescale", "custom"]), st.sampled_from([1, 400, 1 << 20]), st.integers(1, 4))
def test_each_row_comes_once_to_the_same_task_in_the_order_of_its_split(
    splits: list[list[int]], how: str, flush: int, readers: int
) -> None:
    found = placed(how, splits, flush, readers=readers)
    every = Counter(f"{s}/{i:04d}" for s, counts in enumerate(splits) for i in range(sum(counts)))
    assert Counter(at for task in found for at in task) == every
    assert all(task == sorted(task) for task in found)
    assert found == placed(how, [[1] * sum(counts) for counts in splits], 1 << 20, readers=1)


def test_rebalanced_rows_go_to_all_tasks_however_few_there_are() -> None:
    assert [len(task) for task in placed("spread", [[9]], 1 << 20)] == [3, 3, 3]
    assert [len(task) for task in placed("spread", [[1], [1], [1]], 1 << 20)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("tasks", "splits", "shares"),
    [
        (6, 3, [{0, 1}, {2, 3}, {4, 5}]),
        (2, 4, [{0}, {0}, {1}, {1}]),
        (3, 2, [{0}, {1, 2}]),
        (1, 3, [{0}, {0}, {0}]),
    ],
)
def test_a_rescaled_split_has_a_few_tasks(tasks: int, splits: int, shares: list[set[int]]) -> None:
    spread = RoundRobin(tasks, {"s": splits})
    assert [set(spread.of(20, place(number)).tolist()) for number in range(splits)] == shares


def test_a_partitioner_is_asked_once_for_each_key_of_a_batch() -> None:
    asked: list[Any] = []

    def partitioner(key: Any, tasks: int) -> int:
        asked.append(key)
        return tasks - 1

    columns = [pa.array(["a", "b", "a", None]), pa.array([1, 1, 1, 2])]
    assert Custom("op", partitioner, 5).of(columns).tolist() == [4, 4, 4, 4]
    assert asked == [("a", 1), ("b", 1), (None, 2), (None, 2), ("b", 1), ("a", 1)], "once each, and these once more"
    asked.clear()
    many = pa.array([f"k{n}" for n in range(100)])
    Custom("op", lambda key, tasks: asked.append(key) or 0, 5).of([many])
    assert len(asked) == 108
    assert Custom("op", partitioner, 2).of([pa.array([[1], [1]])]).tolist() == [1, 1]


@pytest.mark.parametrize("answer", [-1, 4, None, "1", 1.5])
def test_a_partitioner_that_names_no_task_is_refused(answer: Any) -> None:
    with pytest.raises(DefinitionError, match=r"op: the partitioner gave .* for the key 'a', and there are 4 tasks"):
        Custom("op", lambda key, tasks: answer, 4).of([pa.array(["a"])])


@pytest.mark.parametrize("keys", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("tasks", [2, 3, 4])
def test_a_partitioner_that_counts_is_refused(keys: int, tasks: int) -> None:
    count = itertools.cycle(range(tasks))
    with pytest.raises(
        DefinitionError, match=r"op: the partitioner placed the key 'k\d+' in task \d, and then in task \d"
    ):
        Custom("op", lambda key, tasks: next(count), tasks).of([pa.array([f"k{n}" for n in range(keys)])])
    with pytest.raises(DefinitionError, match="placed the key"):
        Custom("op", lambda key, tasks: next(count), tasks).of([pa.array([[n] for n in range(keys)])])


def test_what_goes_to_one_task_is_sent_in_small_messages() -> None:
    tasks = 60
    to = ExchangeInput(operator="op", keys=("k",), max_parallelism=128)
    writer = BlockWriter(to, hashing, tasks)
    hot = rows(0, 0, 300, "x" * 10_000).set_column(1, "k", pa.array(["hot"] * 300))
    blocks = [*writer.add(hot, place(0)), *writer.finish()]
    sent = [delivery for _, delivery in deliveries(blocks, [], tasks)]
    assert sum(block.count for each in sent for block in each.blocks) == 300
    assert max(sum(len(block.rows) for block in each.blocks) for each in sent) < 1.1 * message_bytes(tasks)
    assert [at[:6] for _, batch in in_order(blocks[::-1]) for at in batch.column("at").to_pylist()] == [
        f"0/{i:04d}" for i in range(300)
    ]
