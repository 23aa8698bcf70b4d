"""The archive of a ledger: records that are not among the newest, in compressed files of many, each made once and never changed."""

from __future__ import annotations

import gzip
import re
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from poundlock.checkpoint.ledger.record_form import raw_record
from poundlock.storage.base import Storage
from poundlock.storage.json_record import naming, read_record

T = TypeVar("T")
_ARCHIVE = "ledger-archive"
_ARCHIVED = re.compile(r"([0-9]{20})-([0-9]{20})\.jsonl\.gz")


class Archive:
    """The archived records of one job."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._held: Sequence[
            bytes
        ] = ()  # the records of the file that was read last, which begins with number `_first`
        self._first = 0
        self._path = ""
        self._next = restoring(storage)

    def files(self) -> list[tuple[int, int]]:
        """Return the first and last record number of each file, in order. Overlaps are possible and harmless."""
        matches = (_ARCHIVED.fullmatch(name) for name in self._storage.names(_ARCHIVE))
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def last(self) -> int:
        """Return the newest archived record's number, -1 if there is none."""
        return max((last for _, last in self.files()), default=-1)

    def read(self, number: int, parse: Callable[[bytes], T]) -> T | None:
        """Return what a record says, None if it is not in the archive.

        Args:
            parse: makes it of the record's bytes; raises ValueError where they are damaged.

        Raises:
            TerminalError: it is damaged.
        """
        if not self._first <= number < self._first + len(self._held):
            # Readers go from record to record: the folder is looked at once for each file.
            for first, last in self.files():
                if first <= number <= last:
                    path = _archive_path(first, last)
                    lines = read_record(self._storage, path, partial(_lines, count=last + 1 - first), next=self._next)
                    self._held, self._first, self._path = lines or (), first, path
                    break
            else:
                return None
        if not self._held:
            return None
        line = self._held[number - self._first]
        return naming(f"{self._storage.root}/{self._path}", lambda: parse(line), next=self._next)

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
            newest = self.read(last, raw_record)
            if newest is None or newest["time_ms"] >= before_ms:
                return
            self._held = ()
            with suppress(OSError):
                self._storage.delete(_archive_path(first, last))


def restoring(storage: Storage) -> str:
    """Return what to do about a file of the ledger that is damaged or missing."""
    look = f"poundlock fsck {shlex.quote(storage.root)} names all such files"
    return f"restore the file from a backup, without it nobody can know what was committed; {look}"


def _lines(data: bytes, count: int) -> Sequence[bytes]:
    try:
        lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error):
        raise ValueError("it is no file of gzip's, or the beginning of one") from None
    if len(lines) != count:
        raise ValueError(f"it has {len(lines)} records instead of {count}")
    return lines


def _archive_path(first: int, last: int) -> str:
    return f"{_ARCHIVE}/{first:020d}-{last:020d}.jsonl.gz"
