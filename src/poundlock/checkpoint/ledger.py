"""The ledger: one file per decision, numbered from 0 without gaps, each written once and never changed.

Whoever creates record L+1 has read record L and finished committing it; a second writer of the same number loses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress

from poundlock.checkpoint.decision import Decision
from poundlock.errors import CommitUnknown, FencedError, TerminalError
from poundlock.storage.base import Storage

__all__ = ["FOLDER", "Ledger"]

FOLDER = "ledger"
_NAME = re.compile(r"[0-9]{20}\.json")


class Ledger:
    """The decisions of one job.

    Args:
        storage: the job's checkpoint folder.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

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
        path = record_path(number)
        try:
            decision = Decision.from_json(json.loads(self._storage.read(path)))
        except FileNotFoundError:
            raise TerminalError(f"{self._where(path)} is missing from the ledger", next=_RESTORE) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
            raise TerminalError(f"{self._where(path)} cannot be read: {reason}", next=_RESTORE) from None
        if decision.number != number:
            raise TerminalError(f"{self._where(path)} holds record {decision.number}", next=_RESTORE)
        return decision

    def append(self, decision: Decision) -> None:
        """Record a decision durably. When this returns it is decided; on any error but CommitUnknown it is not.

        Raises:
            FencedError: the number is taken by another driver's decision.
            CommitUnknown: the storage failed and leaves open whether the decision stands; nothing may be aborted.
            OSError: the storage failed, and the decision was not recorded.
        """
        path = record_path(decision.number)
        data = json.dumps(decision.to_json(), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        try:
            if self._storage.create_exclusive(path, data):
                return
        except OSError as error:
            if not self._stands(path, data, error):
                raise
            return
        if not self._stands(path, data, None):
            self._lost(path)

    def mark_carried_out(self, number: int) -> None:
        """Note that everything a record names is visible, so that later starts need not look whether it still is there.

        Readers may move finished files away. The note is a help, not a truth: where it is lost or could not
        be written the record is carried out once more.
        """
        with suppress(OSError):
            self._storage.create_exclusive(_mark_path(number), b"")
            self._storage.delete(_mark_path(number - 1))

    def is_carried_out(self, number: int) -> bool:
        """Return whether it was noted that everything a record names is visible."""
        return self._storage.stat(_mark_path(number)) is not None

    def settle(self, number: int) -> None:
        """Make a record that another process left durable before anything is built on it."""
        self._storage.settle(record_path(number))

    def __iter__(self) -> Iterator[Decision]:
        """Yield every decision, oldest first, reading them one by one."""
        for number in range(self._count()):
            yield self.read(number)

    def back(self, newest: Decision) -> Iterator[Decision]:
        """Yield a decision and those before it, newest first, reading them one by one."""
        yield newest
        for number in range(newest.number - 1, -1, -1):
            yield self.read(number)

    def _count(self) -> int:
        # Leftovers of interrupted writes have other names.
        names = {name for name in self._storage.names(FOLDER) if _NAME.fullmatch(name)}
        count = len(names)
        if names and int(max(names)[:20]) != count - 1:
            gap = next(number for number in range(count + 1) if record_path(number).rpartition("/")[2] not in names)
            raise TerminalError(f"{self._where(record_path(gap))} is missing from the ledger", next=_RESTORE)
        return count

    def _stands(self, path: str, data: bytes, cause: OSError | None) -> bool:
        """Return whether our own record is there after all, durably; epoch and time make its bytes ours alone."""
        try:
            there = self._storage.read(path)
            if there == data:
                self._storage.settle(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CommitUnknown(
                f"whether {self._where(path)} was recorded is not known: {cause or error}",
                next="start the job again when the storage answers; it finds out and goes on",
            ) from error
        if there != data:
            self._lost(path)
        return True

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
