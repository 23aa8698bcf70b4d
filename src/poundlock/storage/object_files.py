"""Objects as files: a handle that reads ranges as they are asked for, and one whose object appears when it is closed.

A handle that was not closed in order, because its block failed or it was dropped, publishes nothing.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from types import TracebackType
from typing import Any, BinaryIO, Protocol, cast

PART = 8 << 20  # bytes
_READ_AHEAD = 1 << 20


def part_size(number: int) -> int:
    """Return how large a part is made: an upload has at most 10,000 parts, so later ones are larger."""
    return PART << min(number // 1000, 6)


class ObjectReader(io.RawIOBase):
    """Reads an object by ranges.

    Args:
        size: bytes it has.
        fetch: returns the bytes of a range, from first to before last.
        name: for messages.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes], name: str) -> None:
        self._size, self._fetch, self._at, self.name = size, fetch, 0, name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        last = min(self._size, self._at + len(view))
        if last <= self._at:
            return 0
        data = self._fetch(self._at, last)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        data = self._fetch(self._at, self._size) if self._at < self._size else b""
        self._at += len(data)
        return data


def open_reader(size: int, fetch: Callable[[int, int], bytes], name: str) -> BinaryIO:
    """Return a handle that reads an object; see `ObjectReader`."""
    return cast(BinaryIO, io.BufferedReader(ObjectReader(size, fetch, name), _READ_AHEAD))


class Sending(Protocol):
    """Where an `ObjectWriter` puts its parts."""

    def part(self, number: int, data: bytes) -> None:
        """Take a part, numbered from 1; of `part_size`, but for the last and those that `send_held` sends early."""
        ...

    def whole(self, data: bytes) -> None:
        """Let an object of one piece appear; called instead of `part` and `finish`."""
        ...

    def finish(self) -> None:
        """Let the object of all parts appear."""
        ...

    def drop(self) -> None:
        """Forget the parts. Must not raise."""
        ...


class ObjectWriter(io.RawIOBase):
    """Writes an object, which appears when the handle is closed or synced.

    Args:
        sending: where its parts go.
        name: for messages.
        whole: whether what fits into one part goes as one piece.
    """

    def __init__(self, sending: Sending, name: str, *, whole: bool = True) -> None:
        self._sending, self.name, self._may_be_whole = sending, name, whole
        self._buffer = bytearray()
        self._parts = self._size = 0
        self._ended = self._failed = False

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
        if not self._parts and self._may_be_whole:
            self._sending.whole(bytes(self._buffer))
        else:
            if self._buffer or not self._parts:
                self._send(bytes(self._buffer))
            self._sending.finish()
        self._ended = True
        self._buffer.clear()

    def discard(self) -> None:
        """Publish nothing."""
        if not self._ended:
            self._ended = True
            self._buffer.clear()
            self._sending.drop()
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
                self._sending.drop()
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
        self._sending.part(self._parts, data)
        self._failed = failed
