"""The ledger: one file per decision, numbered from 0 without gaps, each written once and never changed.

Whoever creates record L+1 has read record L and finished committing it; a second writer of the same number loses. Old records are
archived, a thousand to a compressed file, so that the ledger's folder stays small however long a job runs. They never change, so a
file made of them can be made twice, by anyone, at any time; a record is deleted only once the file that has it is durable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.archive import Archive, restoring
from poundlock.checkpoint.ledger.record_form import BLOCK, RecordReader, RecordWriter, raw_record
from poundlock.checkpoint.participant import JSON
from poundlock.errors import CommitUnknown, FencedError, TerminalError
from poundlock.storage.base import OutcomeUnknown, Storage
from poundlock.storage.json_record import read_record

FOLDER = "ledger"
PER_FILE = 1000  # records of an archive file
_NAME = re.compile(r"[0-9]{20}\.json")
_THREADS = 16  # of which each reads or deletes a record that is archived
T = TypeVar("T")


class Ledger:
    """The decisions of one job.

    Args:
        retention_ms: how long archived records are kept; None = for ever.
        per_file: records to an archive file, and how many stay outside at least.
    """

    def __init__(self, storage: Storage, *, retention_ms: int | None = None, per_file: int = PER_FILE) -> None:
        self._storage = storage
        self._archive, self._next = Archive(storage), restoring(storage)
        self._retention_ms = retention_ms
        self._per_file = per_file
        self._archived: int | None = (
            None  # the newest that is archived as far as this process knows; None = it has not looked
        )
        # A chain of changes never reaches over the beginning of an archive file: what the retention leaves can be read.
        self._writer = RecordWriter(math.gcd(BLOCK, per_file))
        self._reader = RecordReader(self._raw)

    def newest(self) -> Decision | None:
        """Return the newest decision, or None if there is none. Names are listed; one record is read.

        Raises:
            TerminalError: a record is missing among the others, or the newest cannot be read.
        """
        count = self._count()
        return self.read(count - 1) if count else None

    def read(self, number: int) -> Decision:
        """Return one decision.

        Raises:
            TerminalError: it is missing or damaged.
        """
        return self._read(number, lambda data: self._reader.decision(number, self._checked(number, raw_record(data))))

    def checkpoint_of(self, number: int) -> int:
        """Return the checkpoint of one decision, without what it takes to know the rest of it.

        Raises:
            TerminalError: it is missing or damaged.
        """
        return int(self._raw(number)["checkpoint"])

    def _raw(self, number: int) -> JSON:
        return self._read(number, lambda data: self._checked(number, raw_record(data)))

    def _checked(self, number: int, raw: JSON) -> JSON:
        if (holds := raw.get("number")) != number and isinstance(holds, int):
            raise TerminalError(f"{self._where(record_path(number))} holds record {holds}", next=self._next)
        if not isinstance(raw.get("checkpoint"), int):
            raise ValueError("it has no checkpoint")
        return raw

    def _read(self, number: int, parse: Callable[[bytes], T]) -> T:
        """Return what a record says, wherever it is."""
        path, value = record_path(number), None
        # What the archive has is the truth: a driver that slept for very long may have made a file of that number since.
        if self._archived is None:
            self._archived = self._archive.last()
        if number > self._archived:
            value = read_record(self._storage, path, parse, next=self._next)
            if value is None:
                self._archived = self._archive.last()
        value = self._archive.read(number, parse) if value is None else value
        if value is None:
            raise TerminalError(f"{self._where(path)} is missing from the ledger", next=self._next)
        return value

    def append(self, decision: Decision) -> None:
        """Record a decision durably. When this returns it is decided; on any error but CommitUnknown it is not.

        Raises:
            FencedError: the number is taken by another driver's decision.
            CommitUnknown: the storage failed and leaves open whether the decision stands; nothing may be aborted.
            OSError: the storage failed, and the decision was not recorded.
        """
        self._write(decision)
        self._writer.stands()
        self._reader.forget()
        if decision.number % self._per_file == 0:
            with suppress(OSError):  # it is tried again later; the decision stands
                self._compact(decision)

    def _compact(self, newest: Decision) -> None:
        """Archive what is older than the newest `per_file` records, in whole files, and forget what is older than the retention."""
        numbers = sorted(self._numbers())
        archived = self._archive.last()
        old = [number for number in numbers if number <= newest.number - self._per_file]
        todo = [number for number in old if number > archived]
        # A checkpoint waits for it, and a store may take 20 ms for each of a thousand records.
        with ThreadPoolExecutor(_THREADS, "poundlock-archive") as pool:
            while len(todo) >= self._per_file:
                part, todo = todo[: self._per_file], todo[self._per_file :]
                self._archive.add(dict(zip(part, pool.map(self._storage.read, map(record_path, part)), strict=True)))
                archived = part[-1]
            self._archived = archived
            for _ in pool.map(self._storage.delete, [record_path(number) for number in old if number <= archived]):
                pass
        if self._retention_ms is not None:
            self._archive.forget(newest.time_ms - self._retention_ms)

    def _write(self, decision: Decision) -> None:
        path = record_path(decision.number)
        data = self._writer.record(decision)
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

    def damaged(self) -> list[str]:
        """Return what is wrong with each file that is damaged, oldest first. All records are read. Raises TerminalError: one is missing."""
        wrong: dict[str, None] = {}  # an archive file is named once
        for number in range(self.first(), self._count()):
            try:
                self._raw(number)
            except TerminalError as error:
                wrong[error.what] = None
        return list(wrong)

    def first(self) -> int:
        """Return the number of the oldest decision that is kept: 0, unless the archive has forgotten some."""
        archived = [first for first, _ in self._archive.files()]
        return min(archived or self._numbers(), default=0)

    def first_of(self, checkpoint: int, newest: Decision) -> int:
        """Return the number of the first record of a checkpoint or of a later one, at most that of the newest.

        Checkpoint numbers never fall, and for the most part rise with those of records. The search begins where it would be if
        all did, and goes on in growing steps and then by halves: a long ledger takes about as many reads as a short one.
        """
        low, high = self.first(), newest.number
        at, step = max(low, min(high - 1, high - (newest.checkpoint - checkpoint))), 1
        forward = low < high and self.checkpoint_of(at) < checkpoint
        low, high = (at + 1, high) if forward else (low, min(at, high))
        while low < high:
            at = min(low + step, high - 1) if forward else max(high - step, low)
            before, step = self.checkpoint_of(at) < checkpoint, 4 * step
            low, high = (at + 1, high) if before else (low, at)
            if before != forward:
                break
        while low < high:
            at = (low + high) // 2
            low, high = (at + 1, high) if self.checkpoint_of(at) < checkpoint else (low, at)
        return low

    def back(self, newest: Decision) -> Iterator[Decision]:
        """Yield a decision and those before it, newest first, reading them one by one."""
        yield newest
        first = self.first()
        for number in range(newest.number - 1, first - 1, -1):
            yield self.read(number)

    def _count(self) -> int:
        # What the archive has forgotten is missing at the front only.
        archived = self._archive.files()
        self._archived = max((last for _, last in archived), default=-1)
        count = archived[0][0] if archived else 0
        # Leftovers of interrupted writes have other names.
        for first, last in [*archived, *((number, number) for number in sorted(self._numbers()))]:
            if first > count:
                raise TerminalError(f"{self._where(record_path(count))} is missing from the ledger", next=self._next)
            count = max(count, last + 1)
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


def record_path(number: int) -> str:
    """Return where a record is kept, below the job's checkpoint folder."""
    return f"{FOLDER}/{number:020d}.json"


def _mark_path(number: int) -> str:
    return f"carried-out/{number:020d}"
