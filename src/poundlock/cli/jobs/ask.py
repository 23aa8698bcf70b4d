"""`poundlock checkpoint`, `stop` and `cancel`: what a running job is asked for, and waited for until it is done."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from poundlock.cli.job_lookup import (
    RunningJobArgument,
    await_end,
    failed,
    find_running,
    savepoint_folder,
    show_saved,
    take_savepoint,
)
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.progress_bar import progress_bar
from poundlock.errors import PoundlockError

_PATIENCE_S = 60.0


@with_shared_options
def checkpoint(job: RunningJobArgument, *, call: Call) -> None:
    """Have a job take a checkpoint now.

    Waits until it is decided and committed.
    """
    known = find_running(job, call)
    id = known.entry.job_id
    call.output.say(f"Triggering checkpoint for job {id}.")
    call.output.say("Waiting for response...")
    number = known.channel().checkpoint()
    call.output.show(f"Checkpoint {number} for job {id} completed.", {"job_id": id, "checkpoint": number})


@with_shared_options
def stop(
    job: RunningJobArgument,
    directory: Annotated[
        str | None, Option("-p", "--savepoint-path", metavar="DIR", help="Take a savepoint first, in this folder.")
    ] = None,
    drain: Annotated[
        bool,
        Option(
            "--drain",
            help="Fire every window and finish all pending files before the savepoint: for the end of a pipeline.",
        ),
    ] = False,
    *,
    call: Call,
) -> int:
    """Stop a job cleanly and wait for its end.

    The running checkpoint and all pending files are finished; with a savepoint, pending files go into it instead.
    """
    output, known = call.output, find_running(job, call)
    entry = known.entry
    if directory is not None or drain:
        output.say(f'Suspending job "{entry.job_id}" with a CANONICAL savepoint.')
        with progress_bar(output, f"savepoint of {entry.name}"):
            path = take_savepoint(known, directory, then="stop", drain=drain)
        show_saved(entry, path, output, drained=drain)
        return 0
    output.say(f"Stopping job {entry.job_id}.")
    known.channel().ask("stop")
    ended = await_end(known, output)
    assert ended is not None
    if ended.state == "FAILED":
        return failed(ended, output)
    if ended.state == "CANCELED":
        from poundlock.control.driver_status import start_command

        raise PoundlockError(
            f"job {ended.job_id} was cancelled meanwhile; pending data waits for the next start",
            next=f"start it again: {start_command(ended)}",
        )
    newest = ended.progress.get("checkpoint")
    upto = "" if newest is None else f" Newest checkpoint: {newest}."
    data = {"job_id": ended.job_id, "state": ended.state, "checkpoint": newest}
    output.show(f"Stopped job {ended.job_id}.{upto}", data)
    return 0


@with_shared_options
def cancel(
    job: RunningJobArgument,
    directory: Annotated[
        str | None, Option("-s", "--with-savepoint", metavar="DIR", help="Take a savepoint first, in this folder.")
    ] = None,
    *,
    call: Call,
) -> int:
    """End a job at once and wait for it.

    Pending data stays hidden for the next start; nothing is lost.
    """
    output, known = call.output, find_running(job, call)
    entry = known.entry
    if directory is not None:
        output.say(f"Cancelling job {entry.job_id} with CANONICAL savepoint to {savepoint_folder(directory)}.")
        with progress_bar(output, f"savepoint of {entry.name}"):
            path = take_savepoint(known, directory, then="cancel")
        output.say(f"Cancelled job {entry.job_id}. Savepoint stored in {path}.")
        show_saved(entry, path, output)
        return 0
    output.say(f"Cancelling job {entry.job_id}.")
    known.channel().ask("cancel")
    ended = await_end(known, output, _PATIENCE_S)
    if ended is None:
        raise PoundlockError(
            f"job {entry.job_id} has not ended within {_PATIENCE_S:.0f} s",
            next=f"end its process, nothing is lost: kill -9 {entry.pid}"
            if entry.application is None
            else f"end it, nothing is lost: yarn application -kill {entry.application}",
        )
    if ended.state == "FAILED":
        return failed(ended, output)
    cancelled = ended.state == "CANCELED"
    text = f"Cancelled job {ended.job_id}." if cancelled else f"Job {ended.job_id} finished before that."
    output.show(text, {"job_id": ended.job_id, "state": ended.state})
    return 0
