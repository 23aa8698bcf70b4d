"""Whether and when a failed job is started again, with Flink's names, defaults and meaning.

Deciding is pure: time and chance are arguments, so every sequence of restarts can be replayed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from poundlock.arguments import NUMBER, check_kind
from poundlock.errors import DefinitionError, FencedError, PoundlockError, TerminalError, next_of
from poundlock.values import duration, grown_s

if TYPE_CHECKING:
    from poundlock.config import Settings


SAME_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class RestartStrategy:
    """How a job that failed is started again. Use one of the four kinds."""

    def backoff(self, history: RestartState, now_ms: int, rng: random.Random) -> timedelta | None:
        """Return how long to wait before the next start, None to give up. `history` includes the failure at hand."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class NoRestart(RestartStrategy):
    """The first failure ends the job."""

    def backoff(self, history: RestartState, now_ms: int, rng: random.Random) -> timedelta | None:
        return None


@dataclass(frozen=True, kw_only=True)
class FixedDelayRestart(RestartStrategy):
    """Start again a number of times in all, each after the same delay.

    Args:
        attempts: restarts over the job's whole life.
        delay: wait before each, such as "1 s".
    """

    attempts: int = 1
    delay: str | timedelta = "1 s"

    def __post_init__(self) -> None:
        _at_least("attempts", self.attempts, 0)
        object.__setattr__(self, "delay", duration(self.delay))

    def backoff(self, history: RestartState, now_ms: int, rng: random.Random) -> timedelta | None:
        return duration(self.delay) if history.restarts < self.attempts else None


@dataclass(frozen=True, kw_only=True)
class FailureRateRestart(RestartStrategy):
    """Start again as long as failures are rare.

    Args:
        max_failures: failures that are still accepted within one interval; one more ends the job.
        interval: length of the sliding interval, such as "1 min".
        delay: wait before each start.
    """

    max_failures: int = 1
    interval: str | timedelta = "1 min"
    delay: str | timedelta = "1 s"

    def __post_init__(self) -> None:
        _at_least("max_failures", self.max_failures, 1)
        object.__setattr__(self, "interval", duration(self.interval))
        object.__setattr__(self, "delay", duration(self.delay))

    def backoff(self, history: RestartState, now_ms: int, rng: random.Random) -> timedelta | None:
        since = now_ms - _ms(duration(self.interval))
        recent = sum(1 for failed_ms in history.failed_ms if failed_ms >= since)
        return duration(self.delay) if recent <= self.max_failures else None


@dataclass(frozen=True, kw_only=True)
class ExponentialDelayRestart(RestartStrategy):
    """Start again after delays that grow, and start over once the job has run well for a while. The default.

    Args:
        initial: first delay.
        maximum: no delay is longer, jitter included.
        multiplier: each delay is the one before times this.
        jitter: each delay is moved by up to this part of itself, up or down; 0.1 = 10 %.
        reset_after: after this time since the last restart without a failure the delays and attempts start over.
        attempts: restarts before the job is given up, counted since the last reset; None = no limit.
    """

    initial: str | timedelta = "1 s"
    maximum: str | timedelta = "1 min"
    multiplier: float = 1.5
    jitter: float = 0.1
    reset_after: str | timedelta = "1 h"
    attempts: int | None = None

    def __post_init__(self) -> None:
        for name in ("initial", "maximum", "reset_after"):
            object.__setattr__(self, name, duration(getattr(self, name)))
        _at_least("multiplier", self.multiplier, 1)
        _at_least("initial in ms", _ms(duration(self.initial)), 1)
        if self.attempts is not None:
            _at_least("attempts", self.attempts, 0)
        check_kind("ExponentialDelayRestart", NUMBER, {"jitter": self.jitter})
        if not 0 <= self.jitter <= 1:
            raise DefinitionError(f"jitter={self.jitter} is not between 0 and 1", next="set jitter to 0.1")
        if duration(self.maximum) < duration(self.initial):
            raise DefinitionError("maximum is below initial", next="set maximum to the initial delay or more")

    def backoff(self, history: RestartState, now_ms: int, rng: random.Random) -> timedelta | None:
        if self.attempts is not None and history.in_a_row > self.attempts:
            return None
        longest = duration(self.maximum).total_seconds()
        delay = grown_s(duration(self.initial).total_seconds(), self.multiplier, longest, history.in_a_row - 1)
        moved = delay * (1 + self.jitter * rng.uniform(-1, 1))
        return timedelta(seconds=min(moved, longest))


class SameFailure(TerminalError):
    """A job failed several times in the same way without completing a checkpoint in between."""


@dataclass(slots=True)
class RestartState:
    """What a job's failures add up to. One per run; used by one thread.

    Whatever the strategy, three failures with one text and no checkpoint completed in between end the job unless they are
    transient: an import that is missing or a function that always fails would otherwise restart in silence for ever.

    Args:
        strategy: when to start again.
    """

    strategy: RestartStrategy
    restarts: int = 0
    in_a_row: int = 0
    failed_ms: deque[int] = field(default_factory=lambda: deque(maxlen=10_000))
    _delay_ms: int = 0
    _last_text: str = ""
    _same: int = 0

    def checkpoint_completed(self) -> None:
        """Note that the job got somewhere: failures before this are no reason to give up early."""
        self._same = 0
        self._last_text = ""

    def next_delay(
        self, now_ms: int, rng: random.Random, error: BaseException | None = None, *, transient: bool = False
    ) -> timedelta | None:
        """Count a failure and return how long to wait before the next start; None = the job ends with this failure.

        Args:
            now_ms: when it failed, ms since the epoch.
            rng: where jitter comes from.
            error: what it failed with. Definition and terminal errors are never worth a restart.
            transient: the error is known to pass (a broker away, a full disk); it may repeat without end.

        Raises:
            SameFailure: it failed three times in the same way and completed no checkpoint in between.
        """
        if isinstance(error, DefinitionError | TerminalError | FencedError):
            return None
        self._count(now_ms)
        delay = self.strategy.backoff(self, now_ms, rng)
        if delay is None:
            return None
        if error is not None and not transient:
            self._notice_repetition(error)
        self.restarts += 1
        self._delay_ms = _ms(delay)
        return delay

    def _count(self, now_ms: int) -> None:
        if isinstance(self.strategy, ExponentialDelayRestart) and self.failed_ms:
            calm_ms = now_ms - self.failed_ms[-1] - self._delay_ms
            if calm_ms >= _ms(duration(self.strategy.reset_after)):
                self.in_a_row = 0
        self.in_a_row += 1
        self.failed_ms.append(now_ms)

    def _notice_repetition(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        self._same = self._same + 1 if text == self._last_text else 1
        self._last_text = text
        if self._same >= SAME_FAILURES:
            what = error.what if isinstance(error, PoundlockError) else text
            raise SameFailure(
                f"the job failed {SAME_FAILURES} times in the same way and completed no checkpoint in between: {what}",
                next=next_of(error, "mend the cause and start the job again; nothing is lost"),
            ) from error


def strategy_name(strategy: RestartStrategy) -> str:
    """Return a strategy's name as settings have it; one of a user's own class is named by that."""
    if isinstance(strategy, NoRestart):
        return "none"
    return next((name for name, (_, made, _) in _KINDS.items() if type(strategy) is made), type(strategy).__name__)


def strategy_json(strategy: RestartStrategy) -> dict[str, Any]:
    """Return a strategy as plain data."""
    values = {each.name: getattr(strategy, each.name) for each in fields(strategy)}
    plain = {name: f"{_ms(value)} ms" if isinstance(value, timedelta) else value for name, value in values.items()}
    return {"kind": type(strategy).__name__, **plain}


def strategy_from_json(value: Mapping[str, Any]) -> RestartStrategy:
    """Return the strategy of plain data; one of a user's own class is not known here, and the default takes its place."""
    known: list[type[RestartStrategy]] = [NoRestart, *(made for _, made, _ in _KINDS.values())]
    kinds = {kind.__name__: kind for kind in known}
    kind = kinds.get(value["kind"])
    if kind is None:
        return ExponentialDelayRestart()
    return kind(**{name: given for name, given in value.items() if name != "kind"})


def restart_strategy(settings: Settings) -> RestartStrategy | None:
    """Return the strategy that the settings name, None where they name none."""
    given = {
        name.removeprefix("restart_strategy_"): getattr(settings, name)
        for name in settings.model_fields_set
        if name.startswith("restart_strategy_")
    }
    kind = given.get("type")
    if kind is None:
        kinds = {name.partition("_delay_")[0].partition("_rate_")[0] for name in given}
        if not kinds:
            return None
        kind = {"fixed": "fixed-delay", "failure": "failure-rate", "exponential": "exponential-delay"}[min(kinds)]
    if kind == "none":
        return NoRestart()
    prefix, made, arguments = _KINDS[kind]
    values = {argument: given.get(f"{prefix}_{key}") for key, argument in arguments.items()}
    return made(**{argument: value for argument, value in values.items() if value is not None})


_KINDS: dict[str, tuple[str, type[RestartStrategy], dict[str, str]]] = {
    "fixed-delay": ("fixed_delay", FixedDelayRestart, {"attempts": "attempts", "delay": "delay"}),
    "failure-rate": (
        "failure_rate",
        FailureRateRestart,
        {"max_failures_per_interval": "max_failures", "failure_rate_interval": "interval", "delay": "delay"},
    ),
    "exponential-delay": (
        "exponential_delay",
        ExponentialDelayRestart,
        {
            "initial_backoff": "initial",
            "max_backoff": "maximum",
            "backoff_multiplier": "multiplier",
            "jitter_factor": "jitter",
            "reset_backoff_threshold": "reset_after",
            "attempts_before_reset_backoff": "attempts",
        },
    ),
}


def _ms(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)


def _at_least(name: str, value: float, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
        raise DefinitionError(f"{name}={value!r} is below {least}", next=f"set {name} to {least} or more")
