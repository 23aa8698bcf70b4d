"""`poundlock rest`: the REST interface of a job whose driver serves none that can be reached, from its checkpoint folder."""

from __future__ import annotations

from poundlock.cli.job_lookup import RunningJobArgument, find_job, folder_channel
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.rest_server import command_server


@with_shared_options
def command(job: RunningJobArgument, *, call: Call) -> None:
    """Serve a job's REST from its checkpoint folder, until Ctrl-C.

    For a driver on a cluster, or on another machine. Port, address and token are those of the settings rest.….
    """
    settings = call.settings()
    entry = find_job(job, call).entry
    with command_server(
        settings, "rest", port=settings.rest_port, job_id=entry.job_id, job=entry.name, note=call.output.note
    ) as served:
        from poundlock.rest.observed import Gateway
        from poundlock.storage import open_storage

        gateway = Gateway(open_storage(entry.checkpoint_dir), entry, folder_channel)
        served.server.start(gateway.observed)
        shown = {
            "job_id": entry.job_id,
            "rest": list(served.server.address),
            "token_file": str(served.token_file),
        }
        text = f"REST of job {entry.job_id} : {served.server.url}, token in {served.token_file}"
        call.output.show(text, shown)
        gateway.run(served.ended)
