"""`poundlock savepoint edit`: a new savepoint made of another, with other offsets or without some operators."""

from __future__ import annotations

from typing import Annotated

import typer

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output, Text
from poundlock.cli.savepoint_about import SavepointArgument

__all__ = ["command"]


def command(
    path: SavepointArgument,
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "--offset", metavar="[SOURCE/]TOPIC:PARTITION=N", help="Read a partition of Kafka from offset N on."
        ),
    ] = None,
    drop_operator: Annotated[
        list[str] | None,
        typer.Option("--drop-operator", metavar="ID", help="Leave out what is kept of an operator; may be repeated."),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder in which it is made; default: next to the old one."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a changed savepoint of another one.

    With other offsets, or without some operators; the old one stays as it is.
    """
    from poundlock.checkpoint.trouble import explained
    from poundlock.savepoint.edit import OffsetEdit, edit
    from poundlock.storage import open_storage
    from poundlock.values import SystemClock

    storage = open_storage(path)
    folder = storage.root.rpartition("/")[0] or "/" if directory is None else directory
    wanted = [OffsetEdit.parse(text) for text in offset or ()]
    with explained(f"writing a savepoint in {folder}", starting=True):
        made, metadata = edit(
            storage, folder, offsets=wanted, drop=list(drop_operator or ()), now_ms=SystemClock().now_ms()
        )
    done = list((metadata.edited or {})["done"])
    Output(json).show(
        Text(
            text="\n".join([*done, f"Savepoint edited. Path: {made}"]),
            data={"savepoint": made, "edited_from": storage.root, "done": done},
        )
    )
