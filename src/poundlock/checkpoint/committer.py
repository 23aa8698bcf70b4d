"""Carrying out a decision: every committable of every sink at once, repeated until its outcome is known.

A failure of one never keeps another from becoming visible, and nothing here ever aborts what a decision names. The work of one
participant is done by one thread at a time. Participants of one class share a thread too, because a connector may keep a
connection for all of its sinks; one that declares `CommitsMany` has declared that threads are no harm and gets its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from poundlock.checkpoint.capabilities import AbortsMany, CommitsBehind, CommitsMany, Early
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.in_tasks import Tasks, by_tasks
from poundlock.checkpoint.outcome import Log
from poundlock.checkpoint.participant import JSON, Aborted, CommitOutcome, Committed, Participant, Prepared
from poundlock.errors import CommitUnknown, PoundlockError, TerminalError, TransientError
from poundlock.failpoints import Failpoint, hit
from poundlock.metrics.timeline import CommitCall
from poundlock.storage.storage_errors import storage_trouble

_MOST = 16  # threads
Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Carried:
    """What carrying a decision out came to, once every outcome is known."""

    done: Mapping[str, Sequence[Mapping[str, Any]]]  # per sink, the details of what is visible now
    committed: Mapping[str, Sequence[JSON]]  # per sink, the committables that are visible
    # per sink, the committables that are proven never to become visible; sinks without any are left out
    aborted: Mapping[str, Sequence[JSON]]
    took_ms: int = 0
    calls: Sequence[CommitCall] = ()  # per sink that had something to commit, when and how often it was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a commit with an unknown outcome is asked for again, per sink and decision."""

    attempts: int = 12  # repetitions before the job gives up for now; the next start goes on
    first_s: float = 0.05  # pause before the first repetition, seconds; it doubles each time
    most_s: float = 5.0  # the longest pause, seconds


def commit_all(
    decision: Decision,
    participants: Mapping[str, Participant],
    *,
    retry: Retry,
    sleep: Callable[[float], None],
    log: Log,
    tasks: Tasks | None = None,
) -> Carried:
    """Commit all that a decision names and return what became of it.

    Everything is tried before the worst failure is raised. `tasks`: what runs very many of them on the cluster; None = there is none.

    Raises:
        TerminalError: something a decision names is gone, or a sink with work left is no longer part of the job.
        TransientError: an outcome stayed unknown, or storage failed; the next start repeats it.
    """
    results: dict[str, _SinkCommits] = {}
    failures: list[PoundlockError] = []
    for name, sink in decision.sinks.items():
        if sink.committables and name in participants:
            results[name] = _SinkCommits(name, participants[name], decision, _pauses(retry, sleep), log, tasks)
        elif sink.committables:
            failures.append(
                TerminalError(f"decision {decision.number} names sink {name!r}, which the job does not have")
            )
    at_once({name: result.run for name, result in results.items()}, participants)
    failures += [failure for result in results.values() for failure in result.failures]
    if failures:
        worst = next((error for error in failures if isinstance(error, TerminalError)), failures[0])
        worst.checkpoint = decision.checkpoint if worst.checkpoint is None else worst.checkpoint
        raise worst
    return Carried(
        done={name: result.details for name, result in results.items()},
        committed={name: result.committed for name, result in results.items() if result.committed},
        aborted={name: result.aborted for name, result in results.items() if result.aborted},
        calls=[result.call for result in results.values()],
    )


@dataclass
class _SinkCommits:
    """The commits of one sink, and what became of each committable. Used by one thread."""

    name: str
    participant: Participant
    decision: Decision
    pauses: Iterator[bool]
    log: Log
    tasks: Tasks | None
    details: list[Mapping[str, Any]] = field(default_factory=list)
    committed: list[JSON] = field(default_factory=list)
    aborted: list[JSON] = field(default_factory=list)
    failures: list[PoundlockError] = field(default_factory=list)
    retries: int = 0
    call: CommitCall = field(init=False)

    def run(self) -> None:
        """Commit everything, and again what is not known, until it is or the pauses are used up."""
        began_ms, began = time.time_ns() // 1_000_000, time.monotonic()
        self._commit()
        asked = len(self.decision.sinks[self.name].committables)
        self.call = CommitCall(self.name, began_ms, (time.monotonic() - began) * 1000, asked, self.retries)

    def _commit(self) -> None:
        committables, behind = self.decision.sinks[self.name].committables, list[JSON]()
        if isinstance(self.participant, CommitsBehind):
            behind = [each for each in committables if self.participant.comes_behind(each)]
            if behind:
                committables = [each for each in committables if not self.participant.comes_behind(each)]
        self._all(committables)
        if behind and not (self.failures or self.aborted):
            self.tasks = None  # they are few, and the driver knows what they are about
            self._all(behind)

    def _all(self, committables: Sequence[JSON]) -> None:
        if not isinstance(self.participant, CommitsMany):
            for committable in committables:
                hit(Failpoint.SINK_COMMITTING)
                self._take(committable, self._asked_until_known(committable))
            return
        unknown = self._many(self.participant, committables, first=True)
        while unknown:
            if not next(self.pauses, False):
                self.failures.append(self._not_known(unknown[0][1]))
                return
            self._warn(unknown[0][1])
            unknown = self._many(self.participant, [committable for committable, _ in unknown], first=False)

    def _many(
        self, participant: CommitsMany, committables: Sequence[JSON], *, first: bool
    ) -> list[tuple[JSON, CommitUnknown]]:
        """Commit many at once; return those of which the outcome is not known."""
        unknown: list[tuple[JSON, CommitUnknown]] = []
        outcomes = self._outcomes(participant, committables, first=first)
        for committable, outcome in zip(committables, outcomes, strict=True):
            if isinstance(outcome, CommitUnknown):
                unknown.append((committable, outcome))
            else:
                self._take(committable, outcome)
        return unknown

    def _outcomes(
        self, participant: CommitsMany, committables: Sequence[JSON], *, first: bool
    ) -> Iterable[CommitOutcome]:
        if not first:
            return participant.commit_many(iter(committables))
        done = by_tasks(commit_piece, participant, committables, self.tasks, self.log)
        return participant.commit_many(_announced(committables)) if done is None else done

    def _asked_until_known(self, committable: JSON) -> CommitOutcome:
        while True:
            try:
                return self.participant.commit(committable)
            except CommitUnknown as error:
                if not next(self.pauses, False):
                    return self._not_known(error)
                self._warn(error)
            except (OSError, PoundlockError) as error:
                return error

    def _take(self, committable: JSON, outcome: CommitOutcome) -> None:
        """Note an outcome.

        Raises:
            Exception: the outcome is an error that no system of the sink's gives: a fault in the sink.
        """
        if isinstance(outcome, Committed):
            self.details.append(outcome.detail)
            self.committed.append(committable)
            hit(Failpoint.SINK_COMMITTED)
        elif isinstance(outcome, Aborted):
            self.log.warning("aborted", sink=self.name, checkpoint=self.decision.checkpoint, why=outcome.reason)
            self.aborted.append(committable)
        elif isinstance(outcome, PoundlockError):
            self.failures.append(outcome)
        elif isinstance(outcome, OSError):
            doing = f"committing checkpoint {self.decision.checkpoint} to {self.name!r}"
            self.failures.append(storage_trouble(outcome, doing=doing))
        else:
            raise outcome

    def _not_known(self, error: CommitUnknown) -> TransientError:
        failure = TransientError(
            f"whether checkpoint {self.decision.checkpoint} reached sink {self.name!r} is not known: {error.what}",
            next=error.next or "start the job again when the system answers; it asks again and goes on",
            participant=self.name,
        )
        failure.__cause__ = error
        return failure

    def _warn(self, error: CommitUnknown) -> None:
        checkpoint = self.decision.checkpoint
        self.retries += 1
        self.log.warning("commit outcome unknown, asking again", sink=self.name, checkpoint=checkpoint, why=error.what)


def commit_piece(participant: CommitsMany, committables: list[JSON]) -> list[CommitOutcome]:
    """Commit some in a task; return their outcomes."""
    return list(participant.commit_many(_announced(committables)))


def _announced(committables: Sequence[JSON]) -> Iterator[JSON]:
    """Yield committables, each as it is asked for to be committed."""
    for committable in committables:
        hit(Failpoint.SINK_COMMITTING)
        yield committable


def _pauses(retry: Retry, sleep: Callable[[float], None]) -> Iterator[bool]:
    """Pause, as often as it is asked; behind the last pause every further unknown outcome of the sink's fails at once."""
    for used in range(retry.attempts):
        sleep(min(retry.most_s, retry.first_s * 2**used))
        yield True


def timeout_warning(*, begun_ms: int, now_ms: int, timeout_ms: int, ratio: float) -> str | None:
    """Return what to say if a transaction committed now was open longer than `ratio`, 0 to 1, of its timeout, else None."""
    open_ms = now_ms - begun_ms
    if open_ms <= ratio * timeout_ms:
        return None
    return (
        f"a transaction was open for {open_ms} ms when it was committed, of at most {timeout_ms} ms;"
        " make checkpoints more frequent or the timeout longer"
    )


def at_once(work: Mapping[str, Work], participants: Mapping[str, Participant]) -> None:
    """Do something for each of some participants; return, or raise, when all of it has ended.

    Args:
        work: by the participant's name; what is in the way of one must not keep others from theirs, so it should not raise.

    Raises:
        Exception: what a piece of work raised, the first in order. The rest of its thread's work is left out then.
    """
    threads: dict[object, list[Work]] = {}
    for name, each in work.items():
        participant = participants[name]
        threads.setdefault(name if isinstance(participant, CommitsMany) else type(participant), []).append(each)
    if len(threads) <= 1:
        for each in work.values():
            each()
        return
    with ThreadPoolExecutor(min(len(threads), _MOST), "poundlock-participants") as pool:
        running = [pool.submit(_in_turn, turn) for turn in threads.values()]
    for one in running:
        one.result()


def _in_turn(work: Sequence[Work]) -> None:
    for each in work:
        each()


def verify_all(
    participants: Mapping[str, Participant],
    prepared: Sequence[Prepared],
    checkpoint: int,
    *,
    log: Log,
    tasks: Tasks | None = None,
) -> None:
    """Have every participant verify what its tasks prepared, all of them at once. `tasks`: as in `commit_all`.

    Raises:
        TransientError, TerminalError: something cannot be committed; that of the first participant in order is raised when all
            have ended, so that what is aborted next is touched by nobody.
    """
    by_sink = _by_sink(prepared)
    failures: dict[str, Exception] = {}

    def verify(name: str, participant: Participant) -> None:
        try:
            if name in by_sink:
                wrong = by_tasks(verify_piece, participant, by_sink[name], tasks, log)
                if wrong is None:
                    participant.verify(by_sink[name])
                for error in wrong or ():
                    raise error
            elif isinstance(participant, Early):
                participant.verify_nothing(checkpoint)
        except Exception as error:
            failures[name] = error

    asked = {name: p for name, p in participants.items() if name in by_sink or isinstance(p, Early)}
    at_once({name: partial(verify, name, participant) for name, participant in asked.items()}, participants)
    for name in asked:
        if name in failures:
            raise failures[name]


def verify_piece(participant: Participant, prepared: list[Prepared]) -> list[Exception]:
    """Verify some in a task; return what is wrong, if anything is."""
    try:
        participant.verify(prepared)
    except Exception as error:
        return [error]
    return []


def abort_all(
    participants: Mapping[str, Participant], prepared: Sequence[Prepared], *, log: Log, tasks: Tasks | None = None
) -> Iterator[tuple[Prepared, Exception]]:
    """Have every participant abort what its tasks prepared; yield what could not be aborted, and why. Raises nothing. `tasks`: as in `commit_all`."""
    for name, items in _by_sink(prepared).items():
        try:
            participant = participants[name]
            outcomes: Iterable[Exception | None]
            if isinstance(participant, AbortsMany):
                outcomes = by_tasks(abort_piece, participant, items, tasks, log) or participant.abort_many(items)
            else:
                outcomes = (_aborted(participant, item) for item in items)
            yield from ((item, error) for item, error in zip(items, outcomes, strict=True) if error is not None)
        except Exception as error:
            yield items[0], error


def abort_piece(participant: AbortsMany, prepared: list[Prepared]) -> list[Exception | None]:
    """Abort some in a task; return what failed of each."""
    return list(participant.abort_many(prepared))


def _aborted(participant: Participant, item: Prepared) -> Exception | None:
    try:
        participant.abort(item)
    except Exception as error:
        return error
    return None


def _by_sink(prepared: Sequence[Prepared]) -> dict[str, list[Prepared]]:
    by_sink: dict[str, list[Prepared]] = {}
    for item in prepared:
        by_sink.setdefault(item.sink, []).append(item)
    return by_sink
