"""Bytes of a checkpoint: how many offsets are planned where records are wide, become wide, or nothing is known of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.kafka.offsets import Offsets, Partition
from poundlock.connectors.kafka.source.admission import share
from poundlock.connectors.kafka.source.byte_limit import ByteLimit

GB, MB, KB = 1 << 30, 1 << 20, 1 << 10
A, B = ("a", 0), ("b", 0)


@dataclass
class Log:
    """Partitions whose records have the width that a function says, read from checkpoint to checkpoint."""

    ends: dict[Partition, int]
    width: Callable[[Partition, int], int]
    records: int | None = 2_000_000
    bytes: int | None = 2 * GB
    answers: bool = True
    looks: int = 0
    at: Offsets = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = self.at or dict.fromkeys(self.ends, 0)
        self.limit = ByteLimit(self.records, self.bytes, self.look)

    def look(self, place: Partition, offset: int) -> float | None:
        assert self.at[place] <= offset < self.ends[place], "what is looked at would be read"
        self.looks += 1
        return float(self.width(place, offset)) if self.answers else None

    def checkpoint(self) -> tuple[int, int]:
        """Plan and read one; return how many offsets it has, and about how many bytes."""
        waiting = {place: end - self.at[place] for place, end in self.ends.items() if end > self.at[place]}
        given_ = self.limit.share(waiting, self.at)
        sizes = []
        for place, count in given_.items():
            step = max(count // 1_000, 1)  # of each of a thousand stretches its middle stands for it
            offsets = range(self.at[place], self.at[place] + count, step)
            size = sum(self.width(place, offset) for offset in offsets) * count // max(len(offsets), 1)
            if count:
                sizes.append((place, count, size))
            self.at[place] += count
        self.limit.measured(sizes)
        return sum(given_.values()), sum(size for _, _, size in sizes)


def test_wide_records_are_bounded_from_the_first_checkpoint_on() -> None:
    log = Log({("t", n): 1_000_000 for n in range(4)}, lambda *_: MB)
    for _ in range(5):
        offsets, size = log.checkpoint()
        assert 1 * GB < size <= 2 * GB
        assert offsets > 1_000
    assert log.looks < 100


def test_without_the_limit_they_are_not() -> None:
    log = Log({("t", 0): 3_000_000}, lambda *_: MB, bytes=None)
    assert log.checkpoint() == (2_000_000, 2_000_000 * MB)
    assert log.looks == 0


def test_narrow_records_are_planned_as_without_it() -> None:
    log = Log({("t", n): 3_000_000 for n in range(4)}, lambda *_: 200)
    assert log.checkpoint()[0] == 2_000_000
    first = log.looks
    assert first <= 2
    for _ in range(5):
        assert log.checkpoint()[0] == 2_000_000 or log.at == log.ends
    assert log.looks - first <= 5, "one a checkpoint"


def test_few_records_are_not_looked_at() -> None:
    log = Log({A: 20}, lambda *_: 200)
    assert log.checkpoint()[0] == 20
    for _ in range(100):
        log.ends[A] += 2_000
        assert log.checkpoint()[0] == 2_000
    assert log.looks == 0


def test_records_that_become_wide_are_seen_before_they_are_read() -> None:
    """A million narrow ones, then wide ones for good: neither of them is read too slowly, or too much of them at once."""
    log = Log({A: 4_000_000}, lambda _, offset: MB if offset >= 1_000_000 else 100)
    sizes, before = [], 0
    while log.at[A] < 1_010_000:
        sizes.append(log.checkpoint()[1])
        before += log.at[A] <= 1_000_000
    assert before <= 12
    assert max(sizes) <= 4 * GB


def test_partitions_have_widths_of_their_own() -> None:
    log = Log({A: 1_000_000, B: 1_000_000}, lambda place, _: 500 * KB if place == B else 100)
    for _ in range(3):
        _, size = log.checkpoint()
        assert size <= 2.5 * GB


def test_what_became_narrow_is_read_faster_again() -> None:
    log = Log({A: 5_000_000}, lambda _, offset: 100 if offset >= 4_000 else MB)
    counts = [log.checkpoint()[0] for _ in range(20) if log.at[A] < log.ends[A]]
    assert counts[0] < 5_000
    assert counts.index(2_000_000) <= 7


def test_one_record_larger_than_the_limit_is_read() -> None:
    log = Log({A: 3}, lambda *_: 5 * GB)
    log.limit.measured([(A, 1, 5 * GB)])
    assert [log.checkpoint()[0] for _ in range(3)] == [1, 1, 1]


def test_a_broker_that_does_not_answer_makes_it_careful() -> None:
    log = Log({A: 3_000_000}, lambda *_: 100, answers=False)
    assert log.checkpoint()[0] == 2_048
    assert log.checkpoint()[0] == 2_000_000, "what was read tells"


@pytest.mark.parametrize("topics", [1, 200])
def test_what_is_remembered_and_asked_does_not_grow(topics: int) -> None:
    log = Log({(f"t{n}", p): 10_000_000 for n in range(topics) for p in range(10)}, lambda *_: 100)
    log.checkpoint()
    before, looks = len(pickle.dumps((log.limit._widths, log.limit._widest))), log.looks
    for _ in range(4):
        log.checkpoint()
    assert len(pickle.dumps((log.limit._widths, log.limit._widest))) == before
    assert looks <= 16
    assert log.looks - looks <= 4


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9)),
        st.tuples(st.integers(1, 10**7), st.sampled_from([10, 1_000, 100_000, 10**6])),
        min_size=1,
    ),
    st.integers(1, 10**10),
    st.none() | st.integers(1, 10**6),
)
def test_any_backlog_is_read_to_its_end(
    places: dict[Partition, tuple[int, int]], most: int, records: int | None
) -> None:
    log = Log({p: end for p, (end, _) in places.items()}, lambda place, _: places[place][1], records, most)
    log.limit.measured((place, 1, width) for place, (_, width) in places.items())
    offsets, size = log.checkpoint()
    assert 0 < offsets <= (records or offsets)
    assert size <= most or offsets == 1
    waiting = {p: end for p, (end, _) in places.items()}
    whole = share(waiting, records)
    if sum(whole.values()) * max(width for _, width in places.values()) <= most:
        assert offsets == sum(whole.values()), "what fits is not cut"
