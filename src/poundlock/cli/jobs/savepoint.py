"""`poundlock savepoint`: a running job's whole state into a folder of its own; the job goes on. And the folder's removal."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from poundlock.cli.job_lookup import find_running, show_saved, take_savepoint
from poundlock.cli.jobs import savepoint_edit, savepoint_inspect
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError

_HELP = """Take a savepoint of a running job, or inspect one.

`poundlock savepoint JOB [DIR]` takes one; `poundlock savepoint -d PATH` removes one.
"""
_TAKE = "take"


class _Group(TyperGroup):
    """Verbs beside a job: whatever is no verb and no call for help is what `take` is given."""

    default = _TAKE

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `take` before arguments that begin with no verb."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(name="savepoint", cls=_Group, help=_HELP, rich_markup_mode=None, add_completion=False)


@app.command(_TAKE)
@with_shared_options
def command(
    job: Annotated[
        str | None,
        Argument(metavar="[JOB]", help="A job's id, the beginning of it, its name, or its checkpoint folder."),
    ] = None,
    directory: Annotated[
        str | None,
        Argument(metavar="[DIR]", help="Folder in which the savepoint is made; default: in the state directory."),
    ] = None,
    dispose: Annotated[str | None, Option("-d", "--dispose", metavar="PATH", help="Remove a savepoint.")] = None,
    *,
    call: Call,
) -> None:
    """Take a savepoint of a running job.

    The job goes on. With -d, a savepoint is removed instead.
    """
    output = call.output
    if dispose is not None:
        _dispose(dispose, output)
        return
    if job is None:
        raise DefinitionError("Missing JobID. Specify a job to take a savepoint of", next="type: poundlock list")
    known = find_running(job, call)
    output.say(f"Triggering savepoint for job {known.entry.job_id}.")
    output.say("Waiting for response...")
    show_saved(known.entry, take_savepoint(known, directory), output)


def _dispose(path: str, output: Output) -> None:
    """Remove what the savepoint's own list names, and nothing else."""
    from poundlock.savepoint.claim import dispose
    from poundlock.storage import open_storage
    from poundlock.storage.storage_errors import explained

    with explained(f"deleting {path}", starting=True):
        dispose(open_storage(path))
    output.show(f"Savepoint '{path}' disposed.", {"savepoint": path, "disposed": True})


app.command("inspect")(savepoint_inspect.inspect)
app.command("diff")(savepoint_inspect.diff)
app.command("edit")(savepoint_edit.command)
