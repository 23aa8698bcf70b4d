"""Calls of one sink by several threads of the driver at once, each with a connection of its own for as long as it needs one.

What many calls cost is their number by the time of one by how many are on their way. The next is asked for when one of them has its
outcome, so that memory follows the threads and not the calls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import Generic, TypeVar, cast

from poundlock.checkpoint.participant import JSON, CommitOutcome

_T = TypeVar("_T")
_R = TypeVar("_R")
_END = object()


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
    """Yield what `commit` returns or raises for each committable, in their order; see `CommitsMany` and `call_each`."""
    return call_each(commit, committables, threads)


def call_each(call: Callable[[_T], _R], items: Iterable[_T], threads: int) -> Generator[_R | Exception, None, None]:
    """Yield what a call returns or raises for each item, in their order.

    It is called by so many threads at most, by the caller's where there is only one item or one thread. An item is asked for when
    there is a thread for it. A thread is started when there is work for it, which costs some 0.1 ms: less than a call that leaves
    the machine.
    """

    def one(item: _T) -> _R | Exception:
        try:
            return call(item)
        except Exception as error:
            return error

    remaining = iter(items)
    first = list(islice(remaining, 2)) if threads > 1 else []
    if len(first) < 2:
        yield from map(one, chain(first, remaining))
        return
    under_way: deque[Future[_R | Exception]] = deque()
    room = threading.BoundedSemaphore(threads)
    with ThreadPoolExecutor(threads, "poundlock-commit") as pool:
        remaining = chain(first, remaining)
        while room.acquire() and (item := next(remaining, _END)) is not _END:
            under_way.append(pool.submit(one, cast(_T, item)))
            under_way[-1].add_done_callback(lambda _: room.release())
            while under_way and under_way[0].done():
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
