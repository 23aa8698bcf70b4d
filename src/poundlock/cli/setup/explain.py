"""`poundlock explain`: the stages of a job and why each step runs where it does. Nothing is started."""

from __future__ import annotations

from poundlock.cli.options import Call, JobArgument, with_shared_options


@with_shared_options
def command(job: JobArgument, *, call: Call) -> None:
    """Show how a job would run: its stages, and why."""
    from poundlock.cli.job_loader import load_job
    from poundlock.driver.driver import with_settings
    from poundlock.plan.explain import explain, explain_json

    loaded = with_settings(load_job(job), call.settings())
    call.output.show("" if call.output.as_json else explain(loaded), lambda: explain_json(loaded))
