"""A file system in memory whose processes can die, stall or be refused at any single operation.

Files live in `Disk` and survive; a `MortalStorage` is one process's way to them, with a fault to come.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from poundlock.storage.base import Entry

T = TypeVar("T")


class Death(BaseException):
    """The process is gone. Not an Exception: no clean-up of the code under test runs after a SIGKILL."""


@dataclass
class Disk:
    """What survives."""

    files: dict[str, bytes] = field(default_factory=dict)
    temporaries: int = 0


@dataclass
class Fault:
    """What happens at the `countdown`-th changing operation of a process.

    `kind`: "die_before", "die_within" (leaves a temporary file), "die_after", "full_before" (ENOSPC, nothing done),
    "broken_after" (EIO although it was done), "stall" (another process takes over, then this one goes on).
    """

    kind: str
    countdown: int
    stalled: Callable[[], None] = lambda: None


class MortalStorage:
    """One process's view of a disk."""

    moves_by_copy = True  # so that it has to prove that a name is given once

    def __init__(self, disk: Disk, fault: Fault | None = None) -> None:
        self.disk = disk
        self.fault = fault
        self.dead = False

    @property
    def root(self) -> str:
        return "memory"

    def create_exclusive(self, path: str, data: bytes) -> bool:
        return self._change(path, lambda: self._new(path, data))

    def replace(self, path: str, data: bytes) -> None:
        def put() -> None:
            self.read(path)
            self.disk.files[path] = data

        self._change(path, put)

    def write(self, path: str) -> BinaryIO:
        raise NotImplementedError("the model writes whole files")

    def sync(self, handle: BinaryIO) -> None:
        raise NotImplementedError("the model writes whole files")

    def settle(self, path: str) -> None:
        self.read(path)

    def read(self, path: str) -> bytes:
        self._alive()
        if path not in self.disk.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.disk.files[path]

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def stat(self, path: str) -> Entry | None:
        self._alive()
        found = self.disk.files.get(path)
        return None if found is None else Entry(path, len(found), 0)

    def rename(self, source: str, target: str) -> None:
        def move() -> None:
            self.read(source)
            if target in self.disk.files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            self.disk.files[target] = self.disk.files.pop(source)

        self._change(target, move)

    def concat(self, sources: Sequence[str], target: str) -> None:
        def join() -> None:
            if not self._new(target, b"".join(self.read(source) for source in sources)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)

        self._change(target, join)

    def delete(self, path: str) -> bool:
        return self._change(path, lambda: self.disk.files.pop(path, None) is not None)

    def names(self, folder: str) -> Sequence[str]:
        return [entry.path.removeprefix(f"{folder}/") for entry in self.list(folder)]

    def list(self, prefix: str = "") -> Iterator[Entry]:
        self._alive()
        for path, data in list(self.disk.files.items()):
            if not prefix or path.startswith(prefix.rstrip("/") + "/"):
                yield Entry(path, len(data), 0)

    def _new(self, path: str, data: bytes) -> bool:
        if path in self.disk.files:
            return False
        self.disk.files[path] = data
        return True

    def _alive(self) -> None:
        if self.dead:
            raise Death

    def _change(self, path: str, do: Callable[[], T]) -> T:
        self._alive()
        fault = self.fault
        if fault is None:
            return do()
        fault.countdown -= 1
        if fault.countdown != 0:
            return do()
        if fault.kind == "stall":
            self.fault = None
            fault.stalled()
            return do()
        if fault.kind == "full_before":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if fault.kind == "broken_after":
            do()
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if fault.kind == "die_within":
            folder, _, name = path.rpartition("/")
            self.disk.temporaries += 1
            self.disk.files[f"{folder}/.tmp-{self.disk.temporaries:032x}-{name}"] = b"cut off"
        if fault.kind == "die_after":
            do()
        self.dead = True
        raise Death
