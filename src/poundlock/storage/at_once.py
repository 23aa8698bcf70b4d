"""Calls to a store that one step needs several of: they wait on their way side by side, in threads that all steps of a process share.

None of these calls waits for another one of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

_THREADS = 32  # beside those in which the steps are taken: a store's client keeps 128 connections

T = TypeVar("T")
R = TypeVar("R")


def at_once(call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what a call returns for each item. Raises what the first of them that failed has raised."""
    given = list(items)
    if len(given) < 2:
        return [call(item) for item in given]
    return list(_pool(os.getpid()).map(call, given))


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:  # a forked process has no threads of its parent's
    return ThreadPoolExecutor(_THREADS, "poundlock-store")
