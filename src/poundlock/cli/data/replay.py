"""`poundlock replay`: runs one checkpoint's input once more, without sinks, and says what differs from what was committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from poundlock.cli.job_lookup import find_checkpoint
from poundlock.cli.options import Call, JobArgument, ParallelismOption, with_shared_options
from poundlock.cli.output import plural
from poundlock.cli.progress_bar import progress_bar
from poundlock.errors import DefinitionError
from poundlock.values import utc_text

if TYPE_CHECKING:
    from poundlock.audit.write_totals import ReplayReport, SinkReplay


@with_shared_options
def command(
    job: JobArgument,
    checkpoint: Annotated[int, Argument(metavar="N", min=0, help="Number of the checkpoint.")],
    show: Annotated[int, Option("--show", min=0, help="Print so many records of each sink.")] = 0,
    *,
    call: Call,
    parallelism: ParallelismOption = None,
) -> int:
    """Run a checkpoint once more, and compare.

    It runs on this machine with the job's code as it is now; nothing is written, and the job may run meanwhile. The exit code is 0 if all is as committed, 1 if something differs.
    """
    from poundlock.driver.driver import with_settings
    from poundlock.driver.interactive.replay import replay

    settings = call.settings(parallelism=parallelism)
    target = find_checkpoint(job, call)
    if target.job is None:
        raise DefinitionError(f"{job} is no file of a job, and a replay needs its code", next="give the file: job.py")
    with progress_bar(call.output, f"checkpoint {checkpoint} once more") as bar:
        report = replay(
            with_settings(target.job, settings),
            target.identity,
            checkpoint,
            settings=settings,
            show=show,
            say=bar.say,
        )
    call.output.show(_lines(report), report.to_json)
    return 0 if report.agrees else 1


def _lines(report: ReplayReport) -> Iterable[str]:
    yield f"checkpoint {report.checkpoint} of {report.job}, decision {report.record} of {utc_text(report.time_ms)}"
    for number in report.again:
        yield f"  part of it was aborted from outside and produced again: decision {number}"
    for name, (then, now) in report.rows_read.items():
        if then is not None or now is not None:
            yield f"source {name}: {_count(now if now is not None else then)} rows read"
    for name, sink in report.sinks.items():
        yield from _sink(name, sink)
    for name, why in report.left_out.items():
        yield f"sink {name}: left out, {why}"
    for wrong in report.differences:
        yield f"DIFFERS  {wrong.sink}, {wrong.figure}: {_count(wrong.committed)} committed, {_count(wrong.now)} now"
    outcome = "as committed" if report.agrees else plural(len(report.differences), "difference")
    yield f"checkpoint {report.checkpoint}: {outcome}"


def _sink(name: str, sink: SinkReplay) -> Iterable[str]:
    wrote = sink.now.written
    size = f", {_count(wrote.bytes)} bytes, digest {wrote.digest or '-'}" if wrote and wrote.bytes is not None else ""
    yield f"sink {name}: {sink.now.counts.account()}{size}"
    if sink.committed.written is None or sink.now.written is None:
        yield "  only rows are compared: bytes and digests are not known of it"
    for text in sink.shown:
        yield f"  {text}"


def _count(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else str(number)
