"""A folder of an HDFS cluster as a storage, through hdfs-native: no JVM, so that a task can use it as well as the driver.

A file that a writer leaves without closing may become visible short, so every name that decides something is given by a
rename without overwrite of a file that was closed. hdfs-native says most failures as one RuntimeError with the Java class in its text;
no such error leaves `translated`.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from shutil import copyfileobj
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar, cast

from poundlock.errors import DefinitionError, required
from poundlock.storage.at_once import at_once
from poundlock.storage.base import Entry, OutcomeUnknown, check_below, temporary_beside
from poundlock.storage.object_files import ObjectReader
from poundlock.threads import has_ended, in_thread

if TYPE_CHECKING:
    from hdfs_native import Client


_T = TypeVar("_T")
_BLOCK = 1 << 20
_OPEN, _AHEAD = 100, 8 << 20  # so many files that are joined are open at once, and so many bytes of them are read ahead
LONGEST_S = 120.0  # for one call: twice what the client waits for a datanode
_AWAY = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
_REFUSED = (errno.EACCES, errno.EDQUOT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)
# How long a call waits for a single namenode that is away, 17 s in all: a restart of it goes by unnoticed, and what is
# there no more is reported before anybody thinks that the job hangs. By default it would be three minutes. Of a nameservice
# with several namenodes the cluster's own settings say it.
_PATIENCE = {
    "dfs.client.failover.max.attempts": "10",
    "dfs.client.failover.sleep.base.millis": "500",
    "dfs.client.failover.sleep.max.millis": "2000",
}


# By the class of the exception that the namenode answered with. None as a text = the system's own.
_ANSWERS: dict[str, tuple[int, str | None]] = {
    "AccessControlException": (errno.EACCES, None),
    "NSQuotaExceededException": (errno.EDQUOT, "the quota of names is used up"),
    "DSQuotaExceededException": (errno.EDQUOT, "the quota of space is used up"),
    "QuotaByStorageTypeExceededException": (errno.EDQUOT, "the quota of space is used up"),
    "QuotaExceededException": (errno.EDQUOT, "the quota is used up"),
    "SafeModeException": (errno.EAGAIN, "the namenode is in safe mode"),
    "RetriableException": (errno.EAGAIN, "the namenode is starting"),
    "StandbyException": (errno.EAGAIN, "the namenode is on standby"),
    "FileNotFoundException": (errno.ENOENT, None),
    "LeaseExpiredException": (errno.ENOENT, "the file was taken away, or taken over, while it was written"),
    "FileAlreadyExistsException": (errno.EEXIST, None),
    "AlreadyBeingCreatedException": (errno.EEXIST, None),
    "ParentNotDirectoryException": (errno.ENOTDIR, None),
    "PathIsNotDirectoryException": (errno.ENOTDIR, None),
    "PathIsNotEmptyDirectoryException": (errno.ENOTEMPTY, None),
    "PathComponentTooLongException": (errno.ENAMETOOLONG, None),
    "InvalidPathException": (errno.EINVAL, None),
}
_CLASS = re.compile(r"\b(?:[a-z_0-9]+\.)+(\w+Exception)\b")
_CODE = re.compile(r"\bos error (\d+)\b")
_ADDRESS = re.compile(r"\bUrlParseError\((\w+)\)")
_PLACES = re.compile(r"There are (\d+) datanode\(s\) running and (\w+) node\(s\) are excluded")


def open_hdfs(uri: str) -> HdfsStorage:
    """Return the storage of an hdfs:// URI. Nothing is contacted.

    It is `hdfs://host:port/path`, `hdfs://nameservice/path`, or `hdfs:///path` below fs.defaultFS: those of core-site.xml and
    hdfs-site.xml in HADOOP_CONF_DIR. Raises DefinitionError where hdfs-native is not installed, or the URI names no folder.
    """
    rest = uri.partition(":")[2]
    authority, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest.lstrip("/"))
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or not (authority or rest.startswith(("///", "/"))):
        raise DefinitionError(f"{uri} is not a folder of HDFS", next="write hdfs://HOST:PORT/FOLDER")
    required("hdfs_native", uri, "hdfs")
    return HdfsStorage(f"hdfs://{authority}/{'/'.join(parts)}")


@dataclass(frozen=True)
class HdfsStorage:
    """Files below one folder of HDFS. A method without a docstring is as `Storage` says."""

    root: str  # the folder's URI. It is made when the first file is written.

    moves_by_copy: ClassVar[bool] = False
    refused_in_names: ClassVar[str] = ":"
    client_s: ClassVar[float] = 0.0  # the client is native, and leaves Python to others

    def create_exclusive(self, path: str, data: bytes) -> bool:
        temporary, moved = self._filled(path, data), False
        try:
            try:
                self.rename(temporary, path)
                moved = True
            except FileExistsError:
                return self._ours(temporary, path, data)
            except FileNotFoundError:
                # The client repeats a call whose answer was lost: then the first one has moved the file already.
                if not self._ours(temporary, path, data):
                    raise
            except OSError as error:
                # It may still be on its way to the namenode, unless there is nothing left that it could move.
                if error.errno in _REFUSED or (error.errno not in _AWAY and self._taken_back(temporary)):
                    raise
                raise OutcomeUnknown(error) from error
            return True
        finally:
            self._drop_unless(moved, temporary)

    def replace(self, path: str, data: bytes) -> None:
        self.settle(path)
        temporary, moved = self._filled(path, data), False
        try:
            self._ask(path, self._client.rename, self._at(temporary), self._at(path), overwrite=True)
            moved = True
        except FileNotFoundError:
            if not self._ours(temporary, path, data):  # an answer that was lost, as in `create_exclusive`
                raise
        finally:
            self._drop_unless(moved, temporary)

    def _drop_unless(self, moved: bool, temporary: str) -> None:
        """Delete a temporary file that did not get its name."""
        if not moved:
            with suppress(OSError):  # it is named as a leftover, and what happened before is what counts
                self.delete(temporary)

    def write(self, path: str) -> BinaryIO:
        """Open a new file. Raises FileExistsError if the name is taken. Closing publishes it, and so does dropping it."""
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=False, create_parent=True)
        return cast(BinaryIO, _Writer(self._ask(path, self._client.create, self._at(path), options), self._place(path)))

    def sync(self, handle: BinaryIO) -> None:
        """Make a handle's content, and its name, durable: datanodes have it on their disks."""
        cast(_Writer, handle).hsync()

    def settle(self, path: str) -> None:
        """Return if the file is there: a closed file of HDFS is as durable as HDFS makes it. Raises FileNotFoundError."""
        if self.stat(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._place(path))

    def read(self, path: str) -> bytes:
        at = self._at(path)
        return bytes(self._ask(path, lambda: self._client.read(at).readall()))

    def open(self, path: str) -> BinaryIO:
        """Open for reading, unbuffered. Raises FileNotFoundError."""
        inner = self._ask(path, self._client.read, self._at(path))

        def fetch(first: int, after: int) -> bytes:
            return bytes(self._ask(path, inner.read_range, first, after - first))

        return cast(BinaryIO, ObjectReader(len(inner), fetch, self._place(path)))

    def stat(self, path: str) -> Entry | None:
        try:
            info = self._ask(path, self._client.get_file_info, self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if info.isdir else Entry(path, info.length, info.modification_time)

    def rename(self, source: str, target: str) -> None:
        old, new = self._at(source), self._at(target)
        try:
            self._ask(source, self._client.rename, old, new, overwrite=False)
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._place(target)) from None
        except FileNotFoundError:
            if self.stat(source) is None:
                raise
            self._ask(target, self._client.mkdirs, os.path.dirname(new), create_parent=True)
            self._ask(target, self._client.rename, old, new, overwrite=False)

    def concat(self, sources: Sequence[str], target: str) -> None:
        """Write the content of the sources, in order, to a new durable file, whole or not at all. The sources stay.

        HDFS's own concat would take the sources away, and the namenode's client protocol is asked for it by Java only.
        """
        temporary, moved = temporary_beside(target), False
        try:
            with self.write(temporary) as whole:
                for first in range(0, len(sources), _OPEN):
                    self._pour(sources[first : first + _OPEN], whole)
                self.sync(whole)
            self.rename(temporary, target)
            moved = True
        finally:
            self._drop_unless(moved, temporary)

    def _pour(self, sources: Sequence[str], target: BinaryIO) -> None:
        """Write the content of files, in order; small ones are opened and read at once, so many as memory allows."""
        with ExitStack() as stack:
            parts = [stack.enter_context(part) for part in at_once(self.open, sources)]
            some: list[BinaryIO] = []
            held = 0
            for part in parts:
                size = part.seek(0, os.SEEK_END)
                part.seek(0)
                if held + size > _AHEAD:
                    target.writelines(at_once(_content, some))
                    some, held = [], 0
                if size > _AHEAD:
                    copyfileobj(part, target, _BLOCK)
                else:
                    some.append(part)
                    held += size
            target.writelines(at_once(_content, some))

    def delete(self, path: str) -> bool:
        try:
            return bool(self._ask(path, self._client.delete, self._at(path), recursive=False))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def names(self, folder: str) -> Sequence[str]:
        return [path.rpartition("/")[2] for path, _ in self._listed(self._at(folder))]

    def list(self, prefix: str = "") -> Iterator[Entry]:
        top = self._path
        pending = [self._at(prefix.strip("/")) if prefix.strip("/") else top]
        while pending:
            for path, info in self._listed(pending.pop()):
                if info.isdir:
                    pending.append(path)
                else:
                    yield Entry(path[len(top.rstrip("/")) + 1 :], info.length, info.modification_time)

    def remove_folders(self, path: str = "") -> None:
        folder = self._at(path) if path else self._path
        below = [at for at, info in self._listed(folder) if info.isdir]
        for at in below:
            self.remove_folders(at[len(self._path.rstrip("/")) + 1 :])
        with suppress(OSError):  # not empty, or gone
            _ask(folder, self._client.delete, folder, recursive=False)

    def check_reachable(self, seconds: float = 5) -> None:
        """Raise OSError unless the cluster answers within so many seconds, whatever its client would wait."""
        within(seconds, lambda: self.stat("."))

    @property
    def _path(self) -> str:
        return "/" + self.root.removeprefix("hdfs://").partition("/")[2]

    @property
    def _client(self) -> Client:
        return _client(self.root.removeprefix("hdfs://").partition("/")[0], os.getpid())

    def _at(self, path: str) -> str:
        return f"{self._path.rstrip('/')}/{check_below(path, self.root)}".removesuffix("/.") or "/"

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _ask(self, path: str, call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        return _ask(self._place(path), call, *arguments, **options)

    def _filled(self, path: str, data: bytes) -> str:
        """Write a whole temporary file beside a path and return its name."""
        temporary = temporary_beside(path)
        try:
            with self.write(temporary) as handle:
                handle.write(data)
                self.sync(handle)
        except BaseException as error:
            if getattr(error, "errno", None) not in _AWAY:  # a second call would only wait as long as the first
                with suppress(OSError):
                    self.delete(temporary)
            raise
        return temporary

    def _ours(self, temporary: str, path: str, data: bytes) -> bool:
        """Return whether a name was given by a call of ours whose answer was lost: our file is gone, its content is there."""
        return self.stat(temporary) is None and self.stat(path) is not None and self.read(path) == data

    def _taken_back(self, temporary: str) -> bool:
        with suppress(OSError):
            return self.delete(temporary)
        return False

    def _listed(self, folder: str) -> Sequence[tuple[str, Any]]:
        try:
            items = _ask(folder, lambda: list(self._client.list_status(folder, recursive=False)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        # What is listed of a file is the file itself.
        return [(item.path, item) for item in items if item.path.rstrip("/") != folder.rstrip("/")]


class _Writer(io.RawIOBase):
    """A file being written. Every piece is taken whole."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner, self.name, self._size = inner, name, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        if len(view):
            self._ask(self._inner.write, view)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size

    def hsync(self) -> None:
        self._ask(self._inner.hsync)

    def close(self) -> None:
        if not self.closed:
            super().close()
            _ask(self.name, self._inner.close)

    def _ask(self, call: Callable[..., object], *arguments: Any) -> None:
        if self.closed:
            raise ValueError(f"{self.name} is closed")
        _ask(self.name, call, *arguments)


def _content(part: BinaryIO) -> bytes:
    return part.read()


@cache
def _client(authority: str, pid: int) -> Client:
    """Return this process's client of a cluster. Its threads do not survive a fork, hence the process id."""
    from hdfs_native import Client

    with translated(f"hdfs://{authority}"):
        return Client(f"hdfs://{authority}" if authority else None, _PATIENCE if ":" in authority else None)


def _ask(place: str, call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    """Return what a call of the client returns; what it raises is an OSError that names the place.

    The client can wait for ever for an answer on a connection whose other end died at a bad moment (seen with 0.14.7, where namenode
    and datanode were killed together). After LONGEST_S such a call is given up as a TimeoutError, and what comes next goes by new connections.
    """
    with translated(place):
        try:
            return within(LONGEST_S, lambda: call(*arguments, **options))
        except TimeoutError:
            _client.cache_clear()
            raise


def within(seconds: float, work: Callable[[], _T]) -> _T:
    """Return what some work returns. Raises TimeoutError where it takes longer; a thread that nobody waits for goes on with it."""
    answer = in_thread(work, "hdfs-call")
    if not has_ended(answer, seconds):
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:g} s")
    return answer.result()


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Let what a block raises be an OSError as of a local file system: its number, the cause in one line, and the path as a person writes it."""
    try:
        yield
    except OSError as error:
        raise _of_system(error, path) from None
    except (RuntimeError, ValueError) as error:
        raise _of_answer(str(error), path) from None


def _of_system(error: OSError, path: str) -> OSError:
    if error.errno is not None:
        return error
    for kind, number in ((FileNotFoundError, errno.ENOENT), (FileExistsError, errno.EEXIST)):
        if isinstance(error, kind):
            return kind(number, os.strerror(number), path)
    if isinstance(error, IsADirectoryError):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    message = _first_line(str(error))
    code = _CODE.search(message)
    if code:
        number = int(code[1])
        return OSError(number, f"{os.strerror(number)} (HDFS)", path)
    return _of_answer(message, path)


def _of_answer(message: str, path: str) -> OSError:
    name = _CLASS.search(message)
    number, text = _ANSWERS.get(name[1], (0, None)) if name else (0, None)
    if number:
        return OSError(number, text or os.strerror(number), path)
    if address := _ADDRESS.search(message):
        return OSError(errno.EINVAL, f"this is no address of HDFS ({address[1]}): write hdfs://HOST:PORT/FOLDER", path)
    if "No fs.defaultFS setting found" in message:
        return OSError(errno.EINVAL, "it names no host, and no fs.defaultFS is set in HADOOP_CONF_DIR", path)
    if places := _PLACES.search(message):
        if int(places[1]) > 0 and places[2] in ("no", "0"):
            return OSError(errno.ENOSPC, "no datanode has room for another block", path)
        return OSError(errno.EHOSTDOWN, f"no datanode takes a block ({places[0]})", path)
    code = _CODE.search(message)
    number = int(code[1]) if code else errno.EIO
    return OSError(number, f"HDFS: {_first_line(message)}", path)


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.replace("\\n", "\n").replace("\\t", " ").splitlines() if line.strip()]
    return lines[0][:300] if lines else "it gave no reason"
