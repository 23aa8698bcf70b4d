"""The ledger: gaps and damage are refused, interrupted writes are not decisions, and failures say whether it stands."""

from __future__ import annotations

import errno
import gzip
import json
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.decision import Decision, EventTime, Redo, SinkDecision, SourceRange
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.checkpoint.ledger.record_form import encoded, raw_record
from poundlock.checkpoint.ledger.records import checkpoint_records
from poundlock.checkpoint.participant import Counts
from poundlock.errors import CommitUnknown, DefinitionError, FencedError, TerminalError
from poundlock.storage import LocalStorage
from poundlock.storage.base import OutcomeUnknown

WROTE = Written.of(
    [{"rows": 2, "bytes": 9, "digest": "ffffffffffffffff", "min_ms": 5}, {"rows": 1, "bytes": 1, "digest": "02"}]
)


def decision(number: int, epoch: int = 1, time_ms: int = 5) -> Decision:
    return Decision(
        number=number,
        occasion="checkpoint",
        checkpoint=number,
        job_id="0" * 32,
        epoch=epoch,
        time_ms=time_ms,
        sources={"s": SourceRange({"t": {"0": number}}, {"t": {"0": number + 1}}, {"t": "id"}, 1)},
        sinks={"k": SinkDecision([{"v": 1, "path": "ä"}], {"v": 1}, Counts(read=1, written=1), WROTE)},
        durations_ms={"run": 3},
        started_ms=4,
        event_time=EventTime(min_ms=1, watermark_ms=2),
        tasks=3,
    )


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def test_records_come_back_as_they_were(storage: LocalStorage) -> None:
    ledger = Ledger(storage)
    assert ledger.newest() is None
    for number in range(3):
        ledger.append(decision(number))
    assert list(ledger) == [decision(number) for number in range(3)]
    assert ledger.newest() == decision(2)
    assert [record.number for record in ledger.back(decision(2))] == [2, 1, 0]


def test_records_of_an_older_version_are_read(storage: LocalStorage) -> None:
    old = decision(0).to_json()
    del (
        old["started_ms"],
        old["tasks"],
        old["event_time"],
        old["sinks"]["k"]["wrote"],
        old["sinks"]["k"]["counts"]["late"],
    )
    storage.create_exclusive(record_path(0), json.dumps(old).encode())
    (found,) = Ledger(storage)
    assert (found.started_ms, found.tasks, found.event_time, found.sinks["k"].wrote) == (None, None, None, None)
    assert found.sinks["k"].counts == Counts(read=1, written=1)


def test_what_was_written_adds_up_in_any_order() -> None:
    assert Written(pieces=2, rows=3, bytes=10, digest="0000000000000001", min_ms=5) == WROTE
    payloads = [{"rows": n, "bytes": n, "digest": f"{n:x}", "max_ms": n} for n in (3, 1, 2)]
    assert Written.of(payloads) == Written.of(sorted(payloads, key=str))
    assert Written.of([{"rows": 1}, {}]) == Written(pieces=2), "what one piece does not tell is not known"


def test_a_taken_number_fences(storage: LocalStorage) -> None:
    Ledger(storage).append(decision(0, epoch=2))
    with pytest.raises(FencedError, match="another driver"):
        Ledger(storage).append(decision(0, epoch=1))
    assert Ledger(storage).read(0).epoch == 2


def test_leftovers_of_interrupted_writes_are_no_records(storage: LocalStorage) -> None:
    ledger = Ledger(storage)
    ledger.append(decision(0))
    storage.create_exclusive(f"ledger/.tmp-00ff-{record_path(1).rpartition('/')[2]}", b'{"v": 1, "num')
    assert ledger.newest() == decision(0)
    ledger.append(decision(1))
    assert ledger.newest() == decision(1)


def test_the_newest_is_found_without_reading_the_others(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        Ledger(storage).append(decision(number))
    reads: list[str] = []
    real = LocalStorage.read

    def counted(self: LocalStorage, path: str) -> bytes:
        reads.append(path)
        return real(self, path)

    monkeypatch.setattr(LocalStorage, "read", counted)
    assert Ledger(storage).newest() == decision(19)
    assert reads == [record_path(19)]


def test_a_gap_is_refused_by_name(storage: LocalStorage) -> None:
    for number in range(4):
        Ledger(storage).append(decision(number))
    storage.delete(record_path(1))
    with pytest.raises(TerminalError, match=r"00000000000000000001\.json is missing"):
        Ledger(storage).newest()


@pytest.mark.parametrize(
    "content", [b"", b'{"v": 1', b"[]", b'{"v": 99}', b'{"v": 1, "number": 0}', b"\xff\xfe"], ids=repr
)
def test_damage_is_refused_by_name(storage: LocalStorage, content: bytes) -> None:
    storage.create_exclusive(record_path(0), content)
    with pytest.raises(TerminalError, match=r"00000000000000000000\.json cannot be read"):
        Ledger(storage).newest()


def test_a_record_under_another_number_is_refused(storage: LocalStorage) -> None:
    Ledger(storage).append(decision(0))
    storage.rename(record_path(0), record_path(1))
    Ledger(storage).append(decision(0))
    with pytest.raises(TerminalError, match="holds record 0"):
        Ledger(storage).newest()


class Failing(LocalStorage):
    """Fails around the creation of a record."""

    how = ""

    def create_exclusive(self, path: str, data: bytes) -> bool:
        if self.how == "no answer":
            raise OutcomeUnknown(OSError(errno.EHOSTUNREACH, "the store does not answer"))
        if self.how != "before":
            super().create_exclusive(path, data)
        raise OSError(errno.EIO, "Input/output error")

    def settle(self, path: str) -> None:
        if self.how == "never settles":
            raise OSError(errno.EIO, "Input/output error")
        super().settle(path)


def failing(storage: LocalStorage, how: str) -> Failing:
    return type("Chosen", (Failing,), {"how": how})(storage.root)  # type: ignore[no-any-return]


def test_a_failure_that_recorded_nothing_is_passed_on(storage: LocalStorage) -> None:
    with pytest.raises(OSError, match="Input/output"):
        Ledger(failing(storage, "before")).append(decision(0))
    assert Ledger(storage).newest() is None


def test_a_record_that_may_still_be_on_its_way_is_not_known(storage: LocalStorage) -> None:
    with pytest.raises(CommitUnknown, match="the store does not answer"):
        Ledger(failing(storage, "no answer")).append(decision(0))
    storage.create_exclusive(record_path(0), b"another's")
    with pytest.raises(FencedError):
        Ledger(failing(storage, "no answer")).append(decision(0))


def test_a_failure_after_the_record_stands_is_a_decision(storage: LocalStorage) -> None:
    Ledger(failing(storage, "after")).append(decision(0))
    assert Ledger(storage).newest() == decision(0)


def test_a_record_that_cannot_be_made_durable_is_not_known(storage: LocalStorage) -> None:
    with pytest.raises(CommitUnknown, match="not known"):
        Ledger(failing(storage, "never settles")).append(decision(0))


def test_a_failure_that_finds_another_drivers_record_fences(storage: LocalStorage) -> None:
    Ledger(storage).append(replace(decision(0), epoch=7))
    with pytest.raises(FencedError):
        Ledger(failing(storage, "before")).append(decision(0))


def test_a_checkpoint_is_found_with_few_reads(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers have gaps; starts and rolls repeat the newest; one that was aborted from outside has a second record."""
    kinds = [("start", -1), ("checkpoint", 0), ("roll", 0), ("checkpoint", 2), ("checkpoint", 2), ("start", 2)]
    kinds += [("checkpoint", n) for n in range(3, 60)]
    for number, (occasion, checkpoint) in enumerate(kinds):
        redo = {"k": Redo((), ())} if number == 4 else {}
        Ledger(storage).append(replace(decision(number), occasion=occasion, checkpoint=checkpoint, redo=redo))
    ledger, reads = Ledger(storage), []
    read = ledger.read
    monkeypatch.setattr(ledger, "read", lambda number: reads.append(number) or read(number))
    assert [record.number for record in checkpoint_records(ledger, 0)] == [1]
    assert [record.number for record in checkpoint_records(ledger, 2)] == [3, 4]
    reads.clear()
    assert [record.number for record in checkpoint_records(ledger, 40)] == [43]
    assert len(reads) < 12
    for n, said in ((1, "the ledger has no checkpoint 1"), (60, "not decided: the ledger has 0 to 59 so far")):
        with pytest.raises(DefinitionError, match=said):
            checkpoint_records(ledger, n)


def test_a_checkpoint_that_the_retention_took_is_told(storage: LocalStorage) -> None:
    ledger = Ledger(storage, per_file=4, retention_ms=50)
    for number in range(17):
        ledger.append(decision(number, time_ms=number * 10))
    first = ledger.first()
    assert first > 0
    with pytest.raises(DefinitionError, match=f"no longer in the ledger, which begins with record {first}") as told:
        checkpoint_records(ledger, 0)
    assert "ledger_retention" in told.value.next
    assert [record.checkpoint for record in checkpoint_records(ledger, first)] == [first]


@given(steps=st.lists(st.sampled_from([0, 1, 1, 1, 1, 5]), min_size=1, max_size=60), wanted=st.integers(-2, 80))
def test_the_first_record_of_a_checkpoint_is_where_a_look_at_all_has_it(steps: list[int], wanted: int) -> None:
    checkpoints = [*accumulate(steps)]

    class Numbers(Ledger):
        def __init__(self) -> None: ...

        def first(self) -> int:
            return 0

        def checkpoint_of(self, number: int) -> int:
            return checkpoints[number]

    newest = replace(decision(len(steps) - 1), checkpoint=checkpoints[-1])
    last = len(steps) - 1
    expected = next((number for number, each in enumerate(checkpoints) if each >= wanted), last)
    assert Numbers().first_of(wanted, newest) == expected


@pytest.mark.parametrize("value", [{}, {"state": {"v": 1, "manifest": None}}, {"parallelism": 12}])
def test_no_changed_bit_of_a_record_is_believed(value: dict[str, object]) -> None:
    data = encoded({**decision(3).to_json(), **value})
    assert raw_record(data) == raw_record(data.rstrip()) == {**json.loads(json.dumps(decision(3).to_json())), **value}
    for bit in range(8 * (len(data) - 1)):  # behind the line's end nothing is said
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"."):
            raw_record(bytes(changed))


def test_a_changed_digit_of_a_position_is_found_wherever_the_record_is(storage: LocalStorage) -> None:
    ledger = Ledger(storage, per_file=5)
    for number in range(12):
        ledger.append(decision(number))
    assert not Ledger(storage).damaged()
    path = Path(storage.root, record_path(7))
    path.write_bytes(path.read_bytes().replace(b'"0":8', b'"0":9'))
    archived = Path(storage.root, f"ledger-archive/{0:020d}-{4:020d}.jsonl.gz")
    archived.write_bytes(gzip.compress(gzip.decompress(archived.read_bytes()).replace(b'"0":3', b'"0":2')))
    for number, file in ((7, path), (2, archived)):
        with pytest.raises(
            TerminalError, match=rf"{file.name} cannot be read: its checksum .*\nNext: .*poundlock fsck"
        ):
            Ledger(storage).read(number)
    assert [each.split(" cannot ")[0] for each in Ledger(storage).damaged()] == [str(archived), str(path)]
    assert Ledger(storage).read(8) == decision(8)


def test_records_of_before_have_no_checksum(storage: LocalStorage) -> None:
    storage.create_exclusive(record_path(0), json.dumps(decision(0).to_json()).encode() + b"\n")
    ledger = Ledger(storage)
    ledger.append(decision(1))
    assert list(ledger) == [decision(0), decision(1)]
    assert not ledger.damaged()
