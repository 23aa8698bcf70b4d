"""`poundlock dashboard`: one page for all jobs of this user on this machine, and for those of checkpoint roots, running or ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.job_lookup import KnownJob, folder_channel
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.rest_server import command_server

if TYPE_CHECKING:
    from poundlock.control.channel import ControlChannel
    from poundlock.control.registry import JobEntry

_PORT = 8080


@with_shared_options
def command(
    root: Annotated[
        list[str] | None,
        Option("--root", metavar="FOLDER", help="A checkpoint folder, or one with several in it; may be repeated."),
    ] = None,
    port: Annotated[
        int | None, Option("--port", min=0, max=65535, help=f"Port; 0 = any free one; default: {_PORT}.")
    ] = None,
    *,
    call: Call,
) -> None:
    """Serve a page of all jobs, until Ctrl-C.

    Running and ended ones of this user on this machine, and those of the folders given. Address and token are those of the settings rest.….
    """
    from poundlock.storage import open_storage

    settings = call.settings()
    roots = [open_storage(folder).root for folder in root or ()]
    port = _PORT if port is None else port
    with command_server(settings, "dashboard", port=port, job_id="", job="dashboard", note=call.output.note) as served:
        from poundlock.control.registry import Registry
        from poundlock.dashboard.app import make_dashboard
        from poundlock.dashboard.known_jobs import KnownJobs

        jobs = KnownJobs(Registry(settings.state_dir), roots, _way, folder_channel)
        server, file = served.server, served.token_file
        server.serve(partial(make_dashboard, jobs))
        # Behind the # it stays in the browser: no server gets it, and no log has it.
        shown = {"address": server.url, "token_file": str(file)}
        call.output.show(f"Dashboard : {server.url}/#token={server.token}\nToken     : {file}", shown)
        jobs.run(served.ended)


def _way(entry: JobEntry) -> ControlChannel:
    """Return the way to a job of the registry, as the commands for jobs take it."""
    return KnownJob(entry, lambda: entry).channel()
