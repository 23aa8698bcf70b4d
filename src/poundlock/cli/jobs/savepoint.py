"""`poundlock savepoint`: a running job's whole state into a folder of its own; the job goes on. And the folder's removal."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from poundlock.cli.job_lookup import find_running, saved, take_savepoint
from poundlock.cli.jobs import savepoint_edit
from poundlock.cli.jobs import savepoint_inspect as savepoint_about
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output, Text
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

DirectoryArgument = Annotated[
    str | None,
    typer.Argument(metavar="[DIR]", help="Folder in which the savepoint is made; default: in the state directory."),
]


@app.command(_TAKE)
def command(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="A job's id, the beginning of it, its name, or its checkpoint folder."),
    ] = None,
    directory: DirectoryArgument = None,
    dispose: Annotated[str | None, typer.Option("-d", "--dispose", metavar="PATH", help="Remove a savepoint.")] = None,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """Take a savepoint of a running job.

    The job goes on. With -d, a savepoint is removed instead.
    """
    output = Output(json)
    if dispose is not None:
        _dispose(dispose, output)
        return
    if job is None:
        raise DefinitionError("Missing JobID. Specify a job to take a savepoint of", next="type: poundlock list")
    known = find_running(job, define, config)
    if not json:
        output.line(f"Triggering savepoint for job {known.entry.job_id}.")
        output.line("Waiting for response...")
    output.show(saved(known.entry, take_savepoint(known, directory)))


def _dispose(path: str, output: Output) -> None:
    """Remove what the savepoint's own list names, and nothing else."""
    from poundlock.savepoint.restore import dispose
    from poundlock.storage import open_storage
    from poundlock.storage.storage_errors import explained

    with explained(f"deleting {path}", starting=True):
        dispose(open_storage(path))
    output.show(Text(text=f"Savepoint '{path}' disposed.", data={"savepoint": path, "disposed": True}))


app.command("inspect")(savepoint_about.inspect)
app.command("diff")(savepoint_about.diff)
app.command("edit")(savepoint_edit.command)
