"""Commits of one sink by several threads of the driver at once, each with a connection of its own for as long as it needs one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import Generic, TypeVar

from poundlock.checkpoint.participant import JSON, CommitOutcome

_T = TypeVar("_T")


class ConnectionPool(Generic[_T]):
    """Connections to one system, each lent to one thread at a time; where all are lent, another is made, up to `most`.

    `first` is there already; `make` makes another one, which may connect later.
    """

    def __init__(self, first: _T, make: Callable[[], _T], most: int) -> None:
        self.first, self.most = first, most
        self._make, self._room, self._idle = make, threading.BoundedSemaphore(most), [first]

    @contextmanager
    def lent(self) -> Iterator[_T]:
        """Lend a connection, the one that was given back last where there is one; wait while as many as may be are lent."""
        with self._room:
            try:
                one = self._idle.pop()
            except IndexError:
                one = self._make()
            try:
                yield one
            finally:
                self._idle.append(one)

    @property
    def idle(self) -> list[_T]:
        """The connections that are not lent now."""
        return list(self._idle)


def commit_each(
    commit: Callable[[JSON], CommitOutcome], committables: Iterable[JSON], threads: int
) -> Iterator[CommitOutcome]:
    """Yield what `commit` returns or raises for each committable, in their order; see `CommitsMany`.

    It is called by so many threads at most, or by the caller's where there is only one committable; these are asked for as they are begun.
    """

    def one(committable: JSON) -> CommitOutcome:
        try:
            return commit(committable)
        except Exception as error:
            return error

    remaining = iter(committables)
    first = list(islice(remaining, 2))
    if len(first) < 2:
        yield from map(one, first)
        return
    under_way: deque[Future[CommitOutcome]] = deque()
    with ThreadPoolExecutor(threads, "poundlock-commit") as pool:
        for committable in chain(first, remaining):
            if len(under_way) == threads:
                yield under_way.popleft().result()
            under_way.append(pool.submit(one, committable))
        while under_way:
            yield under_way.popleft().result()
