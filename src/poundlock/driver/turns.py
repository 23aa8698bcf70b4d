"""A thread of its own for what a job's loop waits for, so that the driver's main thread can always be stopped.

One thing runs at a time. What hangs is left behind with its thread, which is a daemon: the process can end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turn(Generic[T]):
    """One call in a thread of its own.

    Args:
        call: what is called.
        name: of the thread.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, at most so long; return whether it has."""
        return self._done.wait(seconds)

    @property
    def result(self) -> T:
        """What the call returned; it has ended.

        Raises:
            BaseException: what the call raised.
        """
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]
