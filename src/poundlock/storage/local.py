"""A folder of the local file system as a storage; what is mounted there works as far as it keeps POSIX promises.

What a method returns from is durable: content, name, and every folder that was made on the way.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO, ClassVar, cast

from poundlock.storage.base import Entry, check_below, temporary_beside

_NOREPLACE = 1  # linux/fs.h RENAME_NOREPLACE
_AT_FDCWD = -100
_NO_SUCH_CALL = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
_NO_LINKS = (*_NO_SUCH_CALL, errno.EPERM, errno.EMLINK)
_NO_KERNEL_COPY = (*_NO_SUCH_CALL, errno.EPERM, errno.EXDEV, errno.EBADF)
_COPY_STEP, _MEMORY_STEP = 1 << 30, 1 << 20  # bytes


class WrongLength(OSError):
    """A file is shorter or longer than whoever wrote it left it."""

    def __init__(self, path: str, seen: int, expected: int) -> None:
        super().__init__(errno.EIO, f"it has {seen} bytes instead of {expected}", path)


class _WholeWrites(io.FileIO):
    """A raw file that never writes short: on a nearly full disk the rest is tried again, and then it raises."""

    def write(self, data: object, /) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            done += super().write(view[done:]) or 0
        return done


@dataclass(frozen=True)
class LocalStorage:
    """Files below one local folder. A method without a docstring is as `Storage` says."""

    root: str  # the folder, absolute. It is made when the first file is written.
    moves_by_copy: ClassVar[bool] = False
    refused_in_names: ClassVar[str] = ""
    client_s: ClassVar[float] = 0.0

    def create_exclusive(self, path: str, data: bytes) -> bool:
        target = self._at(path)
        with _beside(target, lambda handle: handle.write(data)) as temporary:
            return _publish(temporary, target)

    def replace(self, path: str, data: bytes) -> None:
        target = self._at(path)
        if not os.path.lexists(target):
            raise FileNotFoundError(target)
        with _beside(target, lambda handle: handle.write(data)) as temporary:
            os.replace(temporary, target)

    def write(self, path: str) -> BinaryIO:
        """Open a new file, unbuffered: hand it large pieces. Raises FileExistsError if the name is taken."""
        return cast(BinaryIO, _create(self._at(path)))

    def sync(self, handle: BinaryIO) -> None:
        handle.flush()
        os.fsync(handle.fileno())
        sync_folder(os.path.dirname(handle.name))

    def settle(self, path: str) -> None:
        target = self._at(path)
        with io.FileIO(target) as handle:
            os.fsync(handle.fileno())
        sync_folder(os.path.dirname(target))

    def read(self, path: str) -> bytes:
        with io.FileIO(self._at(path)) as handle:
            return handle.readall()

    def open(self, path: str) -> BinaryIO:
        """Open for reading, unbuffered. Raises FileNotFoundError."""
        return cast(BinaryIO, io.FileIO(self._at(path)))

    def stat(self, path: str) -> Entry | None:
        try:
            status = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _entry(path, status) if modes.S_ISREG(status.st_mode) else None  # who opens a pipe waits for its writer

    def rename(self, source: str, target: str) -> None:
        """Move a file to a new name, durably. Raises FileExistsError or FileNotFoundError.

        Atomic where the kernel can rename without replacing; elsewhere a crash may leave both names on one content.
        """
        old, new = self._at(source), self._at(target)
        move(old, new)
        for folder in {os.path.dirname(new), os.path.dirname(old)}:
            sync_folder(folder)

    def concat(self, sources: Sequence[str], target: str) -> None:
        sized = [(source, os.stat(self._at(source)).st_size) for source in sources]
        with _beside(self._at(target), lambda handle: self._copy_all(sized, handle, 0)) as temporary:
            _rename_exclusive(temporary, self._at(target))

    def extend(self, path: str, size: int, sources: Sequence[tuple[str, int]]) -> None:
        """Write the content of other files behind that of a file, durably; they stay.

        The same bytes come to the same places whoever does it, and however often: what an attempt that died has left behind the first
        `size` bytes is written over. A file that has other names too is replaced by one that is made of all of them, so that those keep what
        they have, and so is one of another user, which may be replaced and not written to. Such a one is whole when it takes the name: who
        does the same at this time may be about to give it another.

        Args:
            path: of the file.
            size: bytes that are its own.
            sources: the others in order, and how many bytes of each.

        Raises:
            FileNotFoundError: one of them is not there.
            WrongLength: one of them has fewer bytes, or the file more than it will have.
        """
        target = self._at(path)
        status, whole = os.stat(target), size + sum(count for _, count in sources)
        if not size <= status.st_size <= whole:
            raise WrongLength(target, status.st_size, size if status.st_size < size else whole)
        if status.st_nlink > 1 or not _may_write(target):
            with io.FileIO(target) as held, _beside(target, lambda made: self._join(held, size, sources, made)) as own:
                os.replace(own, target)
            return
        with io.FileIO(target, "r+") as handle:
            self._copy_all(sources, handle, size)
            os.fsync(handle.fileno())

    def _join(self, first: io.FileIO, size: int, sources: Sequence[tuple[str, int]], made: io.FileIO) -> None:
        _copy(first, made, 0, size)
        self._copy_all(sources, made, size)

    def delete(self, path: str) -> bool:
        try:
            os.unlink(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self, folder: str) -> Sequence[str]:
        try:
            return os.listdir(self._at(folder))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every file below a folder, hidden ones too, in any order. Links to folders are not followed."""
        pending = [(self._at(prefix) if prefix else self.root, prefix.strip("/"))]
        while pending:
            folder, relative = pending.pop()
            try:
                items = os.scandir(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            with items:
                for item in items:
                    path = f"{relative}/{item.name}" if relative else item.name
                    if item.is_dir(follow_symlinks=False):
                        pending.append((item.path, path))
                        continue
                    with suppress(FileNotFoundError):  # gone since it was listed
                        status = item.stat()
                        if modes.S_ISREG(status.st_mode):
                            yield _entry(path, status)

    def remove_folders(self, path: str = "") -> None:
        for folder, _, _ in os.walk(os.path.join(self.root, path), topdown=False):
            with suppress(OSError):
                os.rmdir(folder)

    def _copy_all(self, sources: Sequence[tuple[str, int]], target: io.FileIO, place: int) -> None:
        """Copy the first bytes of some files, so many of each, one behind the other to a place in another."""
        for source, count in sources:
            with io.FileIO(self._at(source)) as part:
                _copy(part, target, place, count)
            place += count

    def _at(self, path: str) -> str:
        return os.path.join(self.root, check_below(path, self.root))


def _entry(path: str, status: os.stat_result) -> Entry:
    return Entry(path=path, bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _may_write(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


@contextmanager
def _beside(target: str, fill: Callable[[io.FileIO], object]) -> Iterator[str]:
    """Make a temporary file, whole and durable, for a block that gives it the target's name; that is durable then, too."""
    temporary = temporary_beside(target)
    try:
        with _create(temporary) as handle:
            fill(handle)
            os.fsync(handle.fileno())
        yield temporary
        sync_folder(os.path.dirname(target))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _create(path: str) -> _WholeWrites:
    try:
        return _WholeWrites(path, "x")
    except FileNotFoundError:
        _make_folder(os.path.dirname(path))
        return _WholeWrites(path, "x")


def _make_folder(folder: str) -> None:
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for made in reversed(missing):
        with suppress(FileExistsError):  # another task made it meanwhile; if it is a file, opening below it says so
            os.mkdir(made)
        sync_folder(os.path.dirname(made))


def move(old: str, new: str) -> None:
    """Give a file another name, whose folder is made where it is missing; nothing is synced. Raises FileExistsError or FileNotFoundError."""
    try:
        _rename_exclusive(old, new)
    except FileNotFoundError:
        if not os.path.lexists(old):
            raise
        _make_folder(os.path.dirname(new))
        _rename_exclusive(old, new)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable, on mounts that can."""
    handle = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.EBADF,
        ):  # some network mounts cannot; they keep names in order anyway
            raise
    finally:
        os.close(handle)


def _publish(temporary: str, target: str) -> bool:
    """Give a complete temporary file its name; return False if the name is taken."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        # A repeated request over NFS reports our own link as taken; two links to the file say that it is ours.
        return os.stat(temporary).st_nlink == 2
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            _rename_exclusive(temporary, target)
        except FileExistsError:
            return False
    return True


def _rename_exclusive(source: str, target: str) -> None:
    call = _c_function()
    if call and not call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _NOREPLACE):
        return
    code = ctypes.get_errno() if call else errno.ENOSYS
    if code not in _NO_SUCH_CALL:
        raise OSError(code, os.strerror(code), source, None, target)
    os.link(source, target)
    os.unlink(source)


@cache
def _c_function() -> Callable[..., int] | None:
    """Return renameat2, None where the C library does not have it."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    return cast("Callable[..., int]", call)


def _copy(source: io.FileIO, target: io.FileIO, place: int, count: int) -> None:
    """Copy the first bytes of a file to a place in another, within the kernel where it can, else through memory.

    Raises WrongLength where the source has fewer.
    """
    done, in_kernel = 0, hasattr(os, "copy_file_range")
    while done < count:
        copied = _copied_in_kernel(source, target, place, done, count) if in_kernel else None
        if copied is None:
            in_kernel = False
            piece = os.pread(source.fileno(), min(count - done, _MEMORY_STEP), done)
            copied = os.pwrite(target.fileno(), piece, place + done) if piece else 0
        if not copied and in_kernel:
            in_kernel = False  # some file systems copy nothing so: only reading tells that a file ends
            continue
        if not copied:
            raise WrongLength(source.name, done, count)
        done += copied


def _copied_in_kernel(source: io.FileIO, target: io.FileIO, place: int, done: int, count: int) -> int | None:
    """Return how many bytes the kernel copied, None where it cannot."""
    try:
        return os.copy_file_range(
            source.fileno(), target.fileno(), min(count - done, _COPY_STEP), offset_src=done, offset_dst=place + done
        )
    except OSError as error:
        if error.errno not in _NO_KERNEL_COPY:
            raise
        return None
