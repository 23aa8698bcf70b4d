"""`poundlock stop`: the running checkpoint and all pending files are finished, then the job ends. What the first SIGTERM does."""

from __future__ import annotations

from typing import Annotated

import typer

from poundlock.cli.job_lookup import RunningJobArgument, await_end, failed, find_running, saved, take_savepoint
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output, Text
from poundlock.errors import PoundlockError


def command(
    job: RunningJobArgument,
    directory: Annotated[
        str | None,
        typer.Option("-p", "--savepoint-path", metavar="DIR", help="Take a savepoint first, in this folder."),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain",
            help="Fire every window and finish all pending files before the savepoint: for the end of a pipeline.",
        ),
    ] = False,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> int:
    """Stop a job cleanly and wait for its end.

    The running checkpoint and all pending files are finished; with a savepoint, pending files go into it instead.
    """
    output = Output(json)
    known = find_running(job, define, config)
    entry = known.entry
    if directory is not None or drain:
        if not json:
            output.line(f'Suspending job "{entry.job_id}" with a CANONICAL savepoint.')
        output.show(saved(entry, take_savepoint(known, directory, then="stop", drain=drain)))
        return 0
    if not json:
        output.line(f"Stopping job {entry.job_id}.")
    known.channel().stop()
    ended = await_end(known, output)
    assert ended is not None
    if ended.state == "FAILED":
        return failed(ended, output)
    if ended.state == "CANCELED":
        raise PoundlockError(
            f"job {ended.job_id} was cancelled meanwhile; pending data waits for the next start",
            next=f"start it again: poundlock run {ended.job_file}",
        )
    newest = ended.progress.get("checkpoint")
    upto = "" if newest is None else f" Newest checkpoint: {newest}."
    output.show(
        Text(
            text=f"Stopped job {ended.job_id}.{upto}",
            data={"job_id": ended.job_id, "state": ended.state, "checkpoint": newest},
        )
    )
    return 0
