"""`poundlock cancel`: a job ends at once. Pending data stays hidden for the next start, and nothing is lost."""

from __future__ import annotations

from typing import Annotated

import typer

from poundlock.cli.job_lookup import (
    RunningJobArgument,
    await_end,
    failed,
    find_running,
    saved,
    savepoint_folder,
    take_savepoint,
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
    output = Output(json)
    known = find_running(job, define, config)
    entry = known.entry
    if directory is not None:
        folder = savepoint_folder(directory)
        if not json:
            output.line(f"Cancelling job {entry.job_id} with CANONICAL savepoint to {folder}.")
        output.show(saved(entry, take_savepoint(known, directory, then="cancel")))
        return 0
    if not json:
        output.line(f"Cancelling job {entry.job_id}.")
    known.channel().cancel()
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
    text = (
        f"Cancelled job {ended.job_id}." if ended.state == "CANCELED" else f"Job {ended.job_id} finished before that."
    )
    output.show(Text(text=text, data={"job_id": ended.job_id, "state": ended.state}))
    return 0
