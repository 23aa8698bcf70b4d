"""A thread of its own for a call that may hang, so that whoever waits for it can stop waiting.

What hangs is left behind with its thread, which is a daemon: the process can end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Call it in a thread of that name; the future has what it returned or raised."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def has_ended(future: Future[Any], seconds: float | None) -> bool:
    """Wait until a call has ended, at most so long; return whether it has."""
    return bool(wait([future], seconds).done)
