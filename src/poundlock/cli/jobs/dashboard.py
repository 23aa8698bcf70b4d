"""`poundlock dashboard`: one page for all jobs of this user on this machine, and for those of checkpoint roots, running or ended."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from poundlock.cli.job_lookup import KnownJob, folder_channel
from poundlock.cli.jobs.info import http_address
from poundlock.cli.options import Call, with_shared_options

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
    from poundlock.control.registry import Registry, write_whole
    from poundlock.dashboard.known_jobs import KnownJobs
    from poundlock.rest.server import RestServer, not_installed, read_token, take_port
    from poundlock.storage import open_storage

    settings = call.settings()
    if (missing := not_installed()) is not None:
        raise missing
    roots = [open_storage(folder).root for folder in root or ()]
    token = read_token(settings.rest_token_file)
    file = settings.rest_token_file or settings.state_dir / f"dashboard-{os.getpid()}.token"
    listening = take_port(settings.rest_bind_address, _PORT if port is None else port)
    ended = threading.Event()
    before = {each: signal.signal(each, lambda number, frame: ended.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    if token is None:
        token = secrets.token_urlsafe(32)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, token.encode())
    server = RestServer(listening, token)
    try:
        jobs = KnownJobs(Registry(settings.state_dir), roots, _way, folder_channel)

        def app() -> Any:
            from poundlock.dashboard.app import make_dashboard

            return make_dashboard(jobs, server.token)

        server.serve(app)
        address = http_address(*server.address)
        shown = {"address": address, "token_file": str(file.absolute())}
        # Behind the # it stays in the browser: no server gets it, and no log has it.
        call.output.show(f"Dashboard : {address}/#token={token}\nToken     : {file.absolute()}", shown)
        jobs.run(ended)
    finally:
        server.close()
        if settings.rest_token_file is None:
            file.unlink(missing_ok=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def _way(entry: JobEntry) -> ControlChannel:
    """Return the way to a job of the registry, as the commands for jobs take it."""
    return KnownJob(entry, lambda: entry).channel()
