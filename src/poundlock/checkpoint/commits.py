"""Carrying out a decision: every committable of every sink, repeated until its outcome is known.

A failure of one never keeps another from becoming visible, and nothing here ever aborts anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.outcome import Log
from poundlock.checkpoint.participant import JSON, Aborted, Committed, Participant
from poundlock.checkpoint.trouble import storage_trouble
from poundlock.errors import CommitUnknown, PoundlockError, TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit

__all__ = ["Carried", "Retry", "TimeoutWarning", "carry_out", "timeout_warning"]


@dataclass(frozen=True, slots=True)
class Carried:
    """What carrying a decision out came to, once every outcome is known.

    Args:
        done: per sink, the details of what is visible now.
        committed: per sink, the committables that are visible.
        aborted: per sink, the committables that are proven never to become visible; sinks without any are left out.
    """

    done: Mapping[str, Sequence[Mapping[str, Any]]]
    committed: Mapping[str, Sequence[JSON]]
    aborted: Mapping[str, Sequence[JSON]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a commit with an unknown outcome is asked for again, per sink and decision.

    Args:
        attempts: repetitions before the job gives up for now; the next start goes on.
        first_s: pause before the first repetition, seconds; it doubles each time.
        most_s: the longest pause, seconds.
    """

    attempts: int = 12
    first_s: float = 0.05
    most_s: float = 5.0


def carry_out(
    decision: Decision,
    participants: Mapping[str, Participant],
    *,
    retry: Retry,
    sleep: Callable[[float], None],
    log: Log,
) -> Carried:
    """Commit all that a decision names and return what became of it.

    Everything is tried before the worst failure is raised.

    Raises:
        TerminalError: something a decision names is gone, or a sink with work left is no longer part of the job.
        TransientError: an outcome stayed unknown, or storage failed; the next start repeats it.
    """
    done: dict[str, list[Mapping[str, Any]]] = {}
    committed: dict[str, list[JSON]] = {}
    aborted: dict[str, list[JSON]] = {}
    failures: list[PoundlockError] = []
    for name, sink in decision.sinks.items():
        if not sink.committables:
            continue
        if name not in participants:
            failures.append(
                TerminalError(f"decision {decision.number} names sink {name!r}, which the job does not have")
            )
            continue
        pauses = _Pauses(retry, sleep)
        details = done.setdefault(name, [])
        for committable in sink.committables:
            hit(Failpoint.SINK_COMMITTING)
            try:
                result = _commit(participants[name], committable, pauses, name, decision, log)
            except OSError as error:
                failures.append(
                    storage_trouble(error, doing=f"committing checkpoint {decision.checkpoint} to {name!r}")
                )
            except PoundlockError as error:
                failures.append(error)
            else:
                if isinstance(result, Aborted):
                    log.warning("aborted", sink=name, checkpoint=decision.checkpoint, why=result.reason)
                    aborted.setdefault(name, []).append(committable)
                    continue
                details.append(result.detail)
                committed.setdefault(name, []).append(committable)
                hit(Failpoint.SINK_COMMITTED)
    if failures:
        worst = next((error for error in failures if isinstance(error, TerminalError)), failures[0])
        worst.checkpoint = decision.checkpoint if worst.checkpoint is None else worst.checkpoint
        raise worst
    return Carried(done, committed, aborted)


def _commit(
    participant: Participant, committable: JSON, pauses: _Pauses, name: str, decision: Decision, log: Log
) -> Committed | Aborted:
    while True:
        try:
            return participant.commit(committable)
        except CommitUnknown as error:
            if not pauses.again():
                raise TransientError(
                    f"whether checkpoint {decision.checkpoint} reached sink {name!r} is not known: {error.what}",
                    next=error.next or "start the job again when the system answers; it asks again and goes on",
                    participant=name,
                ) from error
            log.warning(
                "commit outcome unknown, asking again", sink=name, checkpoint=decision.checkpoint, why=error.what
            )
            continue


class _Pauses:
    """The pauses of one sink in one decision; when they are used up, every further unknown outcome fails at once."""

    def __init__(self, retry: Retry, sleep: Callable[[float], None]) -> None:
        self._retry, self._sleep, self._used = retry, sleep, 0

    def again(self) -> bool:
        if self._used >= self._retry.attempts:
            return False
        self._sleep(min(self._retry.most_s, self._retry.first_s * 2**self._used))
        self._used += 1
        return True


@dataclass(frozen=True, slots=True)
class TimeoutWarning:
    """A transaction was open for much of its timeout when it was committed.

    Args:
        open_ms: how long it was open.
        timeout_ms: when the other system would have aborted it.
    """

    open_ms: int
    timeout_ms: int

    def __str__(self) -> str:
        return (
            f"a transaction was open for {self.open_ms} ms when it was committed, of at most {self.timeout_ms} ms;"
            " make checkpoints more frequent or the timeout longer"
        )


def timeout_warning(*, begun_ms: int, now_ms: int, timeout_ms: int, ratio: float) -> TimeoutWarning | None:
    """Return a warning if a transaction committed now was open longer than `ratio` of its timeout, else None.

    Args:
        begun_ms: when it began, ms since the epoch.
        now_ms: the present, ms since the epoch.
        timeout_ms: when the other system aborts it, ms after its beginning.
        ratio: share of the timeout that is still comfortable, 0 to 1.
    """
    open_ms = now_ms - begun_ms
    return TimeoutWarning(open_ms, timeout_ms) if open_ms > ratio * timeout_ms else None
