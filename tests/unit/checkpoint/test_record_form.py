"""A record that says only what changed is read as if it said all, from whatever it stands behind."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.checkpoint.test_changes import part
from tests.unit.checkpoint.test_ledger import decision

from poundlock.checkpoint.decision import Decision, SinkDecision, SourceRange
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.ledger.record_form import BLOCK, LEAST_BYTES, raw_record
from poundlock.checkpoint.participant import JSON
from poundlock.errors import TerminalError
from poundlock.metrics.user_totals import UserMetrics
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
from poundlock.storage.json_record import of_format

PARTITIONS = 2000


class Files:
    """The state of a sink with many pending files: a checkpoint grows some, finishes some and begins some; a roll finishes some."""

    def __init__(self, chance: random.Random, count: int) -> None:
        self.random, self.begun = chance, count
        self.parts = [part(n) for n in range(count)]

    def next(self, occasion: str) -> JSON:
        if occasion in ("checkpoint", "roll", "end"):
            for place in self.random.sample(range(len(self.parts)), 2):
                self.parts[place : place + 1] = []
        if occasion == "checkpoint":
            for place in self.random.sample(range(len(self.parts)), 3):
                grown = self.parts[place]
                more = [*grown["segments"], {"path": f"s-{self.random.randrange(1000)}"}]
                self.parts[place] = {**grown, "rows": grown["rows"] + 1, "segments": more}
            self.parts += [part(n) for n in range(self.begun, self.begun + 3)]
            self.begun += 3
        return {"v": 1, "parts": list(self.parts), "closing": [f"c-{n}" for n in range(self.begun % 4)]}


class Job:
    """Decisions of a job that reads many partitions, of which few move.

    Args:
        files: pending ones of a sink, of which few change.
    """

    def __init__(self, seed: int = 1, files: int = 0) -> None:
        print("seed", seed)
        self.random = random.Random(seed)
        self.files = Files(self.random, files) if files else None
        self.number = -1
        self.offsets = dict.fromkeys(map(str, range(PARTITIONS)), 0)
        self.state = TimeState()

    def next(self, occasion: str = "checkpoint", moved: int = 5) -> Decision:
        self.number += 1
        each = replace(decision(self.number), occasion=occasion)
        if self.files is not None:
            each = replace(each, sinks={**each.sinks, "files": SinkDecision([], self.files.next(occasion))})
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


@pytest.mark.parametrize(("seed", "files"), [(0, 0), pytest.param(1, 0, marks=pytest.mark.slow), (2, 200)])
def test_records_come_back_as_they_were_in_any_order(storage: LocalStorage, seed: int, files: int) -> None:
    """Each driver begins with a start; rolls stand in between; the archive takes the old ones."""
    job, made = Job(seed, files), list[Decision]()
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


def pending(number: int, parts: list[JSON], occasion: str = "checkpoint", **more: Any) -> Decision:
    """Return a decision of a job with few partitions and a sink of pending files."""
    each = decision(number)
    sinks = {**each.sinks, "files": SinkDecision([], {"v": 1, "parts": parts, **more})}
    return replace(each, occasion=occasion, sinks=sinks, sources=each.sources if occasion == "checkpoint" else {})


def format_of(storage: LocalStorage, number: int) -> Any:
    return json.loads(storage.read(record_path(number)))["v"]


def test_a_record_is_as_large_as_what_changed_of_what_sinks_hold(storage: LocalStorage) -> None:
    ledger, parts, made = Ledger(storage), [part(n) for n in range(1000)], list[Decision]()
    for number in range(BLOCK + 2):
        parts[number] = part(number, rows=2)
        occasion = "roll" if number % 5 == 2 else "checkpoint"
        made.append(pending(number, list(parts), occasion))
        ledger.append(made[-1])
    sizes = [bytes_of(storage, number) for number in range(BLOCK + 2)]
    assert [number for number, size in enumerate(sizes) if size > LEAST_BYTES] == [0, BLOCK]
    assert max(size for size in sizes if size < LEAST_BYTES) < 1200, "some of it is what each record says"
    assert list(Ledger(storage)) == made
    ledger.append(pending(BLOCK + 2, [], "end"))
    assert bytes_of(storage, BLOCK + 2) < 1200
    assert Ledger(storage).newest() == pending(BLOCK + 2, [], "end")


def test_positions_go_by_rolls_that_say_none(storage: LocalStorage) -> None:
    """One roll says a change, one has to be whole; the records after both are small."""
    job, ledger, made = Job(files=200), Ledger(storage), list[Decision]()
    for occasion in ("checkpoint", "roll", "checkpoint", "roll", "checkpoint", "end", "start"):
        made.append(job.next(occasion))
        if len(made) == 4:
            finished = SinkDecision([part(n) for n in range(3000)], {"v": 1, "parts": []})
            made[-1] = replace(made[-1], sinks={**made[-1].sinks, "files": finished})
        ledger.append(made[-1])
    assert [format_of(storage, number) for number in range(len(made))] == [1, 2, 2, 1, 2, 2, 2]
    assert json.loads(storage.read(record_path(2)))["since"] == 1
    assert json.loads(storage.read(record_path(4)))["since"] == 2, "which says where sources stand"
    assert list(Ledger(storage)) == made


def test_a_block_may_begin_with_a_roll(storage: LocalStorage) -> None:
    ledger, parts = Ledger(storage), [part(n) for n in range(300)]
    made = [pending(number, parts[number:], "checkpoint" if number == 1 else "roll") for number in range(3)]
    for each in made:
        ledger.append(each)
    assert [format_of(storage, number) for number in range(3)] == [1, 2, 2]
    assert list(Ledger(storage)) == made


def test_a_state_that_its_sink_changes_later_is_written_as_it_was(storage: LocalStorage) -> None:
    ledger, parts = Ledger(storage), [part(n) for n in range(300)]
    ledger.append(pending(0, parts))
    parts[0]["rows"] = 2
    parts.append(part(300))
    ledger.append(pending(1, parts))
    assert format_of(storage, 1) == 2
    assert Ledger(storage).newest() == pending(1, parts)


@pytest.mark.parametrize("odd", [1 << 70, True, 1.0])
def test_values_that_python_takes_for_others_are_kept_apart(storage: LocalStorage, odd: Any) -> None:
    ledger, parts = Ledger(storage), [part(n) for n in range(300)]
    ledger.append(pending(0, [*parts, part(300, segments=[{"n": 1}])], n=1))
    ledger.append(pending(1, [*parts, part(300, segments=[{"n": odd}])], n=odd))
    newest = Ledger(storage).newest()
    assert newest is not None
    state = newest.sinks["files"].state
    assert json.dumps([state["parts"][-1]["segments"][0]["n"], state["n"]]) == json.dumps([odd, odd])


def test_a_record_may_name_states_itself_beside_what_moved(storage: LocalStorage) -> None:
    """As those were written that said only what moved of sources."""
    job, ledger, made = Job(files=200), Ledger(storage), list[Decision]()
    for number in range(3):
        made.append(job.next())
        ledger.append(made[-1])
        if number > 0:
            raw = raw_record(storage.read(record_path(number)))
            sinks = made[-1].to_json()["sinks"]
            lists = [each for each in raw["change"]["lists"] if each["path"][0] != "states"]
            assert len(lists) < len(raw["change"]["lists"])
            storage.replace(
                record_path(number),
                json.dumps({**raw, "sinks": sinks, "change": {**raw["change"], "lists": lists}}).encode(),
            )
    assert list(Ledger(storage)) == made


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
    good = raw_record(storage.read(path))
    for wrong, why in (
        ({**good, "since": 2}, "it says what changed since record 2"),
        ({**good, "change": {"gone": {"sources": {"s": {"end": {"u": None}}}}}}, "does not fit that record"),
        ({**good, "change": 7}, "it is not what it should be"),
        ({**good, "sinks": {**good["sinks"], "other": {"committables": []}}}, "does not fit that record"),
        ({**good, "v": 5}, "format 5 is not known to this version"),
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


@pytest.mark.parametrize("partitions", [True, False], ids=["changes", "whole"])
def test_a_version_that_does_not_know_metrics_refuses_their_records(storage: LocalStorage, partitions: bool) -> None:
    """It would go on without what they add up to, and nobody would know."""
    job, ledger = Job(), Ledger(storage)
    made = [job.next() if partitions else decision(number) for number in range(4)]
    made[2:] = [replace(each, metrics=UserMetrics(counters={"map": {"rows": each.number}})) for each in made[2:]]
    for each in made:
        ledger.append(each)
    assert list(Ledger(storage)) == made
    written = [json.loads(storage.read(record_path(number)))["v"] for number in range(4)]
    assert written == ([1, 2, 4, 4] if partitions else [1, 1, 3, 3])
    for number in range(4):
        value = json.loads(storage.read(record_path(number)))
        if number < 2:
            of_format(value, value["v"])
        else:  # as versions before did it
            with pytest.raises(ValueError, match="is not known to this version"):
                of_format(value, 2 if value["v"] == 2 else 1)


def test_metrics_in_a_record_of_the_first_format_are_read(storage: LocalStorage) -> None:
    """Versions wrote them so before they had a format of their own."""
    each = replace(decision(0), metrics=UserMetrics(counters={"map": {"rows": 7}}))
    value = {**each.to_json(), "v": 1}
    assert raw_record(json.dumps(value).encode()) == value
    assert Decision.from_json(value) == each


@pytest.mark.parametrize("format", [5, 0, None, "1"])
def test_a_format_that_is_not_known_is_refused(format: object) -> None:
    with pytest.raises(ValueError, match="is not known to this version"):
        raw_record(json.dumps({**decision(0).to_json(), "v": format}).encode())
