"""`poundlock savepoint`: a running job's whole state into a folder of its own, the folder's removal, and a new savepoint made of another,
with other positions, other state, or operators that are renamed or left out.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from poundlock.cli.job_lookup import find_running, show_saved, take_savepoint
from poundlock.cli.jobs import savepoint_inspect
from poundlock.cli.jobs.savepoint_inspect import SavepointArgument
from poundlock.cli.options import Call, JsonOption, with_shared_options
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


@app.command("edit")
def edit(
    path: SavepointArgument,
    offset: Annotated[
        list[str] | None,
        Option("--offset", metavar="[SOURCE/]TOPIC:PARTITION=N", help="Read a partition of Kafka from offset N on."),
    ] = None,
    position: Annotated[
        list[str] | None,
        Option("--position", metavar="SOURCE=JSON", help="Read a source from a position on; see inspect --json."),
    ] = None,
    drop_operator: Annotated[
        list[str] | None,
        Option("--drop-operator", metavar="ID", help="Leave out what is kept of an operator; may be repeated."),
    ] = None,
    rename_operator: Annotated[
        list[str] | None, Option("--rename-operator", metavar="OLD=NEW", help="Give an operator with state another id.")
    ] = None,
    set_state: Annotated[
        list[str] | None,
        Option("--set-state", metavar="OPERATOR/STATE:KEY=VALUE", help="Give a key another value; both are JSON."),
    ] = None,
    delete_state: Annotated[
        list[str] | None, Option("--delete-state", metavar="OPERATOR/STATE:KEY", help="Remove the value of a key.")
    ] = None,
    state_file: Annotated[
        list[str] | None,
        Option("--state-file", metavar="OPERATOR/STATE=FILE", help="Give keys the values of a Parquet file."),
    ] = None,
    key_columns: Annotated[
        str | None, Option("--key-columns", metavar="A,B", help="The columns of that file that are the key.")
    ] = None,
    value_column: Annotated[
        str | None, Option("--value-column", metavar="C", help="Its column of values; default: a record of all others.")
    ] = None,
    window_column: Annotated[
        str | None,
        Option("--window-column", metavar="D", help="Its column of windows' starts, of what is kept by window."),
    ] = None,
    directory: Annotated[
        str | None,
        Option("-o", "--output", metavar="DIR", help="Folder in which it is made; default: next to the old one."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a changed savepoint of another one.

    With other positions, other state, or operators that are renamed or left out; the old one stays as it is.
    """
    from poundlock.errors import DefinitionError
    from poundlock.savepoint import edit as editing
    from poundlock.savepoint.operator_changes import parse_renamed
    from poundlock.savepoint.position_edits import OffsetEdit, PositionEdit, WholePosition
    from poundlock.savepoint.state_edits import KeyEdit, ParquetEdit, StateEdit
    from poundlock.storage import open_storage
    from poundlock.storage.storage_errors import explained
    from poundlock.values import SystemClock

    storage = open_storage(path)
    folder = storage.root.rpartition("/")[0] or "/" if directory is None else directory
    if (key_columns or value_column or window_column) and not state_file:
        raise DefinitionError(
            "--key-columns, --value-column and --window-column are of a --state-file", next="say --state-file too"
        )
    positions: list[PositionEdit] = [
        *(OffsetEdit.parse(text) for text in offset or ()),
        *(WholePosition.parse(text) for text in position or ()),
    ]
    state: list[StateEdit] = [
        *(KeyEdit.parse(text) for text in set_state or ()),
        *(KeyEdit.parse(text, delete=True) for text in delete_state or ()),
        *(
            ParquetEdit.parse(text, keys=key_columns, value=value_column, window=window_column)
            for text in state_file or ()
        ),
    ]
    with explained(f"writing a savepoint in {folder}", starting=True):
        made, metadata = editing.edit(
            storage,
            folder,
            positions=positions,
            drop=list(drop_operator or ()),
            rename=parse_renamed(rename_operator or ()),
            state=state,
            now_ms=SystemClock().now_ms(),
        )
    done = list((metadata.edited or {})["done"])
    data = {"savepoint": made, "edited_from": storage.root, "done": done}
    Output(json).show([*done, f"Savepoint edited. Path: {made}"], data)
