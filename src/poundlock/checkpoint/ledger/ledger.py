"""The ledger: one file per decision, numbered from 0 without gaps, each written once and never changed.

Whoever creates record L+1 has read record L and finished committing it; a second writer of the same number loses. Old records are
archived, a thousand to a compressed file, so that the ledger's folder stays small however long a job runs. They never change, so a
file made of them can be made twice, by anyone, at any time; a record is deleted only once the file that has it is durable.

A record says of large states what changed, so that its size is that of its checkpoint; see `record_file`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.record_file import WHOLE_EVERY, Appended, LedgerRecord
from poundlock.errors import CommitUnknown, FencedError, TerminalError
from poundlock.storage.base import OutcomeUnknown, Storage
from poundlock.storage.json_record import read_record

FOLDER = "ledger"
PER_FILE = 1000  # records of an archive file
_NAME = re.compile(r"[0-9]{20}\.json")
_ARCHIVE = "ledger-archive"
_ARCHIVED = re.compile(r"([0-9]{20})-([0-9]{20})\.jsonl\.gz")


class Ledger:
    """The decisions of one job.

    Args:
        retention_ms: how long archived records are kept; None = for ever.
        per_file: records to an archive file, and how many stay outside at least.
    """

    def __init__(self, storage: Storage, *, retention_ms: int | None = None, per_file: int = PER_FILE) -> None:
        self._storage = storage
        self._archive = Archive(storage)
        self._retention_ms = retention_ms
        self._per_file = per_file
        self._archived = self._archive.last()  # as far as this process knows
        self._written: Appended | None = None  # what this process appended last
        self._read = dict[int, Decision]()  # the newest of what was read for the sake of a later record

    def newest(self) -> Decision | None:
        """Return the newest decision, or None if there is none. Names are listed; one record is read.

        Raises:
            TerminalError: a record is missing among the others, or the newest cannot be read.
        """
        count = self._count()
        return self.read(count - 1) if count else None

    def read(self, number: int) -> Decision:
        """Return one decision. Raises TerminalError: it is missing or damaged."""
        chain = [self._record(number)]
        while chain[-1].changes and chain[-1].decision.number - 1 not in self._read:
            chain.append(self._record(chain[-1].decision.number - 1))
        for record in reversed(chain):
            decision = self._whole(record)
            if record.changes or len(chain) > 1:
                self._read[decision.number] = decision
        self._read = dict(list(self._read.items())[-WHOLE_EVERY:])
        return decision

    def _whole(self, record: LedgerRecord) -> Decision:
        if not record.changes:
            return record.decision
        number = record.decision.number
        try:
            return record.behind(self._read[number - 1])
        except ValueError as error:
            raise TerminalError(f"{self._where(record_path(number))} cannot be read: {error}", next=_RESTORE) from None

    def _record(self, number: int) -> LedgerRecord:
        path, record = record_path(number), None
        # What the archive has is the truth: a driver that slept for very long may have made a file of that number since.
        if number > self._archived:
            record = read_record(self._storage, path, LedgerRecord.of, next=_RESTORE)
            if record is None:
                self._archived = self._archive.last()
        record = self._archive.read(number) if record is None else record
        if record is None:
            raise TerminalError(f"{self._where(path)} is missing from the ledger", next=_RESTORE)
        if record.decision.number != number:
            raise TerminalError(f"{self._where(path)} holds record {record.decision.number}", next=_RESTORE)
        return record

    def append(self, decision: Decision) -> None:
        """Record a decision durably. When this returns it is decided; on any error but CommitUnknown it is not.

        Raises:
            FencedError: the number is taken by another driver's decision.
            CommitUnknown: the storage failed and leaves open whether the decision stands; nothing may be aborted.
            OSError: the storage failed, and the decision was not recorded.
        """
        number, before = decision.number, self._written
        whole = number % WHOLE_EVERY == 0 or number % self._per_file == 0 or decision.occasion == "start"
        follows = before is not None and before.decision.number == number - 1 and not whole
        written, data = Appended.of(decision, before if follows else None)
        self._write(number, data)
        self._written = written
        if decision.number % self._per_file == 0:
            with suppress(OSError):  # it is tried again later; the decision stands
                self._compact(decision)

    def _compact(self, newest: Decision) -> None:
        """Archive what is older than the newest `per_file` records, in whole files, and forget what is older than the retention."""
        numbers = sorted(self._numbers())
        archived = self._archive.last()
        old = [number for number in numbers if number <= newest.number - self._per_file]
        todo = [number for number in old if number > archived]
        while len(todo) >= self._per_file:
            part, todo = todo[: self._per_file], todo[self._per_file :]
            self._archive.add({number: self._storage.read(record_path(number)) for number in part})
            archived = part[-1]
        self._archived = archived
        for number in old:
            if number <= archived:
                self._storage.delete(record_path(number))
        if self._retention_ms is not None:
            self._archive.forget(newest.time_ms - self._retention_ms)

    def _write(self, number: int, data: bytes) -> None:
        path = record_path(number)
        try:
            if self._storage.create_exclusive(path, data):
                return
        except OSError as error:
            if not self._stands(path, data, error):
                raise
            return
        if not self._stands(path, data, None):
            self._lost(path)

    def mark_committed(self, number: int) -> None:
        """Note that everything a record names is visible, so that later starts need not look whether it still is there.

        Readers may move finished files away. The note is a help, not a truth: where it is lost or could not
        be written the record is carried out once more.
        """
        with suppress(OSError):
            self._storage.create_exclusive(_mark_path(number), b"")
            self._storage.delete(_mark_path(number - 1))

    def is_committed(self, number: int) -> bool:
        """Return whether it was noted that everything a record names is visible."""
        return self._storage.stat(_mark_path(number)) is not None

    def settle(self, number: int) -> None:
        """Make a record that another process left durable before anything is built on it."""
        self._storage.settle(record_path(number))

    def __iter__(self) -> Iterator[Decision]:
        """Yield every decision that is kept, oldest first, reading them one by one."""
        return self.since(self.first())

    def since(self, number: int) -> Iterator[Decision]:
        """Yield the decisions from a number on, oldest first, reading them one by one."""
        for n in range(number, self._count()):
            yield self.read(n)

    def first(self) -> int:
        """Return the number of the oldest decision that is kept: 0, unless the archive has forgotten some."""
        archived = [first for first, _ in self._archive.files()]
        return min(archived or self._numbers(), default=0)

    def back(self, newest: Decision) -> Iterator[Decision]:
        """Yield a decision and those before it, newest first, reading them one by one."""
        yield newest
        first = self.first()
        for number in range(newest.number - 1, first - 1, -1):
            yield self.read(number)

    def _count(self) -> int:
        # Leftovers of interrupted writes have other names.
        archived = self._archive.files()
        # What the archive has forgotten is missing at the front only.
        start = archived[0][0] if archived else 0
        numbers = {number for first, last in archived for number in range(first, last + 1)}
        numbers.update(number for number in self._numbers() if number >= start)
        count = max(numbers, default=-1) + 1
        gap = next((number for number in range(start, count) if number not in numbers), None)
        if gap is not None:
            raise TerminalError(f"{self._where(record_path(gap))} is missing from the ledger", next=_RESTORE)
        return count

    def _numbers(self) -> list[int]:
        return [int(name[:20]) for name in self._storage.names(FOLDER) if _NAME.fullmatch(name)]

    def _stands(self, path: str, data: bytes, cause: OSError | None) -> bool:
        """Return whether our own record is there after all, durably; epoch and time make its bytes ours alone."""
        try:
            there = self._storage.read(path)
            if there == data:
                self._storage.settle(path)
        except FileNotFoundError as error:
            if isinstance(cause, OutcomeUnknown):  # the request may still be on its way
                raise self._unknown(path, cause) from error
            return False
        except OSError as error:
            raise self._unknown(path, cause or error) from error
        if there != data:
            self._lost(path)
        return True

    def _unknown(self, path: str, cause: OSError) -> CommitUnknown:
        return CommitUnknown(
            f"whether {self._where(path)} was recorded is not known: {cause}",
            next="start the job again when the storage answers; it finds out and goes on",
        )

    def _lost(self, path: str) -> None:
        raise FencedError(
            f"{self._where(path)} was recorded by another driver of this job",
            next="let the other driver run, or stop it before starting this one",
        )

    def _where(self, path: str) -> str:
        return f"{self._storage.root}/{path}"


_RESTORE = "restore the file from a backup; without it nobody can know what was committed"


def record_path(number: int) -> str:
    """Return where a record is kept, below the job's checkpoint folder."""
    return f"{FOLDER}/{number:020d}.json"


def _mark_path(number: int) -> str:
    return f"carried-out/{number:020d}"


class Archive:
    """The archived records of one job."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._held: Mapping[int, LedgerRecord] = {}  # the records of the file that was read last

    def files(self) -> list[tuple[int, int]]:
        """Return the first and last record number of each file, in order. Overlaps are possible and harmless."""
        matches = (_ARCHIVED.fullmatch(name) for name in self._storage.names(_ARCHIVE))
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def last(self) -> int:
        """Return the newest archived record's number, -1 if there is none."""
        return max((last for _, last in self.files()), default=-1)

    def read(self, number: int) -> LedgerRecord | None:
        """Return a record, None if it is not in the archive. Raises TerminalError: it is damaged."""
        if number not in self._held:  # readers go from record to record: the folder is looked at once for each file
            for first, last in self.files():
                if first <= number <= last:
                    path = _archive_path(first, last)
                    self._held = read_record(self._storage, path, _unpacked, next=_RESTORE) or {}
                    break
        return self._held.get(number)

    def add(self, records: Mapping[int, bytes]) -> None:
        """Put records into one file. When this returns it is durable.

        Args:
            records: number to the record's bytes, a JSON object on one line; numbers without gaps.
        """
        first, last = min(records), max(records)
        lines = b"".join(records[number].rstrip(b"\n") + b"\n" for number in range(first, last + 1))
        path = _archive_path(first, last)
        if not self._storage.create_exclusive(path, gzip.compress(lines, 6, mtime=0)):
            self._storage.settle(path)  # another driver made it, of the same records

    def forget(self, before_ms: int) -> None:
        """Delete the files whose newest record is older, but for the last one, by which the ledger knows where it begins.

        What cannot be deleted now is deleted another time.
        """
        for first, last in self.files()[:-1]:
            newest = self.read(last)
            if newest is None or newest.decision.time_ms >= before_ms:
                return
            self._held = {}
            with suppress(OSError):
                self._storage.delete(_archive_path(first, last))


def _unpacked(data: bytes) -> Mapping[int, LedgerRecord]:
    try:
        lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error):
        raise ValueError("it is no file of gzip's, or the beginning of one") from None
    return {record.decision.number: record for record in map(LedgerRecord.of, lines)}


def _archive_path(first: int, last: int) -> str:
    return f"{_ARCHIVE}/{first:020d}-{last:020d}.jsonl.gz"
