"""`poundlock checkpoint`: a running job takes its next checkpoint now instead of at its interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from poundlock.cli.job_lookup import RunningJobArgument, answering, find_running, folder_client
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output, Text
from poundlock.errors import PoundlockError

if TYPE_CHECKING:
    from poundlock.control.registry import JobEntry
    from poundlock.rest.client import Client


_POLL_S = 0.1


def command(
    job: RunningJobArgument,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """Have a job take a checkpoint now.

    Waits until it is decided and committed.
    """
    output = Output(json)
    _, entry = find_running(job, define, config)
    folder = folder_client(entry)
    if folder is None:
        client = answering(entry, "so it can be stopped and cancelled only")
        ask: Callable[[], Any] = partial(_asked, client, entry)
    else:
        ask = partial(folder.ask, "checkpoint")
    if not json:
        output.line(f"Triggering checkpoint for job {entry.job_id}.")
        output.line("Waiting for response...")
    number = ask()
    output.show(
        Text(
            text=f"Checkpoint {number} for job {entry.job_id} completed.",
            data={"job_id": entry.job_id, "checkpoint": number},
        )
    )


def _asked(client: Client, entry: JobEntry) -> int:
    """Ask a job by REST, wait for the checkpoint, and return its number. Raises PoundlockError if none was taken."""
    asked = client.post("/checkpoints")["request-id"]
    while True:
        found: dict[str, Any] = client.get(f"/checkpoints/{asked}")
        if found["status"]["id"] != "IN_PROGRESS":
            break
        time.sleep(_POLL_S)
    cause = found["operation"].get("failure-cause")
    if cause is not None:
        what, _, next = cause["stack-trace"].partition("\nNext: ")
        raise PoundlockError(f"no checkpoint of job {entry.job_id} was taken: {what}", next=next)
    number: int = found["operation"]["checkpointId"]
    return number
