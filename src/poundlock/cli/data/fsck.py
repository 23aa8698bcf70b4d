"""`poundlock fsck`: where a job's decisions and what its sinks hold differ; with --fix, what is safe to mend is mended.

What is looked at and what may be touched is `checkpoint.fsck`'s matter; here it is only asked for and shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.checkpoint_lookup import CheckpointArgument, find_checkpoint, rebuilder
from poundlock.cli.options import Call, with_shared_options
from poundlock.values import SystemClock, format_bytes, format_duration

if TYPE_CHECKING:
    from poundlock.audit.fsck import FsckReport
    from poundlock.checkpoint.participant import Finding, Orphan


@with_shared_options
def command(
    path: CheckpointArgument,
    fix: Annotated[
        bool, Option("--fix", help="Finish what decisions say, then remove orphans. Stop the job first.")
    ] = False,
    *,
    call: Call,
) -> int:
    """Compare a job's decisions with its files.

    Lists orphans, commits that have not ended, and finished files that are gone or changed. The exit code is 0 if nothing is left to do, 1 if something is. What a decision names is never removed.
    """
    from poundlock.audit.fsck import fsck
    from poundlock.driver.savepoints.handover import left

    checkpoint = find_checkpoint(path, call)
    report = fsck(
        checkpoint.storage, rebuilder(checkpoint), clock=SystemClock(), fix=fix, left=left(checkpoint.storage)
    )
    call.output.show(_lines(report), report.to_json)
    return 0 if report.clean else 1


def _lines(report: FsckReport) -> Iterable[str]:
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
    yield from _next(report)


def _describe(report: FsckReport, orphan: Orphan) -> str:
    age = timedelta(seconds=max(0, report.time_ms - orphan.modified_ms) // 1000)
    return f"{format_bytes(orphan.bytes)}  {format_duration(_rounded(age))} old"


def _summary(report: FsckReport) -> str:
    orphans = [orphan for each in report.orphans.values() for orphan in each]
    findings = sum(len(each) for each in report.findings.values())
    return (
        f"{report.job.name}: {report.records} decisions, {len(orphans)} orphans"
        f" ({format_bytes(sum(orphan.bytes for orphan in orphans))}){' removed' if report.fixed else ''},"
        f" {findings} findings in {report.root}"
    )


def _next(report: FsckReport) -> Iterable[str]:
    problems = {finding.problem for findings in report.findings.values() for finding in findings}
    if report.refused:
        yield f"nothing was removed: {report.refused}"
    if report.clean:
        return
    if report.driver:
        yield f"{report.driver} is running on it: what it is writing now looks like orphans"
    if any(name not in report.orphans for name in report.unchecked):
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
