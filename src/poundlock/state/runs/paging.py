"""Pages of mapped files: asked for together before they are looked at, and given back behind it.

A page that is waited for by itself costs six times the CPU of one that was asked for with others.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import ends_in
from poundlock.state.runs.columns import Rows

Places = npt.NDArray[np.int64]

_LEFT = 1 << 20  # bytes; smaller files are not worth a call
_PROCESS_MADVISE = 440  # the number of the call, the same on every machine that Linux runs on
_AT_ONCE = 1024  # ranges that one call takes


def read_as_asked(content: pa.Buffer) -> None:
    """Have a page of a mapped file read when it is looked at, and none around it.

    A look-up goes to some places of a run, and a disk may be set to read megabytes ahead at each of them.
    """
    _advise(content.address, content.size, mmap.MADV_RANDOM)


def leave_memory(content: pa.Buffer) -> None:
    """Have the pages of a mapped file that were looked at no longer count as this process's; what is looked at again is mapped again."""
    if content.size >= _LEFT:
        # The file is mapped to be read and shared, so that its pages stay what they are.
        _advise(content.address, content.size, mmap.MADV_DONTNEED)


def will_read(rows: Rows) -> None:
    """Have rows that are about to be gone through read at once, where they lie in a mapped file."""
    for column in (rows.keys, rows.values):
        ends, data = ends_in(column), column.buffers()[2]
        if data is not None and len(column):
            _advise(data.address + int(ends[0]), int(ends[-1] - ends[0]), mmap.MADV_WILLNEED)
    if len(rows):
        _advise(rows.hashes.ctypes.data, rows.hashes.nbytes, mmap.MADV_WILLNEED)


def will_look_at(looks: Iterable[tuple[Rows, Places]]) -> None:
    """Have what is at a few places of rows read at once, where they lie in mapped files."""
    columns = [
        (column, np.frombuffer(column.buffers()[1], np.int64)[column.offset :], places)
        for rows, places in looks
        for column in (rows.keys, rows.subkeys, rows.values)
        if column is not None
    ]
    will_touch([ends.ctypes.data + places * ends.itemsize for _, ends, places in columns])
    data = [(column.buffers()[2], ends, places) for column, ends, places in columns]
    will_touch([there.address + ends[places] for there, ends, places in data if there is not None])


def will_touch(addresses: list[Places]) -> None:
    """Have the pages of some addresses in mapped files read, all at once."""
    if not addresses:
        return
    pages = np.unique(np.concatenate(addresses) // mmap.PAGESIZE)
    ranges = np.full((len(pages), 2), mmap.PAGESIZE, np.uint64)
    ranges[:, 0] = pages * mmap.PAGESIZE
    process = _own_process(os.getpid())
    for start in range(0, len(ranges), _AT_ONCE):
        part = ranges[start : start + _AT_ONCE]
        if process is None or _advise_each(process, part) < 0:
            for address, length in part.tolist():
                _advise(address, length, mmap.MADV_WILLNEED)


def _advise(address: int, length: int, advice: int) -> None:
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(address + length - start), advice)


def _advise_each(process: int, ranges: npt.NDArray[np.uint64]) -> int:
    """Ask for the pages of several ranges (address, length); returns a number below 0 if the system refuses."""
    address, count = ctypes.c_void_p(ranges.ctypes.data), ctypes.c_size_t(len(ranges))
    done: int = _libc().syscall(_PROCESS_MADVISE, process, address, count, mmap.MADV_WILLNEED, 0)
    return done


@lru_cache(maxsize=1)
def _own_process(pid: int) -> int | None:
    """Return a handle of this process to advise it by; None where the system has no such call, or leaves it to others."""
    if sys.platform != "linux":
        return None
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    if _advise_each(handle, np.empty((0, 2), np.uint64)) < 0:
        os.close(handle)
        return None
    return handle


@lru_cache
def _libc() -> Any:
    return ctypes.CDLL(None)
