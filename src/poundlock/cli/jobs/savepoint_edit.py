"""`poundlock savepoint edit`: a new savepoint made of another, with other positions, other state, or operators that are renamed or left out."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from poundlock.cli.jobs.savepoint_inspect import SavepointArgument
from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output


def command(
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
    from poundlock.savepoint.edit import edit
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
        made, metadata = edit(
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
