"""What all object stores have in common: folders of objects of which each appears whole and at once, and objects as files.

A handle reads ranges as they are asked for, or its object appears when it is closed. One that was not closed in order, because its
block failed or it was dropped, publishes nothing.
"""

from __future__ import annotations

import errno
import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, cast

from poundlock.storage.base import Entry, check_below

PART = 8 << 20  # bytes
_READ_AHEAD = 1 << 20


def part_size(number: int) -> int:
    """Return how large a part is made: an upload has at most 10,000 parts, so later ones are larger."""
    return PART << min(number // 1000, 6)


class ObjectFolder(ABC):
    """A folder of objects. A method without a docstring is as `Storage` says."""

    moves_by_copy: ClassVar[bool] = True
    refused_in_names: ClassVar[str] = ""
    client_s: ClassVar[float] = 0.0
    prefix: str

    @property
    @abstractmethod
    def root(self) -> str: ...

    @abstractmethod
    def stat(self, path: str) -> Entry | None: ...

    @abstractmethod
    def _range(self, path: str, first: int, after: int) -> bytes:
        """Return the bytes from `first` to before `after`."""

    @abstractmethod
    def _writer(self, path: str) -> ObjectWriter:
        """Return the way to a new object."""

    def write(self, path: str) -> BinaryIO:
        if self.stat(path) is not None:
            raise FileExistsError(self._place(path))
        return cast(BinaryIO, self._writer(path))

    def sync(self, handle: BinaryIO) -> None:
        """Let a handle's object appear; nothing can be written to it afterwards."""
        cast(ObjectWriter, handle).publish()

    def settle(self, path: str) -> None:
        """See that an object is there: what a store answers with is durable. Raises FileNotFoundError."""
        self._existing(path)

    def open(self, path: str) -> BinaryIO:
        size = self._existing(path).bytes
        return open_reader(size, lambda first, after: self._range(path, first, after), self._place(path))

    def _existing(self, path: str) -> Entry:
        entry = self.stat(path)
        if entry is None:
            raise FileNotFoundError(self._place(path))
        return entry

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{check_below(path, self.root)}".removeprefix("/")

    def _path(self, key: str) -> str:
        return key[len(self.prefix) + 1 :] if self.prefix else key

    def _folder(self, path: str) -> str:
        """Return the key that all keys of a folder begin with, without a slash behind it."""
        return self._key(path.strip("/")) if path.strip("/") not in ("", ".") else self.prefix


class ObjectReader(io.RawIOBase):
    """Reads an object of so many bytes by ranges: `fetch` returns the bytes from the first to before the last."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes], name: str) -> None:
        self._size, self._fetch, self._at, self.name = size, fetch, 0, name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        last = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = self._fetch(self._at, last) if last > self._at else b""
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def open_reader(size: int, fetch: Callable[[int, int], bytes], name: str) -> BinaryIO:
    """Return a handle that reads an object; see `ObjectReader`."""
    return cast(BinaryIO, io.BufferedReader(ObjectReader(size, fetch, name), _READ_AHEAD))


class ObjectWriter(io.RawIOBase):
    """Writes an object, which appears when the handle is closed or synced. A store says how its parts get there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._buffer = bytearray()
        self._parts = self._size = 0
        self._ended = self._failed = False

    def part(self, number: int, data: bytes) -> None:
        """Take a part, numbered from 1; of `part_size`, but for the last and those that `send_held` sends early."""
        raise NotImplementedError

    def whole(self, data: bytes) -> None:
        """Let an object of one piece appear, for which no part was taken: by default, of one part."""
        self._send(data)
        self.finish()

    def finish(self) -> None:
        """Let the object of all parts appear."""
        raise NotImplementedError

    def drop(self) -> None:
        """Forget the parts. Must not raise."""
        raise NotImplementedError

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any, /) -> int:
        if self._ended:
            raise ValueError("the object is complete")
        if self._failed:
            raise OSError(errno.EIO, "a part of it could not be written", self.name)
        view = memoryview(data).cast("B")
        self._buffer += view
        self._size += len(view)
        while len(self._buffer) >= (size := part_size(self._parts + 1)):
            self._send(bytes(memoryview(self._buffer)[:size]))
            del self._buffer[:size]
        return len(view)

    @property
    def held(self) -> int:
        """How many bytes wait in memory for a part to be full."""
        return len(self._buffer)

    def send_held(self) -> None:
        """Send what waits as a part of its own, though it is smaller than others; a store has a least size for that."""
        if self._buffer and not self._ended and not self._failed:
            self._send(bytes(self._buffer))
            self._buffer.clear()

    def publish(self) -> None:
        """Let the object appear. Only the first call does anything; where something of it failed before, it never appears."""
        if self._ended:
            return
        if self._failed:
            raise OSError(errno.EIO, "a part of it could not be written", self.name)
        self._failed = True  # until all of this is done
        if not self._parts:
            self.whole(bytes(self._buffer))
        else:
            if self._buffer:
                self._send(bytes(self._buffer))
            self.finish()
        self._ended = True
        self._buffer.clear()

    def discard(self) -> None:
        """Publish nothing."""
        if not self._ended:
            self._ended = True
            self._buffer.clear()
            self.drop()
        super().close()

    def close(self) -> None:
        """Publish, unless that was done, and close."""
        if self.closed:
            return
        try:
            self.publish()
        finally:
            if not self._ended:
                self._ended = True
                self.drop()
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        else:
            self.close()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):  # it is also called where making one failed
            self.discard()

    def _send(self, data: bytes) -> None:
        self._parts += 1
        failed, self._failed = self._failed, True
        self.part(self._parts, data)
        self._failed = failed
