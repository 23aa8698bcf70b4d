"""State files: their names, how they are written, and how they are opened where they lie or from a local copy.

A name is never used twice, so a file of that name is either not there, or whole, or a leftover that nothing refers to.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from poundlock.errors import TerminalError
from poundlock.failpoints import Failpoint, hit
from poundlock.state.manifest import RunFile
from poundlock.state.runs.local_copies import LocalCopies
from poundlock.state.runs.run import DamagedRunError, Run, digest_of
from poundlock.storage.base import Storage
from poundlock.storage.local import LocalStorage

FOLDER = "state"
_SUFFIX = ".arrow"
_STEP = 8 << 20
_KEPT_OPEN = 256


def run_name(job: str, epoch: int, checkpoint: int, first: int, attempt: str) -> str:
    """Return the path of a run below the checkpoint directory.

    Args:
        first: first key group of the task, -1 for broadcast state.
        attempt: a text that no other attempt has; letters, digits and dots.
    """
    whose = "broadcast" if first < 0 else f"g{first:05d}"
    return f"{FOLDER}/{job}/{checkpoint:012d}-{epoch:06d}-{whose}-{attempt}{_SUFFIX}"


def parse_name(name: str) -> tuple[int, int] | None:
    """Return checkpoint and epoch of a run's file name, None if it is no such name."""
    parts = name.rpartition("/")[2].split("-")
    if len(parts) < 4 or not name.endswith(_SUFFIX) or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    return int(parts[0]), int(parts[1])


class RunFiles:
    """The state files of a checkpoint directory.

    Args:
        copies: local copies, for a directory that is not local; without them such a directory's files are refused.
    """

    def __init__(self, storage: Storage, copies: LocalCopies | None = None) -> None:
        self._storage = storage
        self._copies = copies
        self._open: OrderedDict[tuple[str, str], Run] = OrderedDict()  # the latest used; a run never changes

    def open(self, file: RunFile) -> Run:
        """Return the run of a file.

        Raises:
            DamagedRunError: it is missing or damaged.
            TerminalError: the directory is not local and there is no folder for copies.
        """
        path = self._path(file)
        key = path, file.digest
        self._open[key] = run = self._open.pop(key) if key in self._open else Run(file, path)
        while len(self._open) > _KEPT_OPEN:
            self._open.popitem(last=False)
        return run

    def open_all(self, files: Iterable[RunFile], operators: Mapping[int, str]) -> dict[int, Run]:
        """Return runs by their ids; raises as `open`, and says whose state it is."""
        result: dict[int, Run] = {}
        for file in files:
            try:
                result[file.id] = self.open(file)
            except DamagedRunError as error:
                whose = ", ".join(sorted(operators.values())) or "none"
                raise DamagedRunError(f"{error.what}; operators with state: {whose}", next=error.next) from None
        return result

    def _path(self, file: RunFile) -> str:
        if isinstance(self._storage, LocalStorage):
            return os.path.join(self._storage.root, file.name)
        if self._copies is None:
            raise TerminalError(
                f"{self._storage.root} is not a local folder, and there is none for copies of its state files",
                next="report this as a bug",
            )
        return self._copies.path(self._storage, file)

    @property
    def folder(self) -> str | None:
        """A local folder with room for what is written, None if none is known."""
        if isinstance(self._storage, LocalStorage):
            return self._storage.root
        return None if self._copies is None else self._copies.folder

    def write(self, name: str, data: Any) -> tuple[str, int]:
        """Write a new file durably; return its digest and length. The name makes it this attempt's alone.

        Raises:
            OSError: the storage failed.
        """
        view = memoryview(data)
        handle = self._storage.write(name)
        try:
            half = len(view) // 2
            _write(handle, view[:half])
            hit(Failpoint.STATE_WRITING)
            _write(handle, view[half:])
            self._storage.sync(handle)
        finally:
            handle.close()
        digest = digest_of(view)
        if self._copies is not None and not isinstance(self._storage, LocalStorage):
            self._copies.keep(name, digest, view)
        return digest, len(view)


def _write(handle: BinaryIO, view: memoryview) -> None:
    for start in range(0, len(view), _STEP):  # what goes to a store is copied piece by piece
        handle.write(view[start : start + _STEP])
