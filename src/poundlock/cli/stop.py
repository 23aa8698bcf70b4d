"""`poundlock stop`: the running checkpoint and all pending files are finished, then the job ends. What the first SIGTERM does."""

from __future__ import annotations

import signal

from poundlock.cli.jobs import RunningJobArgument, await_end, client_of, failed, find_running, send
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output, Text
from poundlock.errors import PoundlockError

__all__ = ["command"]


def command(
    job: RunningJobArgument,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> int:
    """Stop a job cleanly and wait for its end.

    The running checkpoint and all pending files are finished.
    """
    from poundlock.rest.client import NoAnswer

    output = Output(json)
    registry, entry = find_running(job, define, config)
    if not json:
        output.line(f"Stopping job {entry.job_id}.")
    try:
        client = client_of(entry)
        if client is not None:
            client.post("/stop")
    except NoAnswer:
        client = None
    if client is None:
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
