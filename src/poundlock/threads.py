"""A thread of its own for a call that may hang, so that whoever waits for it can stop waiting, or for one that waits beside others.

What hangs is left behind with its thread, which is a daemon: the process can end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Call it in a thread of that name; the future has what it returned or raised."""
    future: Future[T] = Future()

    threading.Thread(target=_settle, args=(future, call), name=name, daemon=True).start()
    return future


def call_all(*calls: Callable[[], object], name: str) -> None:
    """Make calls at once, in threads of that name; return when all have ended. Raises what the first of them that failed has raised."""
    futures = [in_thread(call, name) for call in calls]
    wait(futures)
    for future in futures:
        future.result()


class CallThread:
    """A thread for calls that follow one another, each of which may hang: Spark keeps a connection, and a thread of the JVM's, for each of ours.

    Used by one thread; begins with the first call, and lasts until `end`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Have it called once the calls before have ended; the future has what it returned or raised."""
        future: Future[T] = Future()
        self._calls.put(lambda: _settle(future, call))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return future

    def end(self) -> None:
        """End the thread behind the calls that have begun; does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # what it refers to must not live until the next


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)


def has_ended(future: Future[Any], seconds: float | None) -> bool:
    """Wait until a call has ended, at most so long; return whether it has."""
    return bool(wait([future], seconds).done)
