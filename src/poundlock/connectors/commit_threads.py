"""Calls of one sink by several threads of the driver at once, each with a connection of its own for as long as it needs one.

What many calls cost is their number by the time of one by how many are on their way. The next is asked for when one of them has its
outcome, so that memory follows the threads and not the calls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import Generic, TypeVar

from poundlock.checkpoint.participant import JSON, CommitOutcome

_T = TypeVar("_T")
_R = TypeVar("_R")


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
    there is a thread for it, by that thread. Who stops asking waits for what is under way; no other is begun then.

    Args:
        items: what raises there is raised here, behind the outcomes of those before.
    """
    remaining = iter(items)
    first = list(islice(remaining, 2)) if threads > 1 else []
    if len(first) < 2:
        yield from map(partial(_outcome, call), chain(first, remaining))
        return
    yield from _Calls(call, chain(first, remaining), threads).outcomes()


def _outcome(call: Callable[[_T], _R], item: _T) -> _R | Exception:
    try:
        return call(item)
    except Exception as error:
        return error


class _Call(Generic[_T, _R]):
    """One item, and what its call came to."""

    __slots__ = ("ended", "failure", "item", "outcome")

    def __init__(self, item: _T) -> None:
        self.item, self.ended = item, False
        self.outcome: _R | Exception
        self.failure: BaseException | None = None


class _Calls(Generic[_T, _R]):
    """Calls by threads that each take the next item once theirs has its outcome.

    To note an outcome and to take an item is one turn with the lock. A future and a callback for each call took twice the processor
    time, and all threads have one core.
    """

    def __init__(self, call: Callable[[_T], _R], items: Iterator[_T], most: int) -> None:
        self._call, self._items, self._most = call, items, most
        self._calls: deque[_Call[_T, _R]] = deque()  # in order, until an outcome is taken away
        self._changed = threading.Condition(threading.Lock())
        self._threads: list[threading.Thread] = []
        self._over = self._waited_for = False
        self._failure: BaseException | None = None  # of what gives the items

    def outcomes(self) -> Iterator[_R | Exception]:
        """Yield them in order. Raises BaseException: what an item raised, or a call that is no Exception."""
        self._one_more_thread()
        try:
            while (call := self._first()) is not None:
                if call.failure is not None:
                    raise call.failure
                yield call.outcome
            if self._failure is not None:
                raise self._failure
        finally:
            with self._changed:
                self._over = True
            for thread in self._threads:  # each stands in the list before the one that starts it ends
                thread.join()

    def _first(self) -> _Call[_T, _R] | None:
        """Wait until the first call has its outcome, and take it away; None where there is no more."""
        with self._changed:
            while not self._ready():
                self._waited_for = True
                self._changed.wait()
            return self._calls.popleft() if self._calls else None

    def _ready(self) -> bool:
        return self._calls[0].ended if self._calls else self._over

    def _one_more_thread(self) -> None:
        thread = threading.Thread(target=self._work, name="poundlock-commit", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        call = self._following(None)
        if call is not None and len(self._threads) < self._most:
            try:
                self._one_more_thread()  # each starts the next, so that there are no more than there is work for
            except RuntimeError:  # the system gives no more; those that there are do it
                self._threads.pop()
        while call is not None:
            try:
                call.outcome = _outcome(self._call, call.item)
            except BaseException as failure:
                call.failure = failure
            call = self._following(call)

    def _following(self, call: _Call[_T, _R] | None) -> _Call[_T, _R] | None:
        """Note that a call has ended; return the next one, None where there is none."""
        with self._changed:
            if call is not None:
                call.ended = True
            following = None if self._over else self._taken()
            if self._waited_for and self._ready():
                self._waited_for = False
                self._changed.notify()
            return following

    def _taken(self) -> _Call[_T, _R] | None:
        try:
            call = _Call[_T, _R](next(self._items))
        except StopIteration:
            self._over = True
            return None
        except BaseException as failure:
            self._over, self._failure = True, failure
            return None
        self._calls.append(call)
        return call
