"""Pages of mapped files: asked for together before they are looked at, and given back behind it.

A page that is waited for by itself costs six times the CPU of one that was asked for with others.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import ends_in
from poundlock.state.runs.columns import Rows

Places = npt.NDArray[np.int64]
Range = tuple[Places, Places]  # addresses, and those behind the last byte of each

_LEFT = 1 << 20  # bytes; smaller files are not worth a call
_PROCESS_MADVISE = 440  # the number of the call on all processors that there is a pyarrow for
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
    """Have what is at some places of rows read at once, where they lie in mapped files: of neighbours as one range, however many."""
    columns = []
    for rows, places in looks:
        behind = places + 1
        apart = places[1:] != behind[:-1]
        if not apart.all():
            places, behind = places[np.append(True, apart)], behind[np.append(apart, True)]
        for column in (rows.keys, rows.subkeys, rows.values):
            if column is not None:
                ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset :]
                columns.append((ends, column.buffers()[2], places, behind))
    will_touch([bytes_of(ends, first, behind + 1) for ends, _, first, behind in columns])
    texts = [(data.address, ends, first, behind) for ends, data, first, behind in columns if data is not None]
    will_touch([(address + ends[first], address + ends[behind]) for address, ends, first, behind in texts])


def bytes_of(numbers: npt.NDArray[Any], first: Places, behind: Places) -> Range:
    """Return where in memory some numbers of 8 bytes are, from each first one to the one before the other."""
    address = numbers.ctypes.data
    return address + first * 8, address + behind * 8


def will_touch(ranges: Sequence[Range]) -> None:
    """Have the pages of ranges of addresses in mapped files read, all at once."""
    if not any(len(starts) for starts, _ in ranges):
        return
    starts, stops = (np.concatenate(some) for some in zip(*ranges, strict=True))
    first, behind = starts // mmap.PAGESIZE, (stops - 1) // mmap.PAGESIZE + 1
    order = np.argsort(first)
    first, behind = first[order], np.maximum.accumulate(behind[order])
    pages = np.stack([first, behind - first], axis=1) * mmap.PAGESIZE
    pages = np.concatenate([pages[:1], pages[1:][behind[1:] > behind[:-1]]])  # those that add to the ones before
    process = _own_process(os.getpid())
    for start in range(0, len(pages), _AT_ONCE):
        part = pages[start : start + _AT_ONCE]
        done = 0 if process is None else max(_advise_each(process, part), 0)
        if done < part[:, 1].sum():
            # The call ends at the first range that it cannot advise; those from there on go one by one.
            for address, length in part[np.searchsorted(np.cumsum(part[:, 1]), done, "right") :].tolist():
                _advise(address, length, mmap.MADV_WILLNEED)


def _advise(address: int, length: int, advice: int) -> None:
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(address + length - start), advice)


def _advise_each(process: int, ranges: Places) -> int:
    """Ask for the pages of several ranges (address, length); returns of how many bytes, or a number below 0 if the system refuses."""
    address, count = ctypes.c_void_p(ranges.ctypes.data), ctypes.c_size_t(len(ranges))
    done: int = _libc().syscall(_PROCESS_MADVISE, process, address, count, mmap.MADV_WILLNEED, 0)
    return done


@lru_cache(maxsize=1)
def _own_process(pid: int) -> int | None:
    """Return a handle of this process to advise it by; None where the system has no such call, or leaves it to others.

    A forked process opens its own. Pythons that were built with headers of an older Linux cannot open one.
    """
    if sys.platform != "linux":
        return None
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
    if _advise_each(handle, np.empty((0, 2), np.int64)) < 0:
        os.close(handle)
        return None
    return handle


@lru_cache
def _libc() -> Any:
    library = ctypes.CDLL(None)
    library.syscall.restype = ctypes.c_long
    return library
