"""A record that says only what moved is read as if it said all, from whatever it stands behind."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.checkpoint.test_ledger import decision

from poundlock.checkpoint.decision import Decision, SourceRange
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.ledger.record_form import BLOCK, LEAST_BYTES
from poundlock.errors import TerminalError
from poundlock.operators.time_values import (
    DECIDED_FORMAT,
    DecidedTime,
    PartitionTime,
    SourceInput,
    SourceTime,
    TimeDirective,
    TimeState,
)
from poundlock.storage import LocalStorage

PARTITIONS = 2000


class Job:
    """Decisions of a job that reads many partitions, of which few move."""

    def __init__(self, seed: int = 1) -> None:
        print("seed", seed)
        self.random = random.Random(seed)
        self.number = -1
        self.offsets = dict.fromkeys(map(str, range(PARTITIONS)), 0)
        self.state = TimeState()

    def next(self, occasion: str = "checkpoint", moved: int = 5) -> Decision:
        self.number += 1
        each = replace(decision(self.number), occasion=occasion)
        if occasion in ("roll", "end"):
            return replace(each, sources={}, watermarks=None)
        start, before = {"t": dict(self.offsets)}, self.state
        partitions = dict(before.sources["time"]["s"].partitions) if before.sources else {}
        for place in self.random.sample(sorted(self.offsets), moved if occasion == "checkpoint" else 0):
            self.offsets[place] += self.random.randint(1, 9)
            idle = self.random.random() < 0.3
            partitions[f"t-{place}"] = PartitionTime(self.number, idle, self.number if idle else None)
        if self.random.random() < 0.2:
            self.offsets[str(len(self.offsets))] = 0
        names = tuple(f"t-{place}" for place in self.offsets)
        self.state = TimeState(clock=self.number, sources={"time": {"s": SourceTime(1, partitions=partitions)}})
        directive = TimeDirective(before, self.number, {"s": SourceInput(names)})
        times = DecidedTime(v=DECIDED_FORMAT, watermark=self.number, state=self.state, directive=directive)
        return replace(each, sources={"s": SourceRange(start, {"t": dict(self.offsets)})}, watermarks=times)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def bytes_of(storage: LocalStorage, number: int) -> int:
    entry = storage.stat(record_path(number))
    assert entry is not None
    return entry.bytes


@pytest.mark.parametrize("seed", range(3))
def test_records_come_back_as_they_were_in_any_order(storage: LocalStorage, seed: int) -> None:
    """Each driver begins with a start; rolls stand in between; the archive takes the old ones."""
    job, made = Job(seed), list[Decision]()
    for _ in range(3):
        ledger = Ledger(storage, per_file=25)
        for occasion in ("start", *["checkpoint"] * 9, "roll", "roll", *["checkpoint"] * 13):
            made.append(job.next(occasion))
            ledger.append(made[-1])
            assert ledger.newest() == made[-1]
    assert list(Ledger(storage)) == made
    newest = made[-1]
    assert list(Ledger(storage).back(newest)) == made[::-1]
    reader = Ledger(storage)
    for number in job.random.sample(range(len(made)), 20):
        assert reader.read(number) == made[number]


def test_a_record_is_as_large_as_what_moved(storage: LocalStorage) -> None:
    job, ledger = Job(), Ledger(storage)
    for _ in range(BLOCK + 2):
        ledger.append(job.next())
    sizes = [bytes_of(storage, number) for number in range(BLOCK + 2)]
    assert sizes[0] > 3 * LEAST_BYTES
    assert max(sizes[1:BLOCK]) < 4000, "some of it is what a record says of sinks"
    assert sizes[BLOCK] > sizes[0], "the first of a block is whole"
    assert sizes[BLOCK + 1] < 4000
    ledger.append(job.next(moved=PARTITIONS))
    assert json.loads(storage.read(record_path(BLOCK + 2)))["v"] == 1, "where most of it moved it is whole"


def test_small_records_are_whole(storage: LocalStorage) -> None:
    ledger = Ledger(storage)
    for number in range(9):
        ledger.append(decision(number))
        assert json.loads(storage.read(record_path(number)))["v"] == 1


def test_what_the_retention_leaves_needs_nothing_that_it_took(storage: LocalStorage) -> None:
    job, ledger, made = Job(), Ledger(storage, per_file=10, retention_ms=12), list[Decision]()
    for _ in range(75):
        made.append(replace(job.next(), time_ms=job.number))
        ledger.append(made[-1])
    first = Ledger(storage).first()
    assert first > 0
    assert list(Ledger(storage)) == made[first:]


def test_a_record_that_builds_on_a_damaged_one_is_refused_by_name(storage: LocalStorage) -> None:
    job, ledger = Job(), Ledger(storage)
    for _ in range(4):
        ledger.append(job.next())
    path = record_path(2)
    good = json.loads(storage.read(path))
    for wrong, why in (
        ({**good, "since": 2}, "it says what changed since record 2"),
        ({**good, "change": {"gone": {"sources": {"s": {"end": {"u": None}}}}}}, "does not fit that record"),
        ({**good, "change": 7}, "it is not what it should be"),
        ({**good, "v": 3}, "format 3 is not known to this version"),
    ):
        storage.replace(path, json.dumps(wrong).encode())
        with pytest.raises(TerminalError, match=rf"00000000000000000002\.json cannot be read: .*{why}|{why}"):
            Ledger(storage).newest()
    storage.delete(path)
    with pytest.raises(TerminalError, match=r"00000000000000000002\.json is missing"):
        Ledger(storage).newest()


def test_the_newest_is_found_with_few_reads(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    job, ledger, reads = Job(), Ledger(storage), list[str]()
    for _ in range(2 * BLOCK):
        ledger.append(job.next())
    real = LocalStorage.read
    monkeypatch.setattr(LocalStorage, "read", lambda self, path: reads.append(path) or real(self, path))
    newest = Ledger(storage).newest()
    assert newest is not None
    assert len(reads) == BLOCK
    reader = Ledger(storage)
    reads.clear()
    for _ in zip(range(BLOCK), reader.back(newest), strict=False):
        pass
    assert len(reads) <= 2 * BLOCK, "whoever reads back reads each record about once"
