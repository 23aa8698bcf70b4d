"""One checkpoint, in five calls: plan, run, verify, decide, commit; and recovery, in the same words.

A crash before the decision is recorded leaves nothing that counts; a crash behind it is finished by recovery. A commit may go on
beside the next checkpoint's tasks, and nothing more: that checkpoint is verified once its outcome is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from poundlock.checkpoint.decision import Decision, SourceRange
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Prepared, Staged
from poundlock.state.decided_state import DecidedState

if TYPE_CHECKING:
    from poundlock.checkpoint.committer import Carried
    from poundlock.checkpoint.coordinator import Coordinator
    from poundlock.checkpoint.ledger.decision_log import History


@dataclass(frozen=True)
class Planned:
    """What a checkpoint is to read."""

    checkpoint: int
    ranges: Mapping[str, SourceRange]  # per source; one that ends where it starts has nothing to read


@dataclass(frozen=True)
class Ran:
    """What the tasks of a checkpoint came to."""

    planned: Planned
    directive: SinkDirectives
    results: TaskResults


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What the tasks of a checkpoint prepared, once it is known that all of it can be committed."""

    results: TaskResults
    kept: Sequence[Prepared]  # what the decision is to name of what they prepared
    staged: Mapping[str, Staged]  # per sink, what the decision is to say
    started_ms: int  # when the tasks were started, ms since the epoch
    durations_ms: Mapping[str, int]  # how long "run" and "verify" took
    state: DecidedState | None = None  # what the decision is to say of keyed state; None where there is none


P = TypeVar("P")
R = TypeVar("R", bound=Ran)
S = TypeVar("S")


class CheckpointSteps(Protocol[P, R]):
    """What is a job's own of the steps of a checkpoint; used by one thread at a time. The others are the coordinator's."""

    coordinator: Coordinator

    def plan(self) -> P | None:
        """Choose what it reads; None where there is nothing to take a checkpoint for."""

    def taking(self, plan: P) -> AbstractContextManager[Any]:
        """Watch it, and name it in what goes wrong."""

    def run(self, plan: P) -> R:
        """Run its tasks; return when all have ended."""

    def await_commit(self, plan: P) -> bool:
        """Wait until the outcome of the commit before is known; return whether this checkpoint can still be decided."""

    def verify(self, ran: R) -> Verified:
        """Check what was read and what was prepared; raise unless all of it can be decided."""

    def dropped(self, plan: P) -> None:
        """Take note that it cannot: parts of the checkpoint before were aborted from outside, and are produced again first."""

    def commit(self, plan: P, ran: R, decision: Decision, verified: Verified) -> None:
        """Begin to make all of it visible; see `await_commit`."""


def run_checkpoint(steps: CheckpointSteps[P, R]) -> Decision | None:
    """Take one checkpoint; return its decision, None where there was nothing to take it for or another one comes first.

    Raises:
        TransientError: tasks, storage or a sink failed; the next attempt goes on. What was not decided is aborted.
        TerminalError: the checkpoint does not add up, or is of another history.
        FencedError: a newer driver has taken over.
    """
    coordinator = steps.coordinator
    plan = steps.plan()  # 1 a range of every source, from where the newest decision ends
    if plan is None:
        return None
    with steps.taking(plan):
        ran = steps.run(plan)  # 2 tasks write hidden output and state, and report what they prepared
        with coordinator.aborting(ran.results.prepared):
            if not steps.await_commit(plan):  # only up to here may the checkpoint before be open
                coordinator.abort(ran.results.prepared)
                steps.dropped(plan)
                return None
            verified = steps.verify(ran)  # 3 counts add up, everything prepared can be committed
            decision = coordinator.decide(ran.planned, verified)  # 4 the one durable record
        steps.commit(plan, ran, decision, verified)  # 5 idempotent, until every outcome is known
        return decision


def recover(history: History, sweep: Callable[[], S]) -> tuple[Decision | None, Carried | None, S]:
    """Commit what was decided, and remove what was not; return the newest decision, what became of it, and of the rest.

    What nobody decided never happened: it is planned again, with other ranges if that suits.
    """
    while True:
        decision = history.newest_decision()
        outcome = history.commit_again(decision)
        if history.take_over(decision, outcome):
            return decision, outcome, sweep()  # only now can nobody else name what no decision names yet
