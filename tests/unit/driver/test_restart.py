"""Restart strategies against Flink's documented sequences, and the guard against silent loops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.config import load_settings
from poundlock.driver.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartState,
    RestartStrategy,
    SameFailure,
    restart_strategy,
    strategy_name,
)
from poundlock.errors import DefinitionError, FencedError, SourceGoneError, TerminalError, TransientError


def _delays(strategy: RestartStrategy, failures_ms: Sequence[int]) -> list[float | None]:
    """Return the delays in seconds for failures at these times; stops at the first None."""
    state, rng, found = RestartState(strategy), random.Random(1), []
    for now in failures_ms:
        delay = state.next_delay(now, rng)
        found.append(None if delay is None else delay.total_seconds())
        if delay is None:
            break
    return found


@pytest.mark.parametrize(
    ("strategy", "failures_ms", "delays"),
    [
        (NoRestart(), [0], [None]),
        (FixedDelayRestart(), [0, 10_000_000], [1, None]),
        (FixedDelayRestart(attempts=3, delay="10 s"), [0, 1, 2, 3], [10, 10, 10, None]),
        (FixedDelayRestart(attempts=0), [0], [None]),
        # The default accepts one failure a minute; the interval slides and its end belongs to it.
        (FailureRateRestart(), [0, 60_000], [1, None]),
        (FailureRateRestart(), [0, 60_001, 120_002], [1, 1, 1]),
        (FailureRateRestart(max_failures=3, interval="5 min", delay="10 s"), [0, 1, 2, 3], [10, 10, 10, None]),
        (FailureRateRestart(max_failures=2, interval="10 s"), [0, 6_000, 12_000, 18_000, 19_000], [1, 1, 1, 1, None]),
        # The example of Flink's documentation: 1 s, times 2, at most 10 s.
        (
            ExponentialDelayRestart(maximum="10 s", multiplier=2, jitter=0),
            [0, 2_000, 5_000, 10_000, 20_000, 31_000],
            [1, 2, 4, 8, 10, 10],
        ),
        (ExponentialDelayRestart(jitter=0), [0, 1, 2, 3], [1, 1.5, 2.25, 3.375]),
        # Calm for reset_after beyond the delay before starts over; one ms less does not.
        (ExponentialDelayRestart(jitter=0, reset_after="1 min"), [0, 61_000], [1, 1]),
        (ExponentialDelayRestart(jitter=0, reset_after="1 min"), [0, 60_999], [1, 1.5]),
        (ExponentialDelayRestart(jitter=0, attempts=2), [0, 1, 2], [1, 1.5, None]),
        (ExponentialDelayRestart(jitter=0, attempts=2, reset_after="1 s"), [0, 1, 9_000, 9_001], [1, 1.5, 1, 1.5]),
    ],
)
def test_sequences(strategy: RestartStrategy, failures_ms: Sequence[int], delays: Sequence[float | None]) -> None:
    assert _delays(strategy, failures_ms) == delays


@given(
    jitter=st.floats(0, 1),
    multiplier=st.floats(1, 5),
    seed=st.integers(),
    failures=st.integers(1, 40),
)
def test_exponential_delays_stay_within_jitter_and_maximum(
    jitter: float, multiplier: float, seed: int, failures: int
) -> None:
    state = RestartState(ExponentialDelayRestart(maximum="30 s", multiplier=multiplier, jitter=jitter))
    rng, plain = random.Random(seed), 1.0
    for now in range(failures):
        delay = state.next_delay(now, rng)
        assert delay is not None
        assert min(plain * (1 - jitter), 30) - 1e-5 <= delay.total_seconds() <= min(plain * (1 + jitter), 30) + 1e-5
        plain = min(plain * multiplier, 30)


def test_the_same_seed_gives_the_same_delays() -> None:
    strategy = ExponentialDelayRestart(jitter=0.5)
    assert _delays(strategy, range(10)) == _delays(strategy, range(10))
    assert len(set(_delays(ExponentialDelayRestart(jitter=0.5, multiplier=1), range(10)))) > 1


@pytest.mark.parametrize("error", [DefinitionError("a"), TerminalError("b"), FencedError("c"), SourceGoneError("d")])
def test_what_a_restart_cannot_mend_is_never_restarted(error: Exception) -> None:
    state = RestartState(ExponentialDelayRestart())
    assert state.next_delay(0, random.Random(1), error) is None
    assert state.restarts == 0


def test_the_same_failure_three_times_without_a_checkpoint_ends_the_job() -> None:
    state, rng = RestartState(ExponentialDelayRestart()), random.Random(1)
    assert state.next_delay(0, rng, ValueError("bad")) is not None
    assert state.next_delay(1, rng, ValueError("bad")) is not None
    with pytest.raises(SameFailure, match=r"3 times in the same way.*bad") as caught:
        state.next_delay(2, rng, ValueError("bad"))
    assert isinstance(caught.value, TerminalError)
    assert isinstance(caught.value.__cause__, ValueError)


def test_progress_another_failure_or_a_transient_one_is_no_silent_loop() -> None:
    rng = random.Random(1)
    progressing = RestartState(ExponentialDelayRestart())
    differing = RestartState(ExponentialDelayRestart())
    transient = RestartState(ExponentialDelayRestart())
    for now in range(10):
        assert progressing.next_delay(now, rng, ValueError("bad")) is not None
        progressing.checkpoint_completed()
        assert differing.next_delay(now, rng, ValueError(f"bad {now % 2}")) is not None
        assert transient.next_delay(now, rng, TransientError("away"), transient=True) is not None
    assert progressing.restarts == 10


def test_the_strategy_may_give_up_before_the_guard() -> None:
    state = RestartState(FixedDelayRestart(attempts=2))
    answers = [state.next_delay(now, random.Random(1), ValueError("bad")) for now in range(3)]
    assert answers[-1] is None


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (FixedDelayRestart, {"attempts": -1}),
        (FixedDelayRestart, {"delay": "soon"}),
        (FailureRateRestart, {"max_failures": 0}),
        (ExponentialDelayRestart, {"initial": "0 s"}),
        (ExponentialDelayRestart, {"multiplier": 0.5}),
        (ExponentialDelayRestart, {"jitter": 1.1}),
        (ExponentialDelayRestart, {"initial": "2 min"}),
        (ExponentialDelayRestart, {"attempts": True}),
    ],
)
def test_refused(kind: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        kind(**arguments)


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ([], None),
        (["restart-strategy.type=none"], NoRestart()),
        (["restart-strategy.type=fixed-delay"], FixedDelayRestart()),
        (["restart-strategy.fixed-delay.attempts=5"], FixedDelayRestart(attempts=5)),
        (
            ["restart-strategy.type=failure-rate", "restart-strategy.failure-rate.max-failures-per-interval=4"],
            FailureRateRestart(max_failures=4),
        ),
        (
            [
                "restart-strategy.type=exponential-delay",
                "restart-strategy.exponential-delay.initial-backoff=2 s",
                "restart-strategy.exponential-delay.max-backoff=20 s",
                "restart-strategy.exponential-delay.backoff-multiplier=3",
                "restart-strategy.exponential-delay.jitter-factor=0",
                "restart-strategy.exponential-delay.reset-backoff-threshold=5 min",
                "restart-strategy.exponential-delay.attempts-before-reset-backoff=8",
            ],
            ExponentialDelayRestart(
                initial="2 s", maximum="20 s", multiplier=3, jitter=0, reset_after=timedelta(minutes=5), attempts=8
            ),
        ),
        # What belongs to a kind that is not chosen does not count.
        (["restart-strategy.type=fixed-delay", "restart-strategy.failure-rate.delay=9 s"], FixedDelayRestart()),
    ],
)
def test_from_settings(options: list[str], strategy: RestartStrategy | None, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert restart_strategy(load_settings(options)) == strategy


def test_a_strategy_is_named_as_settings_name_it() -> None:
    class Own(RestartStrategy):
        pass

    for name in ("none", "fixed-delay", "failure-rate", "exponential-delay"):
        strategy = restart_strategy(load_settings([f"restart-strategy={name}"]))
        assert strategy is not None
        assert strategy_name(strategy) == name
    assert strategy_name(Own()) == "Own"
