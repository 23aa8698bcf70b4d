"""`poundlock files`, `audit` and `fsck`: what a job's decisions say that its sinks hold, listed, proven against what is read back, and
mended where that is safe.

Only `fsck --fix` changes anything; what may be touched is the matter of `poundlock.audit.fsck`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.job_lookup import CheckpointArgument, find_checkpoint, rebuilder, rebuilt_sinks
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import plural
from poundlock.cli.progress_bar import has_bars, progress_bar
from poundlock.values import SystemClock, format_bytes, format_duration, utc_text

if TYPE_CHECKING:
    from poundlock.audit.audit import AuditReport, SinkAudit
    from poundlock.audit.fsck import FsckReport
    from poundlock.checkpoint.participant import Finding, Orphan
    from poundlock.connectors.files.manifest import ManifestEntry


_EVERY_S = 3.0


@with_shared_options
def files(
    path: CheckpointArgument,
    sink: Annotated[str | None, Option("--sink", metavar="NAME", help="Only the files of this sink.")] = None,
    sealed: Annotated[
        bool, Option("--sealed", help="List sealed buckets with their manifests instead of files.")
    ] = False,
    bucket: Annotated[
        list[str] | None, Option("--bucket", metavar="BUCKET", help="Only this bucket; may be given several times.")
    ] = None,
    wait: Annotated[bool, Option("--wait", help="Wait until each --bucket is sealed.")] = False,
    version: Annotated[
        int | None, Option("--version", min=1, help="With --wait: until their manifests have this version.")
    ] = None,
    timeout: Annotated[
        str | None, Option("--timeout", metavar="TIME", help="With --wait: at most so long, such as 10m.")
    ] = None,
    *,
    call: Call,
) -> int:
    """List the finished files of a job, or its sealed buckets.

    Each file with its rows, bytes, event-time bounds and the checkpoint that made it visible; each sealed bucket with the newest version of its manifest. With --wait the exit code is 0 once all are sealed, 1 if time ran out.
    """
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.cli.data import sealed_buckets
    from poundlock.connectors.files.manifest import finished_files

    options = sealed_buckets.WantedBuckets(sink, bucket or (), wait, version, timeout)
    if sealed or wait:
        return sealed_buckets.show(Ledger(find_checkpoint(path, call).storage), options, call.output)
    options.refuse_beside_files()
    finished = list(finished_files(Ledger(find_checkpoint(path, call).storage), sink=sink))
    if bucket:
        finished = [file for file in finished if file.bucket in bucket]
    call.output.show(_listed(finished), lambda: [asdict(file) for file in finished])
    return 0


def _listed(finished: Sequence[ManifestEntry]) -> Iterable[str]:
    yield f"{'checkpoint':>10}  {'rows':>10}  {'bytes':>12}  {'first event':24}  {'last event':24}  file"
    for file in finished:
        yield (
            f"{file.checkpoint:>10}  {file.rows:>10}  {file.bytes:>12}  {utc_text(file.min_event_ms):24}"
            f"  {utc_text(file.max_event_ms):24}  {file.root}/{file.path}"
        )
    rows, size = sum(file.rows for file in finished), sum(file.bytes for file in finished)
    yield f"{plural(len(finished), 'file')}, {plural(rows, 'row')}, {format_bytes(size)}"


@with_shared_options
def audit(
    path: CheckpointArgument,
    first: Annotated[int | None, Option("--from", min=0, help="First checkpoint to look at.")] = None,
    last: Annotated[int | None, Option("--to", min=0, help="Last checkpoint to look at.")] = None,
    *,
    call: Call,
) -> int:
    """Prove a job's ledger against its sinks.

    Every file and message that a decision made visible is read and compared by count and checksum; topics as read_committed readers see them. The exit code is 0 if everything agrees, 1 if something does not.
    """
    from poundlock.audit import audit as audits
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.driver.savepoints.handover import left

    checkpoint = find_checkpoint(path, call)
    sinks = rebuilt_sinks(checkpoint)
    with progress_bar(call.output, "audit") as bar:
        progress = bar.at if has_bars(call.output) else _Seldom(call.output.note)
        report = audits.audit(Ledger(checkpoint.storage), sinks, first=first, last=last, progress=progress)
    call.output.show(_audited(report, left(checkpoint.storage)), report.to_json)
    return 0 if report.agrees else 1


class _Seldom:
    """Lets a line through every few seconds, the first after as many: a short audit says nothing but its result."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._last = say, time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last >= _EVERY_S:
            self._say(text)
            self._last = time.monotonic()


def _audited(report: AuditReport, left: str | None) -> Iterable[str]:
    for name, rows in report.rows_read.items():
        yield f"source {name}: {rows:,} rows read"
    for name, sink in report.sinks.items():
        yield f"sink {name}: {sink.counts.account()}"
        if sink.unchecked:
            yield f"  not read back: {sink.unchecked}"
        else:
            wait = "wait" if left is None else f"went into the savepoint {left}"
            yield f"  {sink.visible:,} visible in {plural(sink.read_back, 'piece')}, read back; {sink.waiting_after:,} {wait}"
            yield from (f"  {text}" for text in _besides(sink, report.since))
    for name, wrong in report.disagreements:
        place = f"checkpoint {wrong.checkpoint}" if wrong.checkpoint is not None else "the whole"
        yield f"DISAGREES  {name or 'the ledger'}, {place}: {wrong.what}" + (f" ({wrong.path})" if wrong.path else "")
    span = f"checkpoints {report.first} to {report.last}"
    if report.first == report.last:
        span = "no checkpoint taken here" if report.first is None else f"checkpoint {report.first}"
    outcome = "everything agrees" if report.agrees else plural(len(report.disagreements), "disagreement")
    yield f"{span}, {plural(report.records, 'decision')}: {outcome}"
    if report.since is not None:
        yield f"not checked: the counts of checkpoints before {report.since}, and what they made visible; audit without --from does"


def _besides(sink: SinkAudit, since: int | None) -> Iterable[str]:
    """Yield what is neither agreement nor fault; `since` is the checkpoint the audit began with, where there were any before."""
    if sink.waiting_before and since is not None:
        yield (
            f"{sink.waiting_before:,} more were written before checkpoint {since} and waited when it began: "
            "read back where they became visible since, their counts not checked"
        )
    elif sink.waiting_before:
        yield f"{sink.waiting_before:,} of these were written before these decisions, as by the job of the savepoint that this one began with"
    if sink.removed:
        yield f"{sink.removed:,} of these removed by retention, not compared"
    if sink.again:
        yield f"{sink.again:,} aborted from outside: the next start produces them again"
    if sink.others:
        yield f"{sink.others:,} of other producers in the same topics"
    yield from (f"not compared: {text}" for text in sink.uncompared)


@with_shared_options
def fsck(
    path: CheckpointArgument,
    fix: Annotated[
        bool, Option("--fix", help="Finish what decisions say, then remove orphans. Stop the job first.")
    ] = False,
    *,
    call: Call,
) -> int:
    """Compare a job's decisions with its files.

    Lists orphans, commits that have not ended, and finished files and state files that are gone or changed. The exit code is 0 if nothing is left to do, 1 if something is. What a decision names is never removed.
    """
    from poundlock.audit import fsck as checks
    from poundlock.driver.savepoints.handover import left
    from poundlock.driver.savepoints.retained_checkpoints import newest_whole

    checkpoint = find_checkpoint(path, call)
    with progress_bar(call.output, "fsck") as bar:
        report = checks.fsck(
            checkpoint.storage,
            rebuilder(checkpoint),
            clock=SystemClock(),
            fix=fix,
            left=left(checkpoint.storage),
            progress=bar.of,
        )
        whole = newest_whole(checkpoint.storage) if checks.STATE in report.findings else None
    call.output.show(_checked(report, whole), {**report.to_json(), "whole": whole})
    return 0 if report.clean else 1


def _checked(report: FsckReport, whole: tuple[int, str] | None) -> Iterable[str]:
    label = "removed" if report.fixed else "orphan"
    for name, orphans in report.orphans.items():
        yield from (f"{label:9}  {name}  {orphan.path}  {_describe(report, orphan)}" for orphan in orphans)
    for name, findings in report.findings.items():
        yield from (f"{finding.problem:9}  {name}  {finding.path}{_sizes(finding)}" for finding in findings)
    for name, why in report.unchecked.items():
        yield f"{'unchecked':9}  {name}  {why}"
    yield _summary(report)
    if report.left is not None:
        yield f"the job ended with the savepoint {report.left}, which has what was pending"
    yield from _next(report, whole)


def _describe(report: FsckReport, orphan: Orphan) -> str:
    age = timedelta(seconds=max(0, report.time_ms - orphan.modified_ms) // 1000)
    return f"{format_bytes(orphan.bytes)}  {format_duration(_rounded(age))} old"


def _summary(report: FsckReport) -> str:
    orphans = [orphan for each in report.orphans.values() for orphan in each]
    findings = sum(len(each) for each in report.findings.values())
    return (
        f"{report.job.name}: {plural(report.records, 'decision')}, {plural(len(orphans), 'orphan')}"
        f" ({format_bytes(sum(orphan.bytes for orphan in orphans))}){' removed' if report.fixed else ''},"
        f" {plural(findings, 'finding')} in {report.root}"
    )


def _next(report: FsckReport, whole: tuple[int, str] | None) -> Iterable[str]:
    from poundlock.state.runs.run import from_whole  # not when only help is asked for

    problems = {finding.problem for findings in report.findings.values() for finding in findings}
    if report.refused:
        yield f"nothing was removed: {report.refused}"
    if report.clean:
        return
    if report.driver:
        yield f"{report.driver} is running on it: what it is writing now looks like orphans"
    if "damaged" in problems:
        yield f"Next: {'no copy of a checkpoint is whole: go on from a savepoint' if whole is None else from_whole(*whole)}"
    elif any(name not in report.orphans for name in report.unchecked):
        yield "Next: give the job's file instead, such as: poundlock fsck job.py"
    elif problems - {"pending"}:
        yield "Next: restore these files from a backup; poundlock files lists what they held"
    elif report.driver:
        yield "Next: stop the job and look again"
    elif not report.fixed and not report.refused:
        yield "Next: add --fix to finish what is pending and remove the orphans"


def _rounded(age: timedelta) -> timedelta:
    """Return an age that reads well: whole minutes, hours or days."""
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if age >= unit:
            return age // unit * unit
    return age


def _sizes(finding: Finding) -> str:
    if finding.problem != "size":
        return ""
    return f"  {finding.found_bytes} bytes instead of {finding.expected_bytes}"
