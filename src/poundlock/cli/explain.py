"""`poundlock explain`: the stages of a job and why each step runs where it does. Nothing is started."""

from __future__ import annotations

from poundlock.cli.options import ConfigOption, DefineOption, JobArgument, JsonOption
from poundlock.cli.output import Output, Text

__all__ = ["command"]


def command(
    job: JobArgument, json: JsonOption = False, define: DefineOption = None, config: ConfigOption = None
) -> None:
    """Show how a job would run: its stages, and why."""
    from poundlock.cli.loading import apply_settings, load_job
    from poundlock.config import load_settings

    settings = load_settings(define or (), config=config)
    found = load_job(job)
    apply_settings(found, settings)
    plan = found.explain()
    Output(json).show(Text(text=plan, data={"job": found.name, "plan": plan.splitlines()}))
