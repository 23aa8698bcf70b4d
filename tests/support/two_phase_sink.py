"""The two-phase sink of the textbook: one temporary file per transaction, moved into the target folder on commit.

A user could write it so; it is complete, survives crashes, and warns when a commit came close to the timeout.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from poundlock.checkpoint.committer import timeout_warning
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Kind,
    Occasion,
    Orphan,
    Prepared,
    Staged,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.errors import TerminalError, TransientError
from poundlock.formats.chunk import Chunk, Lines
from poundlock.storage import Storage
from poundlock.values import Clock


class TempFileWriter:
    """One transaction: a temporary file that nobody reads."""

    def __init__(self, storage: Storage, path: str, begun_ms: int) -> None:
        self._storage, self._path, self._begun_ms = storage, path, begun_ms
        self._handle: BinaryIO = storage.write(path)
        self._rows = 0
        self.storage_fails = False

    def write(self, chunk: Chunk) -> int:
        assert isinstance(chunk, Lines)
        if self.storage_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        self._handle.write(chunk.data)
        self._rows += len(chunk)
        return len(chunk)

    def prepare(self) -> Sequence[JSON]:
        self._storage.sync(self._handle)
        self._handle.close()
        return [{"v": 1, "temp": self._path, "rows": self._rows, "begun_ms": self._begun_ms}]

    def abandon(self) -> None:
        self._handle.close()
        self._storage.delete(self._path)


@dataclass
class TempFileSink:
    """Rows go to `temp/<attempt>` and, when their checkpoint is decided, to `target/<attempt>`.

    Args:
        storage: the folder of both.
        clock: the time of commits.
        timeout_ms: how long a transaction may be open; None = for ever.
        warn_ratio: share of the timeout from which a commit warns.
        warn: takes the warnings.
    """

    storage: Storage
    clock: Clock
    timeout_ms: int | None = None
    warn_ratio: float = 1.0
    warn: Callable[[str], None] = lambda warning: None
    kind: Kind = field(default=Kind.TRANSACTIONAL)

    def open_writer(self, context: WriterContext) -> Writer:
        return TempFileWriter(self.storage, f"temp/{context.attempt}", self.clock.now_ms())

    def directive(self, state: JSON) -> JSON:
        return {}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        for item in prepared:
            if self.storage.stat(item.payload["temp"]) is None:
                raise TransientError(f"transaction {item.payload['temp']} is gone")

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        return Staged({"v": 1, "pending": []}, [item.payload for item in prepared])

    def next_roll_ms(self, state: JSON) -> int | None:
        return None

    def commit(self, committable: JSON) -> Committed | Aborted:
        temporary = committable["temp"]
        target = "target/" + temporary.removeprefix("temp/")
        if self.timeout_ms is not None:
            warning = timeout_warning(
                begun_ms=committable["begun_ms"],
                now_ms=self.clock.now_ms(),
                timeout_ms=self.timeout_ms,
                ratio=self.warn_ratio,
            )
            if warning is not None:
                self.warn(warning)
        try:
            self.storage.rename(temporary, target)
        except FileNotFoundError:
            if self.storage.stat(target) is None:
                raise TerminalError(f"{temporary} is neither there nor committed") from None
        except FileExistsError:  # a crash between the two halves of a move
            self.storage.delete(temporary)
        return Committed({"path": target})

    def abort(self, prepared: Prepared) -> None:
        self.storage.delete(prepared.payload["temp"])

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        found = [Orphan(entry.path, entry.bytes, entry.modified_ms) for entry in self.storage.list("temp")]
        if remove:
            check()
            for orphan in found:
                self.storage.delete(orphan.path)
        return found
