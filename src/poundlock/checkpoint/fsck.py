"""Comparing a job's decisions with what is there: orphans, unfinished commits, finished files that are gone.

Nothing that a decision names is ever removed, and nothing at all is changed while a driver is alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from poundlock.checkpoint.commits import Retry, carry_out
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import DriverLock, newest_life
from poundlock.checkpoint.identity import Identity, read_identity
from poundlock.checkpoint.ledger import Ledger
from poundlock.checkpoint.outcome import Log, StandardLog
from poundlock.checkpoint.participant import JSON, Finding, Inspectable, Orphan, Participant
from poundlock.checkpoint.records import state_of
from poundlock.checkpoint.trouble import explained
from poundlock.errors import DefinitionError, TerminalError
from poundlock.storage.base import Storage
from poundlock.values import Clock

__all__ = ["FsckReport", "fsck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """What was found, and done.

    Args:
        root: the checkpoint folder.
        job: whose it is.
        records: how many decisions the ledger holds.
        checkpoint: the newest decided checkpoint, -1 if none.
        driver: who is running on it now, None if nobody is. What a running job is writing looks like orphans.
        orphans: per sink, output that no decision names; removed if `fixed`.
        findings: per sink, where what is there differs from what was decided.
        unchecked: per sink, why its finished files could not be compared.
        fixed: whether pending commits were carried out and orphans removed.
    """

    root: str
    job: Identity
    records: int
    checkpoint: int
    driver: str | None
    orphans: Mapping[str, Sequence[Orphan]]
    findings: Mapping[str, Sequence[Finding]]
    unchecked: Mapping[str, str]
    fixed: bool

    @property
    def clean(self) -> bool:
        """Whether nothing is left to do or to worry about."""
        return not any(self.findings.values()) and (self.fixed or not any(self.orphans.values()))

    def to_json(self) -> JSON:
        """Return the report as a JSON object."""
        value: JSON = asdict(self)
        return {**value, "clean": self.clean}


def fsck(
    storage: Storage,
    rebuild: Callable[[str, JSON], Participant | None],
    *,
    clock: Clock,
    fix: bool = False,
    log: Log | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> FsckReport:
    """Compare every decision of a job with what its sinks hold.

    Args:
        storage: the job's checkpoint folder.
        rebuild: returns a sink from its name and what its `describe_json` said at the newest start ({} if it said
            nothing); None if it cannot be rebuilt.
        clock: the time.
        fix: carry out what the newest decision still has to commit, then remove the orphans.
        log: where events go.
        sleep: waits so many seconds, between repeated commits.

    Raises:
        DefinitionError: no job ever ran there; or, with `fix`, a driver is alive or nothing can keep one out.
        TerminalError: the ledger is damaged, or a sink calls an orphan what its state names.
        TransientError: a commit's outcome stayed unknown, or storage failed.
    """
    with explained(f"checking {storage.root}"):
        identity = read_identity(storage)
        if identity is None:
            raise DefinitionError(
                f"{storage.root} is not a job's checkpoint: it has no job.json",
                next="give the folder that holds job.json and ledger/",
            )
        with _alone(storage, clock, required=fix) as driver:
            ledger = Ledger(storage)
            newest = ledger.newest()
            life = newest_life(storage)
            descriptions = dict(life.sinks) if life else {}
            names = sorted({*descriptions, *(newest.sinks if newest else ())})
            rebuilt = {name: rebuild(name, descriptions.get(name, {})) for name in names}
            sinks = {name: sink for name, sink in rebuilt.items() if sink is not None}
            if fix and newest is not None:
                carry_out(newest, sinks, retry=Retry(), sleep=sleep, log=log or StandardLog())
            findings = {name: list(_findings(name, sink, ledger)) for name, sink in sinks.items()}
            orphans = {name: _orphans(name, sink, newest, findings[name], fix=fix) for name, sink in sinks.items()}
            return FsckReport(
                root=storage.root,
                job=identity,
                records=newest.number + 1 if newest else 0,
                checkpoint=newest.checkpoint if newest else -1,
                driver=driver,
                orphans=orphans,
                findings=findings,
                unchecked=_unchecked(rebuilt),
                fixed=fix,
            )


@contextmanager
def _alone(storage: Storage, clock: Clock, *, required: bool) -> Iterator[str | None]:
    """Keep drivers out for a while; where that is not required, yield who is there instead."""
    if not required:
        yield DriverLock.holder(storage)
        return
    lock = DriverLock.acquire(storage, clock=clock)
    try:
        if not lock.held:
            raise DefinitionError(
                f"nothing can keep a driver away from {storage.root}: it cannot be locked",
                next="stop the job and start it again; a start removes orphans too",
            )
        yield None
    finally:
        lock.release()


def _findings(name: str, sink: Participant, ledger: Ledger) -> Iterator[Finding]:
    if not isinstance(sink, Inspectable):
        return
    for decision in ledger:
        for committable in decision.sinks[name].committables if name in decision.sinks else ():
            yield from sink.inspect(committable)


def _orphans(
    name: str, sink: Participant, newest: Decision | None, findings: Sequence[Finding], *, fix: bool
) -> Sequence[Orphan]:
    state = state_of(newest, name) if newest else {}
    found = sink.sweep(state, remove=False)
    kept = set(_names(state))
    wrong = [orphan.path for orphan in found if _last(orphan.path) in kept]
    if wrong:
        raise TerminalError(
            f"sink {name!r} calls {wrong[0]} an orphan, but the newest decision carries it on",
            next="nothing was removed; report this",
            participant=name,
        )
    if fix:
        return sink.sweep(state, remove=True)
    unfinished = any(finding.problem == "pending" for finding in findings) or not isinstance(sink, Inspectable)
    if newest is None or name not in newest.sinks or not unfinished:
        return found
    named = set(_names(list(newest.sinks[name].committables)))
    return [orphan for orphan in found if _last(orphan.path) not in named]


def _names(value: Any) -> Iterator[str]:
    """Yield the last part of every text in a JSON value; names of prepared output are unique by themselves."""
    if isinstance(value, str):
        yield _last(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield _last(key)
            yield from _names(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _names(item)


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _unchecked(rebuilt: Mapping[str, Participant | None]) -> dict[str, str]:
    reasons = {}
    for name, sink in rebuilt.items():
        if sink is None:
            reasons[name] = "the sink cannot be rebuilt without the job's own code"
        elif not isinstance(sink, Inspectable):
            reasons[name] = "the sink cannot compare its files with a decision"
    return reasons
