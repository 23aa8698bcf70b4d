"""State files: their names, how they are written, and how they are opened where they lie or from a local copy.

A name is never used twice, so a file of that name is either not there, or whole, or a leftover that nothing refers to. Copies are for
checkpoint directories that are not on a local file system: one is whole or not there, for it gets its name when its content was held
against the digest. Losing or damaging one costs a download; all worker processes of a host share a folder of them.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from poundlock.errors import TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.state.manifest import RunFile
from poundlock.state.runs.run import DamagedRunError, Run, damaged, difference, digest_of
from poundlock.storage import LocalStorage, open_storage
from poundlock.storage.base import Storage

FOLDER = "state"
_SUFFIX = ".arrow"
_TEMPORARY = ".tmp-"
_STEP = 8 << 20  # bytes that are copied or written at once
_KEPT_OPEN = 4096  # none of them takes a file handle


@dataclass(frozen=True)
class LocalCopies:
    """Copies in a local folder."""

    folder: str
    # about how many bytes of them are kept; the ones that were not used for the longest time go first
    limit: int = 16 << 30

    def path(self, storage: Storage, file: RunFile) -> str:
        """Return the path of a local copy, fetched if there is none.

        Raises:
            DamagedRunError: the file itself is missing or damaged.
            TransientError: it could not be read, or the local folder not be written.
        """
        path = self._at(file.name, file.digest)
        try:
            if os.stat(path).st_size == file.bytes and _digest(path) == file.digest:
                os.utime(path)
                return path
            os.unlink(path)  # cut short or damaged, as after a power failure; processes that have it open keep theirs
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _trouble(self.folder, error) from None
        self._fetch(storage, file, path)
        return path

    def keep(self, name: str, digest: str, data: memoryview) -> None:
        """Keep a copy of a file that this process has just written. If that fails it is fetched when it is needed."""
        with suppress(OSError):
            temporary = self._temporary()
            with open(temporary, "xb") as handle:
                handle.write(data)
            os.rename(temporary, self._at(name, digest))
            self._make_room()

    def _fetch(self, storage: Storage, file: RunFile, path: str) -> None:
        digest, size = hashlib.blake2b(digest_size=16), 0
        temporary = ""
        try:
            source = storage.open(file.name)
            with source:
                temporary = self._temporary()
                with open(temporary, "xb") as handle:
                    while piece := source.read(_STEP):
                        digest.update(piece)
                        handle.write(piece)
                        size += len(piece)
            if how := difference(file, size, digest.hexdigest()):
                raise damaged(file, how)
            os.rename(temporary, path)
            self._make_room(path)
        except FileNotFoundError as error:
            if temporary:  # the folder of copies went away meanwhile
                raise _trouble(self.folder, error) from None
            raise damaged(file, "is missing") from None
        except OSError as error:
            raise _trouble(f"{storage.root}/{file.name}", error) from None
        finally:
            if temporary:
                with suppress(OSError):
                    os.unlink(temporary)

    def _at(self, name: str, digest: str) -> str:
        # The digest is part of the name: a file of another job, or of a directory that was made again, is another copy.
        return os.path.join(self.folder, f"{digest}-{name.rpartition('/')[2]}")

    def _temporary(self) -> str:
        os.makedirs(self.folder, exist_ok=True)
        return os.path.join(self.folder, f"{_TEMPORARY}{uuid.uuid4().hex}")

    def _make_room(self, keep: str = "") -> None:
        """Delete what was not used for the longest time, until the rest is within the limit."""
        result: list[tuple[int, int, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    stat = entry.stat()
                    if not entry.name.startswith(_TEMPORARY):
                        result.append((stat.st_mtime_ns, stat.st_size, entry.path))
        total = sum(size for _, size, _ in result)
        for _, size, path in sorted(result):
            if total <= self.limit:
                return
            if path != keep:
                total -= size
                with suppress(OSError):
                    os.unlink(path)


def _digest(path: str) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _trouble(where: str, error: OSError) -> TransientError:
    return TransientError(
        f"{where}: {error.strerror or error}", next="see to the file system; the job goes on when it is restarted"
    )


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
        key = file.name, file.digest
        run = self._open.pop(key, None)
        if run is None:
            run = Run(file, self._path(file))
        elif self._copies is not None:
            with suppress(OSError):  # it may have been deleted to make room; who has it open keeps it
                os.utime(run.path)
        self._open[key] = run
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


@lru_cache(maxsize=8)
def run_files(checkpoint_dir: str) -> RunFiles:
    """Return the state files below a job's checkpoint folder; the same object at each call of a process.

    Args:
        checkpoint_dir: path or URL of the folder.
    """
    storage = open_storage(checkpoint_dir)
    copies = None
    if not isinstance(storage, LocalStorage):
        copies = LocalCopies(os.path.join(tempfile.gettempdir(), f"poundlock-{os.getuid()}", "state"))
    return RunFiles(storage, copies)
