"""One checkpoint, in five calls: plan, run, verify, decide, commit.

A crash before the decision is recorded leaves nothing that counts; a crash behind it is finished by recovery, in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from poundlock.checkpoint.decision import Decision, SourceRange
from poundlock.checkpoint.outcome import Directive, Outcome, TaskResults
from poundlock.checkpoint.participant import Prepared, Staged
from poundlock.errors import TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.state.decided_state import DecidedState
from poundlock.storage.storage_errors import explained

_ROUNDS = 6  # the first, and those in which parts that were aborted from outside are produced again


@dataclass(frozen=True)
class Planned:
    """What a checkpoint is to read.

    Args:
        checkpoint: its number.
        ranges: per source; one that ends where it starts has nothing to read.
    """

    checkpoint: int
    ranges: Mapping[str, SourceRange]


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What the tasks of a checkpoint prepared, once it is known that all of it can be committed.

    Args:
        results: what they reported.
        kept: what the decision is to name of what they prepared.
        staged: per sink, what the decision is to say.
        started_ms: when the tasks were started, ms since the epoch.
        durations_ms: how long "run" and "verify" took.
        state: what the decision is to say of keyed state; None where there is none.
    """

    results: TaskResults
    kept: Sequence[Prepared]
    staged: Mapping[str, Staged]
    started_ms: int
    durations_ms: Mapping[str, int]
    state: DecidedState | None = None


class Gates(Protocol):
    """The two gates: nothing passes the first without being verified, nothing the second without a decision."""

    @property
    def job(self) -> str:
        """Name of the job, for errors."""
        ...

    def directive(self, plan: Planned) -> Directive:
        """Return what the tasks need to know."""
        ...

    def verify(self, plan: Planned, directive: Directive, results: TaskResults) -> Verified:
        """Check that all that was prepared adds up and can be committed."""
        ...

    def decide(self, plan: Planned, verified: Verified) -> Decision:
        """Record the decision."""
        ...

    def commit(self, decision: Decision, durations_ms: Mapping[str, int]) -> Outcome:
        """Make all of it visible."""
        ...

    def aborting(self, prepared: Sequence[Prepared]) -> AbstractContextManager[None]:
        """Abort what was prepared where the block fails before a decision."""
        ...

    def is_produced_again(self, checkpoint: int) -> bool:
        """Return whether parts of a decided checkpoint were aborted from outside and must be produced once more."""
        ...


def run_checkpoint(gates: Gates, plan: Planned, run: Callable[[Directive], TaskResults]) -> Outcome:
    """Take one checkpoint; where parts of it are aborted from outside behind its decision, produce those again.

    Args:
        gates: what checks, decides and commits.
        plan: what it reads.
        run: runs its tasks and returns when all have ended; once, and once more for each time that parts were aborted.

    Raises:
        TransientError: tasks, storage or a sink failed; the next attempt goes on. What was not decided is aborted.
        TerminalError: the checkpoint does not add up, or is of another history.
        FencedError: a newer driver has taken over.
    """
    with explained(f"taking checkpoint {plan.checkpoint}", job=gates.job, checkpoint=plan.checkpoint):
        for _ in range(_ROUNDS):
            outcome = _through_both_gates(gates, plan, run)
            if not gates.is_produced_again(plan.checkpoint):
                hit(Failpoint.CHECKPOINT_DONE)
                return outcome
        raise TransientError(
            f"checkpoint {plan.checkpoint} was aborted from outside each time it was produced",
            next="look at the other system's limits, such as the transaction timeout; the job goes on by itself",
        )


def _through_both_gates(gates: Gates, plan: Planned, run: Callable[[Directive], TaskResults]) -> Outcome:
    directive = gates.directive(plan)  # what of the plan each task must know
    results = run(directive)  # tasks write hidden output and report what they prepared
    with gates.aborting(results.prepared):
        verified = gates.verify(plan, directive, results)  # counts add up, everything prepared can be committed
        decision = gates.decide(plan, verified)  # the one durable record
    return gates.commit(decision, verified.durations_ms)  # idempotent, until every outcome is known
