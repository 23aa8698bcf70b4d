"""Failed checkpoints: when one takes too long, which failures are a checkpoint's, and how many are tolerated."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from poundlock.driver.attempts import Attempts, CheckpointTimedOut, known_undecided
from poundlock.errors import PoundlockError, TerminalError, TransientError
from poundlock.metrics.timeline import FailedCheckpoint, Timeline


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_the_running_checkpoint_can_take_too_long() -> None:
    clock = Clock()
    attempts = Attempts(timedelta(seconds=10), now=clock)
    clock.now += 1000
    attempts.check()  # none is running
    with attempts.attempt(7, lambda: True):
        clock.now += 10
        attempts.check()
        clock.now += 0.001
        with pytest.raises(CheckpointTimedOut, match=r"checkpoint 7 took longer than checkpoint_timeout \(10 s\)"):
            attempts.check()
    clock.now += 1000
    attempts.check()


@pytest.mark.parametrize("timeout", [None, timedelta(0)])
def test_without_a_timeout_a_checkpoint_takes_as_long_as_it_likes(timeout: timedelta | None) -> None:
    clock = Clock()
    attempts = Attempts(timeout, now=clock)
    with attempts.attempt(0, lambda: True):
        clock.now += 1e9
        attempts.check()


def fail(attempts: Attempts, error: Exception, *, ran: bool = True, undecided: bool = True) -> bool:
    """Let a checkpoint fail; return whether it is tolerated."""
    with suppress(type(error)), attempts.attempt(1, lambda: undecided) as attempt:
        attempt.ran = ran
        raise error
    return attempts.tolerates(error if isinstance(error, PoundlockError) else PoundlockError(str(error)))


def test_so_many_in_a_row_are_tolerated_and_a_completed_one_begins_anew() -> None:
    attempts, trouble = Attempts(None, tolerable=2), TransientError("the disk is away")
    assert [fail(attempts, trouble) for _ in range(4)] == [True, True, False, False]
    attempts.completed()
    assert [fail(attempts, trouble) for _ in range(3)] == [True, True, False]


def test_a_timeout_is_a_failed_checkpoint() -> None:
    attempts = Attempts(timedelta(seconds=1), tolerable=1)
    assert attempts.tolerates(CheckpointTimedOut("checkpoint 1 took longer"))
    assert not attempts.tolerates(CheckpointTimedOut("checkpoint 1 took longer"))


def test_what_fails_in_tasks_or_after_the_decision_or_for_good_is_no_failed_checkpoint() -> None:
    attempts = Attempts(None, tolerable=9)
    assert not fail(attempts, TransientError("a task"), ran=False)
    assert not fail(attempts, TransientError("a commit"), undecided=False)
    assert not fail(attempts, TerminalError("rows do not add up"))
    assert not attempts.tolerates(TransientError("between two checkpoints"))
    assert fail(attempts, TransientError("the disk is away")), "those above left nothing behind"


def test_a_checkpoint_that_was_given_up_says_nothing_about_the_next() -> None:
    """Its thread may hang in a sink and fail long after another life began."""
    clock = Clock()
    attempts = Attempts(timedelta(seconds=1), tolerable=9, now=clock)
    with suppress(TransientError), attempts.attempt(1, lambda: True) as old:
        old.ran = True
        with attempts.attempt(2, lambda: True):
            clock.now += 0.5
        raise TransientError("fenced")
    assert not attempts.tolerates(TransientError("something else"))


def test_a_checkpoint_whose_fate_is_not_known_is_not_known_to_be_undecided() -> None:
    def unknown() -> int:
        raise TransientError("the newest decision is not known")

    assert not known_undecided(unknown, 3)
    assert known_undecided(lambda: 2, 3)
    assert not known_undecided(lambda: 3, 3)


def test_whoever_watches_learns_of_each_failed_checkpoint_once() -> None:
    seen: list[tuple[FailedCheckpoint, Timeline]] = []
    clock = Clock()
    attempts = Attempts(timedelta(seconds=1), now=clock, on_failure=lambda *each: seen.append(each))
    with suppress(TransientError), attempts.attempt(4, lambda: False, never_decided=lambda: True) as attempt:
        attempt.enter("verify")
        assert [(each.checkpoint, each.phase) for each in attempts.under_way()] == [(4, "verify")]
        clock.now += 5
        with suppress(CheckpointTimedOut):
            attempts.check()
        raise TransientError("its tasks were cancelled")
    assert attempts.under_way() == ()
    ((failed, timeline),) = seen
    assert (failed.checkpoint, failed.phase) == (4, "verify")
    assert failed.cause.startswith("checkpoint 4 took longer"), "the first that went wrong is the cause"
    assert [phase.name for phase in timeline.phases] == ["plan", "run", "verify"]
    assert timeline.failure == failed.cause
    with suppress(TransientError), attempts.attempt(5, lambda: False):
        raise TransientError("a commit of what is decided")
    assert len(seen) == 1
