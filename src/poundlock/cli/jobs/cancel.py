"""`poundlock cancel`: a job ends at once. Pending data stays hidden for the next start, and nothing is lost."""

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

_PATIENCE_S = 60.0


def command(
    job: RunningJobArgument,
    directory: Annotated[
        str | None,
        typer.Option("-s", "--with-savepoint", metavar="DIR", help="Take a savepoint first, in this folder."),
    ] = None,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> int:
    """End a job at once and wait for it.

    Pending data stays hidden for the next start; nothing is lost.
    """
    from poundlock.rest.client import NoAnswer

    output = Output(json)
    registry, entry = find_running(job, define, config)
    if directory is not None:
        folder = folder_of(directory)
        if not json:
            output.line(f"Cancelling job {entry.job_id} with CANONICAL savepoint to {folder}.")
        path = trigger_savepoint(registry, entry, "/savepoints", {"target-directory": folder, "cancel-job": True})
        await_end(registry, entry, output)
        output.show(saved(entry, path))
        return 0
    if not json:
        output.line(f"Cancelling job {entry.job_id}.")
    folder_of_job = folder_client(entry)
    try:
        client = None if folder_of_job is not None else client_of(entry)
        if client is not None:
            client.patch("?mode=cancel")
    except NoAnswer:
        client = None
    if folder_of_job is not None:
        folder_of_job.ask("cancel")
    elif client is None:
        # Two of one kind may arrive as one.
        send(entry, signal.SIGTERM)
        send(entry, signal.SIGINT)
    ended = await_end(registry, entry, output, _PATIENCE_S)
    if ended is None:
        raise PoundlockError(
            f"job {entry.job_id} has not ended within {_PATIENCE_S:.0f} s",
            next=f"end its process, nothing is lost: kill -9 {entry.pid}"
            if entry.application is None
            else f"end it, nothing is lost: yarn application -kill {entry.application}",
        )
    if ended.state == "FAILED":
        return failed(ended, output)
    text = (
        f"Cancelled job {ended.job_id}." if ended.state == "CANCELED" else f"Job {ended.job_id} finished before that."
    )
    output.show(Text(text=text, data={"job_id": ended.job_id, "state": ended.state}))
    return 0
