"""`poundlock fsck`: what a job left behind that no decision names, and with --fix its removal.

A file that a decision names is never removed: before anything is swept, the newest decision is carried out.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, TerminalError
from poundlock.values import format_bytes

if TYPE_CHECKING:
    from poundlock.checkpoint.decision import Decision
    from poundlock.checkpoint.ledger import Ledger
    from poundlock.checkpoint.participant import Finding, Orphan, Participant
    from poundlock.storage import Storage

__all__ = ["Report", "command", "examine"]

# Kinds of sink, as `Inspectable.describe_json` names them, and the class whose `from_json` makes one again.
_KINDS = {"files": ("poundlock.connectors.files.sink", "FileSink")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found.

    Args:
        path: the checkpoint folder.
        fixed: whether orphans were removed and pending files made visible.
        orphans: per sink, output of this job that no decision names.
        findings: per sink, where the disk is not as decisions say.
    """

    path: str
    fixed: bool
    orphans: Mapping[str, Sequence[Orphan]]
    findings: Mapping[str, Sequence[Finding]]

    @property
    def clean(self) -> bool:
        """Whether nothing is left to do."""
        left = any(self.findings.values()) or (any(self.orphans.values()) and not self.fixed)
        return not left

    def to_json(self) -> Any:
        return {
            "path": self.path,
            "fixed": self.fixed,
            "clean": self.clean,
            "orphans": {name: [asdict(each) for each in found] for name, found in self.orphans.items()},
            "findings": {name: [asdict(each) for each in found] for name, found in self.findings.items()},
        }

    def lines(self) -> Iterable[str]:
        done = "removed" if self.fixed else "orphan"
        count = 0
        for name, orphans in self.orphans.items():
            for orphan in orphans:
                count += 1
                yield f"{done:8}  {name}  {orphan.path}  {format_bytes(orphan.bytes)}"
        for name, findings in self.findings.items():
            for finding in findings:
                yield f"{finding.problem:8}  {name}  {finding.path}{_sizes(finding)}"
        total = sum(orphan.bytes for found in self.orphans.values() for orphan in found)
        yield f"{count} orphans ({format_bytes(total)}) {'removed' if self.fixed else 'found'} in {self.path}"
        if count and not self.fixed:
            yield "Next: add --fix to remove them"


def command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Checkpoint folder of a job, or its file JOB.PY[:NAME].")],
    fix: Annotated[
        bool, typer.Option("--fix", help="Remove orphans and finish what the newest decision says.")
    ] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Compare every finished file, not only the newest.")] = False,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> int:
    """Find output of a job that no decision names.

    With --fix it is removed, after what the newest decision names was made visible. The exit code is 1 if anything is left.
    """
    from poundlock.storage import open_storage

    folder, participants = _subject(path, define or (), config)
    storage = open_storage(folder)
    report = examine(storage, participants, fix=fix, deep=deep)
    Output(json).show(report)
    return 0 if report.clean else 1


def examine(
    storage: Storage, participants: Mapping[str, Participant] | None = None, *, fix: bool = False, deep: bool = False
) -> Report:
    """Compare a job's decisions with what is there.

    Args:
        storage: the job's checkpoint folder.
        participants: its sinks by name; None = as its last start described them.
        fix: carry out the newest decision, then remove orphans. No driver may be running.
        deep: compare what every decision made visible, not only the newest one.

    Raises:
        DefinitionError: no job ran there, or (to fix) one is running now.
        TerminalError: the ledger is damaged.
    """
    from poundlock.checkpoint.identity import read_identity
    from poundlock.checkpoint.ledger import Ledger

    identity = read_identity(storage)
    if identity is None:
        raise DefinitionError(
            f"{storage.root} is no checkpoint of a job that has run", next="give the job's checkpoint folder or file"
        )
    ledger = Ledger(storage)
    newest = ledger.newest()
    if participants is None:
        participants = _described(storage, newest)
    # A sink finds its own hidden files by the job's id and its name.
    participants = {
        name: sink.bind(job_id=identity.job_id, sink=name) if hasattr(sink, "bind") else sink
        for name, sink in participants.items()
    }
    with _alone(storage, needed=fix):
        if fix and newest is not None:
            _carry_out(newest, participants)
        orphans = {name: _sweep(name, sink, newest, fix=fix) for name, sink in participants.items()}
        findings = {name: _inspect(name, sink, ledger, newest, deep=deep) for name, sink in participants.items()}
    return Report(path=storage.root, fixed=fix, orphans=orphans, findings=findings)


def _subject(path: str, define: Sequence[str], config: Any) -> tuple[str, Mapping[str, Participant] | None]:
    """Return the checkpoint folder that a path means and, where it is a job's file, the job's sinks."""
    file, _, _ = path.partition(":")
    if not file.endswith(".py"):
        return path, None
    from poundlock.cli.loading import load_job
    from poundlock.config import load_settings
    from poundlock.plan.plan import make_plan
    from poundlock.runtime.driver import checkpoint_dir, with_settings

    settings = load_settings(define, config=config)
    job = with_settings(load_job(path), settings)
    return checkpoint_dir(job, settings), make_plan(job).sinks


def _described(storage: Storage, newest: Decision | None) -> Mapping[str, Participant]:
    """Make the sinks again from what the job's last start wrote about them."""
    from poundlock.checkpoint.epoch import newest_life

    life = newest_life(storage)
    descriptions = dict(life.sinks) if life is not None else {}
    sinks: dict[str, Participant] = {}
    for name in {*descriptions, *(newest.sinks if newest is not None else ())}:
        kind = descriptions.get(name, {}).get("kind")
        if kind not in _KINDS:
            raise DefinitionError(
                f"sink {name!r} of {storage.root} cannot be made again from the checkpoint alone",
                next="give the job's file instead of its folder: poundlock fsck job.py",
            )
        module, made = _KINDS[kind]
        sinks[name] = getattr(importlib.import_module(module), made).from_json(descriptions[name])
    return sinks


@contextmanager
def _alone(storage: Storage, *, needed: bool) -> Iterator[None]:
    """Keep drivers out while something is changed."""
    if not needed:
        yield
        return
    from poundlock.checkpoint.epoch import DriverLock
    from poundlock.values import SystemClock

    lock = DriverLock.acquire(storage, clock=SystemClock())
    try:
        yield
    finally:
        lock.release()


def _carry_out(newest: Decision, participants: Mapping[str, Participant]) -> None:
    """Make visible what the newest decision names: only then is everything else an orphan."""
    for name, sink in newest.sinks.items():
        if sink.committables and name not in participants:
            raise TerminalError(
                f"the newest decision names files of sink {name!r}, which is not known here",
                next="give the job's file instead of its folder: poundlock fsck job.py",
            )
        for committable in sink.committables:
            participants[name].commit(committable)


def _sweep(name: str, sink: Participant, newest: Decision | None, *, fix: bool) -> Sequence[Orphan]:
    decided = newest.sinks.get(name) if newest is not None else None
    orphans = sink.sweep(decided.state if decided is not None else {}, remove=fix)
    if fix or decided is None:
        return orphans
    # Where the newest decision was not carried out, what it names looks like an orphan and is none.
    named = json.dumps(list(decided.committables), ensure_ascii=False)
    return [orphan for orphan in orphans if orphan.path.rpartition("/")[2] not in named]


def _inspect(name: str, sink: Participant, ledger: Ledger, newest: Decision | None, *, deep: bool) -> Sequence[Finding]:
    inspect = getattr(sink, "inspect", None)
    if newest is None or inspect is None:
        return []
    decisions = ledger if deep else [newest]
    return [
        finding
        for decision in decisions
        if name in decision.sinks
        for committable in decision.sinks[name].committables
        for finding in inspect(committable)
    ]


def _sizes(finding: Finding) -> str:
    if finding.problem != "size":
        return ""
    return f"  {finding.found_bytes} bytes instead of {finding.expected_bytes}"
