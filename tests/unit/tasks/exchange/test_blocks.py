"""Rows through an exchange: every row comes to the task of its key once, in an order that does not depend on who sent it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.operators.time_values import SplitTimes
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange.blocks import EVERYWHERE, Block, BlockWriter, ExchangeInput, deliveries
from poundlock.tasks.exchange.received import grouped, grouped_batches, grouped_pieces, inputs_of
from support.examples import examples

GROUPS = 16


class Hashing:
    """Hashes a number by itself, so that a test knows the group; ranges of the hash are groups."""

    def key_hashes(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return np.array([sum(0 if v is None else len(str(v)) + hash(v) % 97 for v in row) for row in rows], np.uint64)

    def groups_of(self, hashes: npt.NDArray[np.uint64], max_parallelism: int) -> npt.NDArray[np.int32]:
        return (hashes % np.uint64(max_parallelism)).astype(np.int32)


SCHEMA = pa.schema({"k": pa.int64(), "at": pa.string(), "n": pa.int64()})
Split = tuple[SplitPlace, list[list[int | None]]]


def to(keys: tuple[str, ...] = ("k",), **how: Any) -> ExchangeInput:
    return ExchangeInput(operator="op", keys=keys, max_parallelism=GROUPS, **how)


def batch(place: SplitPlace, first: int, keys: Sequence[int | None]) -> pa.RecordBatch:
    """Rows that say where they were read."""
    numbers = [first + i for i in range(len(keys))]
    where = [f"{place.source}/{place.sequence:03d}/{n:05d}" for n in numbers]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(where), pa.array(numbers)], schema=SCHEMA)


def written(
    tasks: Iterable[Iterable[Split]], into: ExchangeInput, parallelism: int, flush: int = 1 << 20
) -> list[Block]:
    blocks = []
    for splits in tasks:
        writer = BlockWriter(into, Hashing(), parallelism, flush_bytes=flush)
        for place, chunks in splits:
            first = 0
            for keys in chunks:
                blocks += writer.add(batch(place, first, keys), place)
                first += len(keys)
        blocks += writer.finish()
    return blocks


def received(blocks: Iterable[Block], target: int) -> pa.RecordBatch | None:
    return grouped([pickle.loads(pickle.dumps(each)) for each in blocks if each.target == target])


def by_group(rows: pa.RecordBatch | None) -> list[tuple[int, list[str]]]:
    """The rows of each run of one key group, in the order in which they are."""
    if rows is None:
        return []
    groups = Hashing().groups_of(Hashing().key_hashes([rows.column("k")]), GROUPS).tolist()
    runs = groupby(zip(groups, rows.column("at").to_pylist(), strict=True), key=itemgetter(0))
    return [(group, [where for _, where in run]) for group, run in runs]


KEYS = st.lists(st.one_of(st.none(), st.integers(0, 40)), max_size=12)
SPLITS = st.lists(
    st.tuples(
        st.builds(SplitPlace, st.sampled_from(["a", "b"]), st.just("p"), st.integers(0, 5)), st.lists(KEYS, max_size=3)
    ),
    unique_by=lambda each: each[0],
    max_size=6,
)


@examples(150)
@given(SPLITS, st.data(), st.integers(1, GROUPS), st.sampled_from([1, 300, 1 << 20]))
def test_every_row_comes_once_and_in_the_order_of_the_sources(
    splits: list[Split], data: Any, parallelism: int, flush: int
) -> None:
    shared = data.draw(st.lists(st.integers(0, 2), min_size=len(splits), max_size=len(splits)))
    tasks = [[each for each, task in zip(splits, shared, strict=True) if task == number] for number in range(3)]
    blocks = data.draw(st.permutations(written(tasks, to(), parallelism, flush)))
    expected: dict[int, list[str]] = {}
    for place, chunks in sorted(splits, key=lambda each: each[0]):
        first = 0
        for keys in chunks:
            rows = batch(place, first, keys)
            first += len(keys)
            hashes = Hashing().key_hashes([rows.column("k")])
            for group, where in zip(Hashing().groups_of(hashes, GROUPS), rows.column("at").to_pylist(), strict=True):
                expected.setdefault(int(group), []).append(where)
    arrived = {}
    for target in range(parallelism):
        for group, rows_of_group in by_group(received(blocks, target)):
            assert group * parallelism // GROUPS == target
            assert group not in arrived
            arrived[group] = rows_of_group
    assert arrived == expected


def test_no_column_is_sent_that_no_operator_looks_at() -> None:
    blocks = written([[(SplitPlace("a", "p", 0), [[5, 7, None, 5]])], [(SplitPlace("a", "p", 1), [[7, 5]])]], to(), 1)
    for each in (block.batch() for block in blocks):
        assert each.schema.names[:-1] == SCHEMA.names
        assert each.nbytes == each.select(SCHEMA.names).nbytes
    rows = received(blocks, 0)
    assert rows is not None
    assert rows.schema == SCHEMA


def test_rows_of_one_block_in_order_are_not_copied() -> None:
    (block,) = written([[(SplitPlace("a", "p", 0), [[3, 4, 3, 9]])]], to(), 1)
    rows = grouped([block])
    assert rows is not None
    inside = np.frombuffer(block.rows, np.uint8)
    first = inside.ctypes.data
    assert first <= rows.column("n").buffers()[1].address < first + len(inside)
    groups = [group for group, _ in by_group(rows)]
    assert groups == sorted(set(groups))


def test_broadcast_rows_come_to_every_task_in_order() -> None:
    places = [SplitPlace("a", "p", 1), SplitPlace("a", "p", 0)]
    tasks = [[(place, [[1, 2], [3]])] for place in places]
    blocks = written(tasks, to(how="broadcast"), 3)
    for target in range(3):
        assert {group for block in blocks for group in block.runs()[:, 0].tolist()} == {EVERYWHERE}
        rows = received(blocks, target)
        assert rows is not None
        assert rows.column("at").to_pylist() == [f"a/00{s}/0000{n}" for s in (0, 1) for n in range(3)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 3))
def test_rows_without_a_key_are_spread_by_their_place_whatever_batches_they_come_in(
    sizes: list[int], sequence: int
) -> None:
    place = SplitPlace("a", "p", sequence)
    into = to(how="spread")
    chunks = [[None] * size for size in sizes]
    apart, whole = (
        [
            (target, rows.column("at").to_pylist())
            for target in range(4)
            if (rows := received(blocks, target)) is not None
        ]
        for blocks in (written([[(place, chunks)]], into, 4), written([[(place, [[None] * sum(sizes)])]], into, 4))
    )
    assert apart == whole
    assert sum(len(rows) for _, rows in whole) == sum(sizes)


def test_rows_that_all_have_the_same_key_come_to_one_task() -> None:
    blocks = written([[(SplitPlace("a", "p", 0), [[1, 2, 3]])]], to(keys=()), 4)
    assert [block.target for block in blocks] == [0]


@pytest.mark.parametrize("compress_from", [None, 0])
def test_columns_of_every_kind(compress_from: int | None) -> None:
    def rows(*words: str | None) -> pa.RecordBatch:
        count = range(len(words))
        return pa.record_batch(
            {
                "word": pa.array(words).dictionary_encode(),
                "nothing": pa.nulls(len(words)),
                "nested": pa.array(
                    [{"l": [n], "m": [("a", n)]} for n in count],
                    pa.struct({"l": pa.list_(pa.int64()), "m": pa.map_(pa.string(), pa.int64())}),
                ),
                "encoded": pa.StructArray.from_arrays([pa.array(words).dictionary_encode()], ["w"]),
                "flag": pa.array([n % 2 == 0 for n in count]),
                "bytes": pa.array([b"x" * n for n in count], pa.large_binary()),
                "money": pa.array([None] * len(words), pa.decimal128(10, 2)),
                "empty": pa.array([{}] * len(words), pa.struct([])),
            }
        )

    batches = [rows("a", None, "b"), rows("c", "a"), rows(), rows("b", "d", None, "a").slice(1, 2)]
    expected = [row for each in batches for row in each.to_pylist()]
    for into, parallelism in ((to(keys=("word",)), 2), (to(how="broadcast"), 1), (to(how="spread"), 3)):
        blocks = []
        for number, one in enumerate(batches):
            writer = BlockWriter(into, Hashing(), parallelism, compress_from=compress_from)
            writer.add(one, SplitPlace("s", "p", number))
            blocks += writer.finish()
        arrived = [received(blocks, target) for target in range(parallelism)]
        rows_in = [row for each in arrived if each is not None for row in each.to_pylist()]
        assert sorted(map(repr, rows_in)) == sorted(map(repr, expected))
        assert all(each is None or each.schema == batches[0].schema for each in arrived)


def test_rows_without_a_column_are_still_so_many() -> None:
    empty = pa.record_batch({"n": [1, 2, 3]}).select([])
    assert empty.num_rows == 3
    for how in ("keyed", "broadcast", "spread"):
        writer = BlockWriter(to(keys=(), how=how), Hashing())
        assert writer.add(empty, SplitPlace("s", "p", 0)) == []
        writer.add(empty, SplitPlace("s", "p", 1))
        rows = received(writer.finish(), 0)
        assert rows is not None
        assert (rows.num_rows, rows.num_columns) == (6, 0)


def test_nothing_makes_no_block() -> None:
    writer = BlockWriter(to(), Hashing())
    assert writer.add(batch(SplitPlace("a", "p", 0), 0, []), SplitPlace("a", "p", 0)) == []
    assert writer.finish() == []
    assert grouped([]) is None


def test_a_task_sends_what_it_knows_of_event_time_to_all() -> None:
    blocks = written([[(SplitPlace("a", "p", 0), [[1]])]], to(), 3)
    report = SplitTimes("time", "a", "p", 0, 5, 1)
    sent = dict(deliveries(blocks, [report], 3))
    assert {target: len(each.blocks) for target, each in sent.items()} == {0: 1, 1: 0, 2: 0}
    assert sorted(sent) == [0, 1, 2]
    assert all(pickle.loads(pickle.dumps(each)).reports == (report,) for each in sent.values())
    assert [block for each in sent.values() for block in each.blocks] == blocks


def test_what_is_sent_at_once_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = written([[(SplitPlace("a", "p", n), [list(range(50))]) for n in range(6)]], to(), 2, flush=1)
    size = max(len(block.rows) for block in blocks)
    monkeypatch.setattr("poundlock.tasks.exchange.blocks.DELIVERY_BYTES", 2 * size)
    report = SplitTimes("time", "a", "p", 0, 5, 1)
    sent = list(deliveries(blocks, [report], 2))
    for target in (0, 1):
        mine = [each for to_task, each in sent if to_task == target]
        assert [each.reports for each in mine] == [(report,), *[()] * (len(mine) - 1)], "event times are sent once"
        assert [b for each in mine for b in each.blocks] == [b for b in blocks if b.target == target]
        assert len(mine) > 1
        assert all(sum(len(b.rows) for b in each.blocks) <= 2 * size for each in mine)


def test_blocks_are_told_apart_by_the_input_they_are_for() -> None:
    place = [[(SplitPlace("a", "p", 0), [[1, 2]])]]
    left, right = written(place, to(), 1), written(place, to(side=1), 1)
    inputs = inputs_of([*right, *left])
    assert inputs == {("op", 0): left, ("op", 1): right}


def test_large_blocks_can_be_compressed() -> None:
    rows = batch(SplitPlace("a", "p", 0), 0, [7] * 5000)
    sizes = []
    for limit in (None, 1 << 30, 1000):
        writer = BlockWriter(to(), Hashing(), compress_from=limit)
        writer.add(rows, SplitPlace("a", "p", 0))
        (block,) = writer.finish()
        sizes.append(len(block.rows))
        assert block.batch().select(SCHEMA.names).equals(rows)
    assert sizes[0] == sizes[1] > 2 * sizes[2]


@examples(60)
@given(SPLITS, st.integers(1, 600), st.sampled_from([0, 2, 64]), st.randoms(use_true_random=False))
def test_much_comes_in_pieces_and_in_the_same_order(splits: list[Split], at_once: int, run: int, random: Any) -> None:
    blocks = written([splits], to(), 1, 300)
    random.shuffle(blocks)
    whole = grouped(blocks)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("poundlock.tasks.exchange.received._AT_ONCE", at_once)
        patched.setattr("poundlock.tasks.exchange.received._RUN", run)
        pieces = list(grouped_batches(blocks))
    assert [row for piece in pieces for row in piece.to_pylist()] == ([] if whole is None else whole.to_pylist())
    assert all(piece.num_rows for piece in pieces)
    assert len(pieces) > 1 or sum(len(block.rows) for block in blocks) <= at_once or len(blocks) == 1


@examples(60)
@given(SPLITS, st.integers(1, 600), st.randoms(use_true_random=False))
def test_pieces_are_as_large_as_they_may_be_whatever_lies_in_runs(
    splits: list[Split], at_once: int, random: Any
) -> None:
    blocks = written([splits], to(), 1, 300)
    random.shuffle(blocks)
    whole = grouped(blocks)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("poundlock.tasks.exchange.received._AT_ONCE", at_once)
        patched.setattr("poundlock.tasks.exchange.received._PIECE", 1)
        pieces = list(grouped_pieces(blocks))
    assert [row for piece in pieces for row in piece.to_pylist()] == ([] if whole is None else whole.to_pylist())
    assert all(piece.num_rows for piece in pieces)
    size = sum(len(block.rows) for block in blocks)
    assert (
        len(pieces) <= 1 + 2 * size // at_once
    )  # a row more would not have fitted: each but the last is half full at least
