"""How `async_map` calls a function: how many calls at once, how long each may take, and when one is repeated.

Deciding about a repetition is pure, so every sequence of answers can be replayed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from poundlock.arguments import FLAG, NUMBER, WHOLE, check_kind, check_object
from poundlock.calls import check_function
from poundlock.errors import DefinitionError
from poundlock.values import duration, grown_s


@dataclass(frozen=True, kw_only=True)
class AsyncRetryStrategy:
    """How often and when a call of `async_map` is repeated. Use one of the two kinds.

    Args:
        attempts: repetitions of one call, behind the first; 1 or more.
        on_exception: whether an exception is worth a repetition; None = each is. A PoundlockError never is.
        on_result: whether a result is worth one, such as an empty answer; None = none is. When no attempts are left, the last
            result counts.
    """

    attempts: int = 3
    on_exception: Callable[[Exception], bool] | None = None
    on_result: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        _check_at_least_one(type(self).__name__, "attempts", self.attempts)
        for name, given, what in (
            ("on_exception", self.on_exception, "exception"),
            ("on_result", self.on_result, "result"),
        ):
            if given is not None:
                check_function(given, f"{type(self).__name__}: {name}", what)

    def delay_s(self, done: int) -> float:
        """Return how many seconds to wait before the next repetition, when so many are done."""
        raise NotImplementedError

    def repeats(self, outcome: Any, done: int) -> bool:
        """Return whether a call that ended so, in an exception or a result, is repeated when so many repetitions are done."""
        if done >= self.attempts:
            return False
        if isinstance(outcome, Exception):
            return self.on_exception is None or bool(self.on_exception(outcome))
        return self.on_result is not None and bool(self.on_result(outcome))


@dataclass(frozen=True, kw_only=True)
class FixedDelayRetry(AsyncRetryStrategy):
    """Repeat a call a number of times, each after the same delay.

    Args:
        delay: wait before each repetition, such as "100 ms".
    """

    delay: str | timedelta = "100 ms"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "delay", duration(self.delay))

    def delay_s(self, done: int) -> float:
        return duration(self.delay).total_seconds()


@dataclass(frozen=True, kw_only=True)
class ExponentialDelayRetry(AsyncRetryStrategy):
    """Repeat a call a number of times, after delays that grow.

    Args:
        initial: first delay, such as "100 ms".
        maximum: no delay is longer.
        multiplier: each delay is the one before times this; 1 or more.
    """

    initial: str | timedelta = "100 ms"
    maximum: str | timedelta = "10 s"
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("initial", "maximum"):
            object.__setattr__(self, name, duration(getattr(self, name)))
        check_kind("ExponentialDelayRetry", NUMBER, {"multiplier": self.multiplier})
        if self.multiplier < 1:
            raise DefinitionError(f"ExponentialDelayRetry: multiplier={self.multiplier} is below 1", next="set it to 2")
        if duration(self.maximum) < duration(self.initial):
            raise DefinitionError(
                "ExponentialDelayRetry: maximum is below initial", next="set maximum to the initial delay or more"
            )

    def delay_s(self, done: int) -> float:
        initial, longest = duration(self.initial).total_seconds(), duration(self.maximum).total_seconds()
        return grown_s(initial, self.multiplier, longest, done)


@dataclass(frozen=True)
class AsyncOptions:
    """How a function is called; the arguments are those of `DataStream.async_map`.

    Args:
        in_threads: whether the function is an ordinary one, which blocks the thread that calls it.
        timeout_s: None = no limit.
    """

    capacity: int
    timeout_s: float | None
    ordered: bool
    retry: AsyncRetryStrategy | None
    on_timeout: Callable[[Any], Any] | None
    in_threads: bool

    def describe(self) -> str:
        """Return it in words, for `explain`."""
        limit = "" if self.timeout_s is None else f", {self.timeout_s:g} s each"
        threads = " in threads" if self.in_threads else ""
        return f"up to {self.capacity} calls at once{threads}{limit}, {'in order' if self.ordered else 'as they end'}"


def async_options(
    function: Callable[..., Any],
    *,
    capacity: int,
    timeout: str | timedelta | None,
    ordered: bool,
    retry: AsyncRetryStrategy | None,
    on_timeout: Callable[[Any], Any] | None,
) -> AsyncOptions:
    """Return the options of `async_map`, checked.

    Raises:
        DefinitionError: one of them is not what it can be, or has no effect.
    """
    _check_at_least_one("async_map", "capacity", capacity)
    check_kind("async_map", FLAG, {"ordered": ordered})
    if retry is not None:
        check_object(
            retry,
            "async_map: retry",
            (FixedDelayRetry, ExponentialDelayRetry),
            'write retry=FixedDelayRetry(attempts=3, delay="100 ms")',
        )
    span = None if timeout is None else duration(timeout)
    if span is not None and span <= timedelta(0):
        raise DefinitionError("async_map: timeout is not above 0", next='write timeout="60 s", or None for no limit')
    if on_timeout is not None:
        check_function(on_timeout, "async_map: on_timeout", "record")
        if span is None:
            raise DefinitionError(
                "async_map: on_timeout has no effect, because timeout is None", next='write timeout="60 s"'
            )
    return AsyncOptions(
        capacity, None if span is None else span.total_seconds(), ordered, retry, on_timeout, not _is_async(function)
    )


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or an object that can be called, is written with `async def`."""
    call = function if inspect.isroutine(function) else inspect.getattr_static(type(function), "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _check_at_least_one(owner: str, name: str, value: object) -> None:
    check_kind(owner, WHOLE, {name: value})
    if int(value) < 1:  # type: ignore[call-overload]
        raise DefinitionError(f"{owner}: {name}={value} is below 1", next=f"set {name} to 1 or more")
