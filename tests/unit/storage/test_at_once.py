"""Calls to a store that are on their way side by side."""

from __future__ import annotations

import threading

import pytest

from poundlock.storage.at_once import at_once


def test_what_comes_back_is_in_order_and_on_its_way_at_once() -> None:
    together = threading.Barrier(5)

    def call(n: int) -> int:
        together.wait(30)
        return n * n

    assert at_once(call, range(5)) == [0, 1, 4, 9, 16]
    assert at_once(lambda n: n + 1, [1]) == [2]
    assert at_once(lambda n: n, ()) == []


def test_the_first_failure_is_raised() -> None:
    def call(n: int) -> int:
        if n > 1:
            raise OSError(n)
        return n

    with pytest.raises(OSError, match="2"):
        at_once(call, range(5))
