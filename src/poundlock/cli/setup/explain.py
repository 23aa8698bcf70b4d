"""`poundlock explain`: the stages of a job and why each step runs where it does. Nothing is started."""

from __future__ import annotations

from poundlock.cli.options import ConfigOption, DefineOption, JobArgument, JsonOption
from poundlock.cli.output import Output, Text


def command(
    job: JobArgument, json: JsonOption = False, define: DefineOption = None, config: ConfigOption = None
) -> None:
    """Show how a job would run: its stages, and why."""
    from poundlock.cli.job_loader import load_job
    from poundlock.config import load_settings
    from poundlock.driver.driver import with_settings
    from poundlock.plan.explain import explain, explain_json

    loaded = with_settings(load_job(job), load_settings(define or (), config=config))
    Output(json).show(Text(text="" if json else explain(loaded), data=explain_json(loaded) if json else None))
