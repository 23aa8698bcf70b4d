"""Calls in threads of their own: what comes back, in which order, and what is left behind."""

from __future__ import annotations

import threading

import pytest

from poundlock.threads import CallThread, call_all, has_ended, in_thread


def test_calls_follow_one_another_in_one_thread() -> None:
    calls, gate, order = CallThread("calls"), threading.Event(), list[int]()
    first = calls.begin(lambda: (gate.wait(30), order.append(1), threading.current_thread())[2])
    second = calls.begin(lambda: (order.append(2), threading.current_thread())[1])
    assert not has_ended(second, 0)
    gate.set()
    assert first.result(30) is second.result(30)
    assert first.result().name == "calls"
    assert order == [1, 2]
    calls.end()
    first.result().join(30)
    assert not first.result().is_alive()


def test_what_a_call_raises_is_its_own() -> None:
    calls = CallThread("calls")
    failed = calls.begin(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failed.result(30)
    assert calls.begin(lambda: 7).result(30) == 7
    calls.end()


def test_one_that_never_began_ends_nothing() -> None:
    calls = CallThread("calls")
    calls.end()
    assert in_thread(lambda: 3, "other").result(30) == 3


def test_all_calls_end_before_the_first_failure_is_raised() -> None:
    """They run at once: each waits for the others."""
    together, ended = threading.Barrier(3), list[str]()

    def call(name: str, error: Exception | None = None) -> None:
        together.wait(30)
        ended.append(name)
        if error is not None:
            raise error

    with pytest.raises(KeyError, match="b"):
        call_all(lambda: call("a"), lambda: call("b", KeyError("b")), lambda: call("c", ValueError("c")), name="calls")
    assert sorted(ended) == ["a", "b", "c"]
    call_all(name="calls")
