"""Bytes of a file to buffers of whole lines, for a range of the file or for all of it.

A line belongs to the range it starts in, so any cut of a file into ranges gives each line once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.formats.chunk import Lines

BLOCK = 1 << 20
_NEWLINE, _RETURN = 10, 13
Fill = Callable[[memoryview], int]


@dataclass(frozen=True, slots=True)
class LineOrigin:
    """Lines of a file; the byte at which one begins is looked for only when it is asked for."""

    file: str  # the whole path
    base: int  # where in the file the buffer begins; for compressed files, in the text
    ends: npt.NDArray[np.int64]  # position of each line end in the buffer as it was read

    def at(self, row: int) -> Mapping[str, Any]:
        return {"file": self.file, "offset": self.base + (int(self.ends[row - 1]) + 1 if row else 0)}


def line_blocks(fill: Fill, file: str, base: int, stop: int | None, block: int = BLOCK) -> Iterator[Lines]:
    r"""Yield the lines of a file from `base` on that start before `stop` (None = all). The last need not end with "\n".

    Args:
        fill: reads into a buffer and returns how many bytes, 0 at the end.
        file: the whole path, for the origin.
        base: where the first byte that `fill` gives is in the file; it starts a line.
        stop: the first byte whose line is not wanted any more; None = all.
        block: how many bytes to read at once. Each block is a buffer of its own: a chunk stays valid.
    """
    at = base
    tail: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
    while stop is None or at < stop:
        held = len(tail)
        room = max(block, held)  # a line longer than a block: twice as much each time
        buffer = np.empty(held + room + 1, np.uint8)
        buffer[:held] = tail
        got = fill(buffer.data[held : held + room])
        if not got:
            if held:
                buffer[held] = _NEWLINE
                yield _lines(buffer, np.array([held], np.int64), file, at)
            return
        size = held + got
        ends = np.flatnonzero(buffer[held:size] == _NEWLINE) + held
        if not len(ends):
            tail = buffer[:size]
            continue
        if stop is not None and at + int(ends[-1]) + 1 > stop:
            wanted = 1 + int(np.searchsorted(ends[:-1], stop - at - 1))
            yield _lines(buffer, ends[:wanted], file, at)
            return
        yield _lines(buffer, ends, file, at)
        cut = int(ends[-1]) + 1
        tail = buffer[cut:size]
        at += cut


def _lines(buffer: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], file: str, base: int) -> Lines:
    return Lines(buffer.data[: int(ends[-1]) + 1], ends, LineOrigin(file, base, ends))


def drop_first(lines: Lines) -> Lines:
    """Return all lines but the first; they keep their places."""
    cut = int(lines.ends[0]) + 1
    ends = lines.ends[1:] - cut
    origin = lines.origin
    if isinstance(origin, LineOrigin):
        origin = replace(origin, base=origin.base + cut, ends=ends)
    return Lines(lines.data[cut:], ends, origin)


def drop_mark(lines: Lines) -> Lines:
    """Return the lines without a byte order mark in front of the first."""
    if bytes(lines.data[:3]) != b"\xef\xbb\xbf":
        return lines
    return Lines(lines.data[3:], lines.ends - 3, lines.origin)


def strip_returns(lines: Lines) -> Lines:
    r"""Return the lines without the "\r" before each line end, where there is one; they keep their places."""
    data = np.frombuffer(lines.data, np.uint8)
    before = np.maximum(lines.ends - 1, 0)
    returns = data[before] == _RETURN
    if not returns.any():
        return lines
    keep = np.ones(len(data), np.bool_)
    keep[before[returns]] = False
    return Lines(data[keep].data, lines.ends - np.cumsum(returns), lines.origin)
