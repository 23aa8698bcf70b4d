"""`poundlock rest`: the REST interface of a job whose driver serves none that can be reached, from its checkpoint folder."""

from __future__ import annotations

import os
import secrets
import signal
import threading

from poundlock.cli.job_lookup import RunningJobArgument, find_job, folder_channel
from poundlock.cli.options import Call, with_shared_options


@with_shared_options
def command(job: RunningJobArgument, *, call: Call) -> None:
    """Serve a job's REST from its checkpoint folder, until Ctrl-C.

    For a driver on a cluster, or on another machine. Port, address and token are those of the settings rest.….
    """
    from poundlock.control.operations_log import OperationsLog
    from poundlock.control.registry import write_whole
    from poundlock.rest.access.access import Access
    from poundlock.rest.observed import Gateway
    from poundlock.rest.server import RestServer, not_installed, take_port
    from poundlock.storage import open_storage

    settings = call.settings()
    entry = find_job(job, call).entry
    if (missing := not_installed()) is not None:
        raise missing
    token, file = secrets.token_urlsafe(32), settings.state_dir / f"rest-{os.getpid()}.token"
    listening = take_port(settings.rest_bind_address, settings.rest_port)
    try:
        access = Access.of(settings, listening.getsockname()[0])
    except BaseException:
        listening.close()
        raise
    ended = threading.Event()
    before = {each: signal.signal(each, lambda number, frame: ended.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, token.encode())
    operations = OperationsLog(
        path=settings.operations_log, job_id=entry.job_id, job=entry.name, say=lambda line: call.output.note(line)
    )
    server = RestServer(listening, token, access, operations)
    try:
        gateway = Gateway(open_storage(entry.checkpoint_dir), entry, folder_channel)
        server.start(gateway.observed)
        host, port = server.address
        shown = {"job_id": entry.job_id, "rest": [host, port], "token_file": str(file.absolute())}
        text = f"REST of job {entry.job_id} : {server.url}, token in {file.absolute()}"
        call.output.show(text, shown)
        gateway.run(ended)
    finally:
        server.close()
        file.unlink(missing_ok=True)
        for number, handler in before.items():
            signal.signal(number, handler)
