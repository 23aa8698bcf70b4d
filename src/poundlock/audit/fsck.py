"""Comparing a job's decisions with what is there: orphans, unfinished commits, finished files and state files that are gone or damaged.

Nothing that a decision names is ever removed, and nothing at all is changed while a driver is alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from poundlock.checkpoint.capabilities import Inspectable, bound
from poundlock.checkpoint.committer import Retry, commit_all
from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import DriverLock, described_sinks
from poundlock.checkpoint.identity import Identity, read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import state_of, state_parts, to_redo
from poundlock.checkpoint.outcome import Log, StandardLog
from poundlock.checkpoint.participant import JSON, Finding, Orphan, Participant
from poundlock.errors import DefinitionError, TerminalError
from poundlock.state.decided_state import followed
from poundlock.state.participant import damage
from poundlock.state.runs.run import damaged
from poundlock.storage.base import Storage
from poundlock.storage.storage_errors import explained
from poundlock.values import Clock

STATE = "keyed state"  # what it is called among the findings
_NAMED = 20  # so many damaged files are named


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """What there was, and what was done."""

    root: str
    job: Identity
    time_ms: int
    records: int
    checkpoint: int  # the newest decided checkpoint, -1 if none
    driver: str | None  # who is running on it now, None if nobody is. What a running job is writing looks like orphans.
    orphans: Mapping[str, Sequence[Orphan]]  # per sink, output that no decision names; removed if `fixed`
    findings: Mapping[str, Sequence[Finding]]  # per sink, and of STATE, what is there and not as it was decided
    unchecked: Mapping[str, str]  # per sink, why its finished files could not be compared
    fixed: bool  # whether pending commits were carried out and orphans removed
    refused: str | None = None  # why nothing was fixed although that was asked for
    # the savepoint with which the job ended: what it carried hidden is there, and what is still in its sinks' folders is
    # an orphan. None if it did not end with one.
    left: str | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing is left to do or to worry about; a sink that nobody could look at is a worry."""
        left = not self.fixed and any(self.orphans.values())
        unknown = any(name not in self.orphans for name in self.unchecked)
        return not (left or unknown or any(self.findings.values()))

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
    left: str | None = None,
    log: Log | None = None,
    sleep: Callable[[float], None] = time.sleep,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FsckReport:
    """Compare every decision of a job with what its sinks hold.

    Args:
        rebuild: returns a sink from its name and what its `describe_json` gave last ({} if nothing); None if it
            cannot be rebuilt. The sink is bound to the job here.
        fix: carry out what is decided and not done, then remove the orphans.
        left: the savepoint to which the job left all that it carried hidden.
        sleep: waits so many seconds, between repeated commits.
        progress: takes how many decisions of how many have been looked at, often; with `fix`, first how many are carried out.

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
            _check_records(ledger)
            newest = ledger.newest()
            rebuilt = rebuilt_sinks(storage, identity, newest, rebuild)
            sinks = {name: sink for name, sink in rebuilt.items() if sink is not None}
            refused = _commit_all(ledger, newest, sinks, sleep, log or StandardLog(), progress) if fix else None
            # What a living driver carries on may be finished before it is looked at.
            orphans, named, findings = _look(
                ledger, sinks, newest, carried=driver is None, left=left is not None, progress=progress
            )
            if left is None and (wrong := _damaged_state(storage, ledger)):
                findings[STATE] = wrong
            fixed = fix and refused is None
            if fixed and named:
                fixed, refused = False, f"{named[0].path} would be removed, but a decision names it"
            for name, sink in sinks.items() if fixed else ():
                sink.sweep({} if left is not None else state_of(newest, name), remove=True)
            return FsckReport(
                root=storage.root,
                job=identity,
                time_ms=clock.now_ms(),
                records=newest.number + 1 if newest else 0,
                checkpoint=newest.checkpoint if newest else -1,
                driver=driver,
                orphans=orphans,
                findings=findings,
                unchecked=_unchecked(rebuilt),
                fixed=fixed,
                refused=refused,
                left=left,
            )


def _check_records(ledger: Ledger) -> None:
    """Raise TerminalError if records are damaged, and name all of them: without one nothing can be compared."""
    wrong = ledger.damaged()
    if not wrong:
        return
    what = "; ".join(wrong[:_NAMED]) + (f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else "")
    raise TerminalError(
        what if len(wrong) == 1 else f"{len(wrong)} files of the ledger are damaged: {what}",
        next="restore the file from a backup, without it nobody can know what was committed; then look once more",
    )


@contextmanager
def _alone(storage: Storage, clock: Clock, *, required: bool) -> Iterator[str | None]:
    """Keep drivers out for a while; where that is not required, yield who is there instead."""
    driver = DriverLock.holder(storage)
    if not required:
        yield driver
        return
    if driver is not None:
        raise DefinitionError(
            f"{driver} is running on {storage.root}: nothing is removed under a living driver",
            next="stop the job first; its own next start removes orphans too",
        )
    with DriverLock.acquire(storage, clock=clock) as lock:
        if not lock.held:
            raise DefinitionError(
                f"nothing can keep a driver away from {storage.root}: it cannot be locked",
                next="stop the job and start it again; a start removes orphans too",
            )
        yield None


def rebuilt_sinks(
    storage: Storage, identity: Identity, newest: Decision | None, rebuild: Callable[[str, JSON], Participant | None]
) -> dict[str, Participant | None]:
    """Return every sink the job has, or had and decided for; a sink finds its own files by the job's id and its name."""
    decided = newest.sinks if newest else {}
    descriptions = described_sinks(storage, decided)
    sinks: dict[str, Participant | None] = {}
    for name in sorted({*descriptions, *decided}):
        sink = rebuild(name, descriptions.get(name, {}))
        sinks[name] = None if sink is None else bound(sink, job_id=identity.job_id, sink=name)
    return sinks


def _commit_all(
    ledger: Ledger,
    newest: Decision | None,
    sinks: Mapping[str, Participant],
    sleep: Callable[[float], None],
    log: Log,
    progress: Callable[[int, int], None],
) -> str | None:
    """Make visible what decisions name: only then is the rest an orphan. Return why that cannot be done, if it cannot."""
    if newest is None:
        return None
    ledger.settle(newest.number)
    try:
        for decision in _counted(ledger, newest, progress):
            # By the protocol only the newest has work left; older ones do where somebody restored files.
            if decision.number == newest.number or any(f.problem == "pending" for _, f in _inspect(decision, sinks)):
                commit_all(decision, sinks, retry=Retry(), sleep=sleep, log=log)
    except TerminalError as error:
        return error.what
    return None


def _look(
    ledger: Ledger,
    sinks: Mapping[str, Participant],
    newest: Decision | None,
    *,
    carried: bool,
    left: bool,
    progress: Callable[[int, int], None],
) -> tuple[Mapping[str, Sequence[Orphan]], Sequence[Orphan], dict[str, list[Finding]]]:
    """Return orphans, those of them that a decision names although their sink has no use for them, and what is not as decided."""
    swept = {name: _sweep(name, sink, None if left else newest) for name, sink in sinks.items()}
    findings: dict[str, list[Finding]] = {name: [] for name in sinks}
    named: list[Orphan] = []
    for decision in _counted(ledger, newest, progress):
        for name, finding in _inspect(decision, sinks):
            findings[name].append(finding)
        for name, orphaned in swept.items():
            if orphaned and name in decision.sinks:
                named += _named(orphaned, list(decision.sinks[name].committables))
    for name, sink in sinks.items():
        if carried and not left and newest is not None and isinstance(sink, Inspectable):
            wrong = sink.inspect_state(state_of(newest, name))
            # Where a driver has begun meanwhile, what was carried on is finished.
            if wrong and ledger.newest() == newest:
                findings[name] += wrong
    orphans = {name: [orphan for orphan in orphaned if orphan not in named] for name, orphaned in swept.items()}
    return orphans, named, findings


def _counted(ledger: Ledger, newest: Decision | None, progress: Callable[[int, int], None]) -> Iterator[Decision]:
    """Yield all decisions, and say how many of how many there have been."""
    first = ledger.first()
    for decision in ledger:
        if newest is not None:
            progress(decision.number - first, newest.number - first + 1)
        yield decision


def _damaged_state(storage: Storage, ledger: Ledger) -> list[Finding]:
    """Look at the state files that the next start needs; a job that runs merges some away while they are looked at."""
    while True:
        newest = ledger.newest()
        known, before = followed(state_parts(ledger, newest))
        manifests = [*(known or {}).values(), *((before or {}).values() if to_redo(newest) else ())]
        result = {}
        with suppress(FileNotFoundError):  # it went while it was looked at, so there is a newer decision
            for manifest in manifests:
                for file, how in damage(storage, manifest.files, digests=True):
                    what = damaged(file, how, sorted(manifest.operators)).what
                    result[file.name] = Finding("damaged", what, file.bytes)
            if not result or ledger.newest() == newest:
                return list(result.values())


def _inspect(decision: Decision, sinks: Mapping[str, Participant]) -> Iterator[tuple[str, Finding]]:
    for name, part in decision.sinks.items():
        sink = sinks.get(name)
        if part.committables and isinstance(sink, Inspectable):
            for committable in part.committables:
                yield from ((name, finding) for finding in sink.inspect(committable))


def _sweep(name: str, sink: Participant, newest: Decision | None) -> Sequence[Orphan]:
    state = state_of(newest, name)
    orphans = sink.sweep(state, remove=False)
    wrong = _named(orphans, state)
    if wrong:
        raise TerminalError(
            f"sink {name!r} calls {wrong[0].path} an orphan, but the newest decision carries it on",
            next="nothing was removed; report this",
            participant=name,
        )
    return orphans


def _named(orphans: Sequence[Orphan], value: Any) -> list[Orphan]:
    """Return the orphans that a JSON value names; names of prepared output are unique by themselves."""
    names: Collection[str] = set(_names(value)) if orphans else ()
    return [orphan for orphan in orphans if _last(orphan.path) in names]


def _names(value: Any) -> Iterator[str]:
    """Yield the last part of every text in a JSON value."""
    if isinstance(value, str):
        yield _last(value)
    elif isinstance(value, Mapping):
        yield from _names([*value, *value.values()])
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
