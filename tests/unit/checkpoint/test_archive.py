"""Old records move into the archive, whatever happens on the way, and the ledger reads as before."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.unit.checkpoint.test_ledger import decision

from poundlock.checkpoint.ledger.archive import Archive
from poundlock.checkpoint.ledger.ledger import Ledger, record_path
from poundlock.errors import TerminalError
from poundlock.storage import LocalStorage

PER_FILE = 10


def filled(storage: LocalStorage, count: int, **options: int) -> Ledger:
    ledger = Ledger(storage, per_file=PER_FILE, **options)
    for number in range(count):
        ledger.append(decision(number))
    return ledger


def outside(storage: LocalStorage) -> list[int]:
    return sorted(int(name[:20]) for name in storage.names("ledger"))


def test_the_folder_stays_small_and_every_record_is_read_as_before(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    ledger = filled(storage, 57)
    assert outside(storage) == list(range(40, 57))
    assert Archive(storage).files() == [(0, 9), (10, 19), (20, 29), (30, 39)]
    for reader in (ledger, Ledger(storage)):
        assert list(reader) == [decision(number) for number in range(57)]
        assert [record.number for record in reader.back(decision(56))] == list(range(56, -1, -1))
        assert reader.newest() == decision(56)


def test_a_reader_that_was_open_before_finds_what_was_archived_since(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    writer = filled(storage, 12)
    reader = Ledger(storage, per_file=PER_FILE)
    for number in range(12, 40):
        writer.append(decision(number))
    assert reader.read(3) == decision(3)


def test_what_is_older_than_the_retention_is_forgotten(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    ledger = Ledger(storage, per_file=PER_FILE, retention_ms=15)
    for number in range(61):
        ledger.append(decision(number, time_ms=number))
    assert ledger.first() == 40
    assert [record.number for record in ledger] == list(range(40, 61))
    assert [record.number for record in Ledger(storage).back(ledger.read(60))] == list(range(60, 39, -1))


def test_a_job_that_rested_longer_than_the_retention_still_knows_where_its_ledger_begins(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    ledger = Ledger(storage, per_file=PER_FILE, retention_ms=15)
    for number in range(40):
        ledger.append(decision(number, time_ms=number))
    for number in range(40, 61):
        ledger.append(decision(number, time_ms=1_000_000 + number))
    newest = Ledger(storage).newest()
    assert newest is not None
    assert newest.number == 60
    assert [record.number for record in ledger] == list(range(ledger.first(), 61))


def test_a_retention_shorter_than_what_stays_outside_leaves_a_ledger_that_can_be_read(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    ledger = Ledger(storage, per_file=PER_FILE, retention_ms=1)
    for number in range(61):
        ledger.append(decision(number, time_ms=number))
        assert Ledger(storage, per_file=PER_FILE).newest() == decision(number, time_ms=number)
    assert Archive(storage).files() == [(40, 49)]
    storage.delete(record_path(55))
    with pytest.raises(TerminalError, match=r"55\.json is missing"):
        Ledger(storage).newest()


class Broken(LocalStorage):
    """Fails at the n-th change of the archive or deletion of a record."""

    left = -1

    def create_exclusive(self, path: str, data: bytes) -> bool:
        self._count(path.startswith("ledger-archive"))
        return super().create_exclusive(path, data)

    def delete(self, path: str) -> None:
        self._count(True)
        super().delete(path)

    def _count(self, counts: bool) -> None:
        if counts and self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise OSError("no more")


@pytest.mark.parametrize("left", range(26))
def test_archiving_may_break_off_anywhere(tmp_path: Path, left: int) -> None:
    storage = Broken(str(tmp_path))
    ledger = filled(storage, 20)
    storage.left = left
    for number in range(20, 33):
        ledger.append(decision(number))
    storage.left = -1
    assert list(Ledger(storage)) == [decision(number) for number in range(33)]
    for number in range(33, 41):
        ledger.append(decision(number))
    assert outside(storage) == list(range(30, 41))
    assert list(Ledger(storage)) == [decision(number) for number in range(41)]


def test_a_file_that_comes_after_its_number_was_archived_is_not_believed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    filled(storage, 40)
    storage.create_exclusive(record_path(5), b'{"made by": "a driver that slept"}')
    assert Ledger(storage).read(5) == decision(5)
    assert len(list(Ledger(storage))) == 40


def test_a_gap_is_told_with_an_archive_too(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    filled(storage, 40)
    storage.delete(record_path(33))
    with pytest.raises(TerminalError, match=r"33\.json is missing"):
        Ledger(storage).newest()


def test_a_damaged_file_of_the_archive_is_said_by_its_name(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    filled(storage, 30)
    path = tmp_path / "ledger-archive" / f"{0:020d}-{9:020d}.jsonl.gz"
    for data, why in ((b"x", "no file of gzip's"), (path.read_bytes()[:-20], "no file of gzip's")):
        path.write_bytes(data)
        with pytest.raises(TerminalError, match=r"-0{19}9\.jsonl\.gz cannot be read: it is " + why):
            Ledger(storage, per_file=PER_FILE).read(3)
    path.write_bytes(gzip.compress(b"[]\n" * 10))
    with pytest.raises(TerminalError, match=r"-0{19}9\.jsonl\.gz cannot be read: it is no JSON object"):
        Ledger(storage, per_file=PER_FILE).read(3)
    path.unlink()
    path.mkdir()
    with pytest.raises(TerminalError, match=r"-0{19}9\.jsonl\.gz cannot be read: it is a folder"):
        Ledger(storage, per_file=PER_FILE).read(3)
