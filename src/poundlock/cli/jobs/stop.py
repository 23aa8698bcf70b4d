"""`poundlock stop`: the running checkpoint and all pending files are finished, then the job ends. What the first SIGTERM does."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from poundlock.cli.job_lookup import (
    RunningJobArgument,
    await_end,
    client_of,
    failed,
    find_running,
    folder_client,
    folder_of,
    saved,
    send,
    trigger_savepoint,
)
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
    from poundlock.rest.client import NoAnswer

    output = Output(json)
    registry, entry = find_running(job, define, config)
    if directory is not None or drain:
        if not json:
            output.line(f'Suspending job "{entry.job_id}" with a CANONICAL savepoint.')
        body = {"drain": drain, **({} if directory is None else {"targetDirectory": folder_of(directory)})}
        path = trigger_savepoint(registry, entry, "/stop", body)
        await_end(registry, entry, output)
        output.show(saved(entry, path))
        return 0
    if not json:
        output.line(f"Stopping job {entry.job_id}.")
    folder_of_job = folder_client(entry)
    try:
        client = None if folder_of_job is not None else client_of(entry)
        if client is not None:
            client.post("/stop")
    except NoAnswer:
        client = None
    if folder_of_job is not None:
        folder_of_job.ask("stop")
    elif client is None:
        send(entry, signal.SIGTERM)
    ended = await_end(registry, entry, output)
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
