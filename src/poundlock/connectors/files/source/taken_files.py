"""Which of very many files were taken, in 16 bytes each, and files in the order of their age with few of them in memory at a time.

A file is known by 128 bits of a BLAKE2b hash of its folder and path. That two of a billion files meet in them has a chance of
one in 10^20, and the later one would be left out.
"""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import islice
from typing import IO

import numpy as np
import numpy.typing as npt

from poundlock.storage import Entry

Digests = npt.NDArray[np.uint64]
_AT_A_TIME = 50_000  # entries that are in memory while they are sorted
_BATCH = 1_000


class TakenFiles:
    """A set of paths that grows. It is kept as sorted arrays, of which a few are made one when they are of about one size."""

    def __init__(self) -> None:
        self._runs: list[Digests] = []  # each of shape (n, 2), rising in the first column

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, root: str, paths: Sequence[str]) -> None:
        """Take paths in that are not there yet."""
        if not paths:
            return
        run = _digests(root, paths)
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
        self._runs.append(run[np.argsort(run[:, 0], kind="stable")])

    def missing(self, root: str, paths: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return of each path whether it is not there."""
        wanted = _digests(root, paths)
        there = np.zeros(len(wanted), np.bool_)
        for run in self._runs:
            at = np.searchsorted(run[:, 0], wanted[:, 0])
            # Where several share the first half they stand side by side.
            open_ = np.flatnonzero(at < len(run))
            while len(open_ := open_[run[at[open_], 0] == wanted[open_, 0]]):
                there[open_] |= run[at[open_], 1] == wanted[open_, 1]
                at[open_] += 1
                open_ = open_[~there[open_] & (at[open_] < len(run))]
        return ~there


def _digests(root: str, paths: Sequence[str]) -> Digests:
    start = blake2b(root.encode("utf-8", "surrogateescape") + b"\0", digest_size=16)
    digests = []
    for path in paths:
        each = start.copy()
        each.update(path.encode("utf-8", "surrogateescape"))
        digests.append(each.digest())
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


def by_age(entries: Iterable[Entry], at_a_time: int = _AT_A_TIME) -> Iterator[Entry]:
    """Yield files, the oldest first, of equal ages by path. More than so many are sorted in parts, which wait in temporary files."""
    rest = iter(entries)
    with ExitStack() as stack:
        waiting: list[IO[bytes]] = []
        while len(part := sorted(islice(rest, at_a_time), key=_age)) == at_a_time:
            file = stack.enter_context(tempfile.TemporaryFile(prefix="poundlock-files-"))
            for first in range(0, len(part), _BATCH):
                rows = [(e.path, e.bytes, e.modified_ms, e.tag) for e in part[first : first + _BATCH]]
                pickle.dump(rows, file, protocol=5)
            waiting.append(file)
        yield from heapq.merge(*map(_read_back, waiting), part, key=_age)


def _read_back(file: IO[bytes]) -> Iterator[Entry]:
    end = file.tell()
    file.seek(0)
    while file.tell() < end:
        for row in pickle.load(file):
            yield Entry(*row)


def _age(entry: Entry) -> tuple[int, str]:
    return entry.modified_ms, entry.path
