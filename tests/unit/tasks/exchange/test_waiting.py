"""What was sent to a task, held in memory or on a disk: the same rows in the same order."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from poundlock.state import hashing
from poundlock.tasks.event_time import SplitPlace
from poundlock.tasks.exchange import waiting
from poundlock.tasks.exchange.blocks import Block, BlockWriter, Delivery, ExchangeInput, deliveries
from poundlock.tasks.exchange.received import grouped, in_order
from poundlock.tasks.exchange.waiting import receive


def sent(rows: int, width: int, *, dictionary: bool = False) -> list[Block]:
    """Return blocks of rows of several splits."""
    writer = BlockWriter(ExchangeInput(operator="op", keys=("k",)), hashing, flush_bytes=1 << 14)
    made: list[Block] = []
    for sequence in range(3):
        for first in range(0, rows, 50):
            numbers = range(first, min(first + 50, rows))
            texts = pa.array([f"{sequence}/{n}" + "x" * width for n in numbers])
            columns = [pa.array([n % 17 for n in numbers]), texts.dictionary_encode() if dictionary else texts]
            batch = pa.RecordBatch.from_arrays(columns, ["k", "text"])
            made += writer.add(batch, SplitPlace("in", str(sequence), sequence))
    return [*made, *writer.finish()]


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("most", [0, 20_000])
def test_rows_that_wait_on_a_disk_are_the_same(monkeypatch: pytest.MonkeyPatch, most: int, dictionary: bool) -> None:
    blocks = sent(400, 30, dictionary=dictionary)
    random.Random(7).shuffle(blocks)
    given = [delivery for _, delivery in deliveries(blocks, (), 1)]
    whole, ordered = grouped(blocks), list(in_order(blocks))
    monkeypatch.setattr(waiting, "HELD_BYTES", most)
    got = receive(given).blocks
    assert any(isinstance(block.rows, memoryview) for block in got)
    assert sum(len(block.rows) for block in got if not isinstance(block.rows, memoryview)) <= most
    assert grouped(got) == whole
    assert list(in_order(got)) == ordered


def test_memory_does_not_follow_what_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'missing'},{tmp_path}")
    monkeypatch.setattr(waiting, "HELD_BYTES", 4 << 20)

    def many() -> Iterator[Delivery]:
        for number in range(64):
            yield Delivery((), (Block("op", 0, 0, number, (("in", 0),), b"", bytes([number]) * (1 << 20), 1),))

    tracemalloc.start()
    try:
        received = receive(many())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [block.rows[-1] for block in received.blocks] == list(range(64))
    assert peak < 8 << 20, "of 64 MB"
    assert os.listdir(tmp_path) == [], "the file has no name"
