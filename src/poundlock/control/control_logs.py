"""A copy of the driver's log in its checkpoint folder, in pieces, for those who cannot reach the machine it runs on.

The newest piece is written again as it grows, until it is full; of all drivers together the newest few pieces are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from poundlock.storage import Storage

LOGS = "control/logs"
_PIECE = 256 << 10
_KEPT = 16


@dataclass
class LogCopy:
    """The driver's half; the pieces of a driver that started later come behind those of earlier ones."""

    path: Path
    started_ms: int
    _at: int = 0  # where the newest piece begins in the log
    _bytes: int = 0  # how much of the log that piece has
    _number: int = 0

    def bring(self, storage: Storage) -> None:
        """Copy what is new, up to its last whole line. Raises OSError."""
        from poundlock.control.control_files import put

        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            if size - self._at > _PIECE * _KEPT:  # more than is kept
                self._full(size - _PIECE * _KEPT)
            while True:
                file.seek(self._at)
                data = file.read(_PIECE)
                whole = data.rfind(b"\n") + 1
                if whole == 0 and len(data) == _PIECE:
                    whole = _PIECE  # a line longer than a piece
                if whole > self._bytes:
                    put(storage, f"{LOGS}/{self.started_ms:013d}-{self._number:08d}.log", data[:whole])
                    if self._bytes == 0:
                        for name in sorted(storage.names(LOGS))[:-_KEPT]:
                            storage.delete(f"{LOGS}/{name}")
                    self._bytes = whole
                if len(data) < _PIECE:
                    return
                self._full(self._at + whole)

    def _full(self, at: int) -> None:
        self._at, self._bytes, self._number = at, 0, self._number + 1


@dataclass
class CopiedLog:
    """The reader's half, of one checkpoint folder."""

    storage: Storage
    _name: str = ""
    _read: int = 0

    def new(self) -> bytes:
        """Return what came since the last call; at first, all that is kept. Raises OSError."""
        return b"".join(self._parts())

    def _parts(self) -> Iterable[bytes]:
        for name in sorted(self.storage.names(LOGS)):
            if not name.endswith(".log") or name.startswith(".") or name < self._name:
                continue
            if name > self._name:
                self._name, self._read = name, 0
            try:
                data = self.storage.read(f"{LOGS}/{name}")
            except FileNotFoundError:  # too old by now
                continue
            yield data[self._read :]
            self._read = max(self._read, len(data))


@dataclass
class LogFile:
    """A log of this machine."""

    path: Path
    _file: BinaryIO | None = None

    def new(self) -> bytes:
        """Return what came since the last call; at first, all of it. Raises OSError."""
        if self._file is None:
            self._file = self.path.open("rb")
        return self._file.read()
