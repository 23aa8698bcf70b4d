"""Old ledger records, a thousand to a compressed file, so that the ledger's folder stays small however long a job runs.

Records never change, so a file made of them can be made twice, by anyone, at any time; a record is deleted only once the file
that has it is durable.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from poundlock.storage.base import Storage

FOLDER = "ledger-archive"
PER_FILE = 1000
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.jsonl\.gz")


class Archive:
    """The archived records of one job."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._held: Mapping[int, Any] = {}  # the records of the file that was read last

    def files(self) -> list[tuple[int, int]]:
        """Return the first and last record number of each file, in order. Overlaps are possible and harmless."""
        matches = (_NAME.fullmatch(name) for name in self._storage.names(FOLDER))
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def last(self) -> int:
        """Return the newest archived record's number, -1 if there is none."""
        return max((last for _, last in self.files()), default=-1)

    def read(self, number: int) -> Any | None:
        """Return a record's JSON, None if it is not in the archive."""
        if number in self._held:  # readers go from record to record: the folder is looked at once for each file
            return self._held[number]
        for first, last in self.files():
            if first <= number <= last:
                data = gzip.decompress(self._storage.read(_path(first, last)))
                values = [json.loads(line) for line in data.splitlines()]
                self._held = {value["number"]: value for value in values}
                return self._held.get(number)
        return None

    def add(self, records: Mapping[int, bytes]) -> None:
        """Put records into one file. When this returns it is durable.

        Args:
            records: number to the record's bytes, a JSON object on one line; numbers without gaps.
        """
        first, last = min(records), max(records)
        lines = b"".join(records[number].rstrip(b"\n") + b"\n" for number in range(first, last + 1))
        path = _path(first, last)
        if not self._storage.create_exclusive(path, gzip.compress(lines, 6, mtime=0)):
            self._storage.settle(path)  # another driver made it, of the same records

    def forget(self, before_ms: int) -> None:
        """Delete the files whose newest record is older, but for the last one, by which the ledger knows where it begins.

        What cannot be deleted now is deleted another time.
        """
        for first, last in self.files()[:-1]:
            newest = self.read(last)
            if newest is None or newest["time_ms"] >= before_ms:
                return
            self._held = {}
            with suppress(OSError):
                self._storage.delete(_path(first, last))


def _path(first: int, last: int) -> str:
    return f"{FOLDER}/{first:020d}-{last:020d}.jsonl.gz"
