"""`poundlock checkpoint`: a running job takes its next checkpoint now instead of at its interval."""

from __future__ import annotations

from poundlock.cli.job_lookup import RunningJobArgument, find_running
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output, Text


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
    known = find_running(job, define, config)
    id = known.entry.job_id
    if not json:
        output.line(f"Triggering checkpoint for job {id}.")
        output.line("Waiting for response...")
    number = known.channel().checkpoint()
    output.show(Text(text=f"Checkpoint {number} for job {id} completed.", data={"job_id": id, "checkpoint": number}))
