"""`poundlock savepoint`: a running job's whole state into a folder of its own, the folder's removal, what is in one or differs between two,
and a new one made of another, with other positions, other state, or operators that are renamed or left out.

Looking into one needs neither the job nor Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from poundlock.cli.completion import running_job_names, savepoints
from poundlock.cli.job_lookup import find_running, show_saved, take_savepoint
from poundlock.cli.options import Call, JsonOption, with_shared_options
from poundlock.cli.output import Output, watermark_text
from poundlock.cli.progress_bar import progress_bar
from poundlock.errors import DefinitionError
from poundlock.values import format_bytes, utc_text

if TYPE_CHECKING:
    from poundlock.savepoint.inspection import Difference, Inspection


SavepointArgument = Annotated[str, Argument(metavar="PATH", help="Folder of the savepoint.", autocompletion=savepoints)]
_HELP = """Take a savepoint of a running job, or inspect one.

`poundlock savepoint JOB [DIR]` takes one; `poundlock savepoint -d PATH` removes one.
"""
_TAKE = "take"


class _Group(TyperGroup):
    """Verbs beside a job: whatever is no verb and no call for help is what `take` is given."""

    default = _TAKE

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `take` before arguments that begin with no verb."""
        if not args and ctx.resilient_parsing:  # a shell completes what comes here: a verb or a job
            return super().parse_args(ctx, args)
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the verbs, and what `take` may be given."""
        job = self.commands[self.default].params[0]
        return [*super().shell_complete(ctx, incomplete), *job.shell_complete(ctx, incomplete)]


app = typer.Typer(name="savepoint", cls=_Group, help=_HELP, rich_markup_mode=None, add_completion=False)


@app.command(_TAKE)
@with_shared_options
def command(
    job: Annotated[
        str | None,
        Argument(
            metavar="[JOB]",
            help="A job's id, the beginning of it, its name, or its checkpoint folder.",
            autocompletion=running_job_names,
        ),
    ] = None,
    directory: Annotated[
        str | None,
        Argument(metavar="[DIR]", help="Folder in which the savepoint is made; default: in the state directory."),
    ] = None,
    dispose: Annotated[
        str | None,
        Option("-d", "--dispose", metavar="PATH", help="Remove a savepoint.", autocompletion=savepoints),
    ] = None,
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
    with progress_bar(output, f"savepoint of {known.entry.name}"):
        path = take_savepoint(known, directory)
    show_saved(known.entry, path, output)


def _dispose(path: str, output: Output) -> None:
    """Remove what the savepoint's own list names, and nothing else."""
    from poundlock.savepoint.restore import dispose
    from poundlock.storage import open_storage
    from poundlock.storage.storage_errors import explained

    with progress_bar(output, f"deleting {path}") as bar, explained(f"deleting {path}", starting=True):
        dispose(open_storage(path), bar.of)
    output.show(f"Savepoint '{path}' disposed.", {"savepoint": path, "disposed": True})


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
    from poundlock.savepoint.edit import KeyEdit, ParquetEdit, StateEdit
    from poundlock.savepoint.operator_ids import parse_renamed
    from poundlock.savepoint.positions import OffsetEdit, PositionEdit, WholePosition
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
    output = Output(json)
    with progress_bar(output, f"copying {path}") as bar, explained(f"writing a savepoint in {folder}", starting=True):
        made, metadata = editing.edit(
            storage,
            folder,
            positions=positions,
            drop=list(drop_operator or ()),
            rename=parse_renamed(rename_operator or ()),
            state=state,
            now_ms=SystemClock().now_ms(),
            progress=bar.of,
        )
    done = list((metadata.edited or {})["done"])
    data = {"savepoint": made, "edited_from": storage.root, "done": done}
    output.show([*done, f"Savepoint edited. Path: {made}"], data)


@app.command("inspect")
def inspect(
    path: SavepointArgument,
    json: JsonOption = False,
    no_check: Annotated[bool, Option("--no-check", help="Do not read all files to compare their digests.")] = False,
    state: Annotated[bool, Option("--state", help="Count the entries of the state.")] = False,
) -> None:
    """Show what a savepoint holds.

    Positions, watermark, pending files, operators, sizes, and whether every file is as it was written.
    """
    from poundlock.savepoint import inspection as inspections
    from poundlock.storage import open_storage

    storage = open_storage(path)
    output = Output(json)
    with progress_bar(output, f"reading {path}") as bar:
        inspection = inspections.inspect(storage, check=not no_check, progress=bar.of)
        rows = _state_rows(inspection) if state and not inspection.damage else {}
    data = inspection.to_json()
    if rows:
        data["state"] |= {"rows": rows}
    output.show(_lines(inspection, rows), data)
    inspection.raise_if_damaged(storage)


@app.command("diff")
def diff(
    first: Annotated[str, Argument(metavar="A", help="Folder of a savepoint.", autocompletion=savepoints)],
    second: Annotated[str, Argument(metavar="B", help="Folder of another one.", autocompletion=savepoints)],
    json: JsonOption = False,
) -> None:
    """Show what differs from one savepoint to another."""
    from poundlock.savepoint.inspection import compare, inspect
    from poundlock.storage import open_storage

    a, b = (inspect(open_storage(path), check=False) for path in (first, second))
    differences = compare(a, b)
    data = {
        name: {"path": each.path, "name": each.metadata.name, "created_ms": each.metadata.created_ms}
        for name, each in (("a", a), ("b", b))
    }
    Output(json).show(_changes(a, b, differences), {**data, "differences": [each.to_json() for each in differences]})


def _state_rows(inspection: Inspection) -> Mapping[str, int | None]:
    if (state := inspection.metadata.decision.state) is None:
        return {}
    from poundlock.state.decided_state import manifests_of
    from poundlock.state.inspect import count_entries
    from poundlock.state.runs.files import run_files

    files = run_files(inspection.path)
    manifests = manifests_of(state).values()
    return {id: count_entries(manifest, files, id) for manifest in manifests for id in manifest.operators}


def _lines(inspection: Inspection, counted: Mapping[str, int | None]) -> Iterator[str]:
    """Yield a savepoint for people; with the entries of operators, by id, where they were counted."""
    metadata = inspection.metadata
    versions = ", ".join(f"{package} {version}" for package, version in metadata.versions.items())
    yield f"{metadata.name}: savepoint of job {metadata.job} ({metadata.job_id}), format {metadata.to_json()['v']}"
    yield f"taken {utc_text(metadata.created_ms)} at checkpoint {metadata.decision.checkpoint}{versions and f' by {versions}'}"
    if metadata.edited is not None:
        yield f"edited, made of {metadata.edited['from']}:"
        yield from (f"  {text}" for text in metadata.edited["done"])
    yield from _block("sources", [(name, r.kind, text) for name, r in inspection.sources.items() for text in r.lines()])
    yield f"watermark  {watermark_text(inspection.watermark_ms)}"
    rows = [
        (name, f"{file.rows} rows", format_bytes(file.bytes), file.path)
        for name, files in inspection.pending.items()
        for file in files
    ]
    yield from _block("pending files", rows)
    named = [(id, o.kind, "" if o.named else "not named") for id, o in metadata.operators.items()]
    yield from _block("operators", named)
    if inspection.key_groups is not None:
        yield f"state  {inspection.key_groups} key groups"
        yield from _table([(o.name, f"{counted[o.name]} rows") for o in inspection.state if o.name in counted], "  ")
    yield from _block("sizes", [(part, format_bytes(size)) for part, size in inspection.sizes.items()])
    yield f"{len(metadata.files)} files, {format_bytes(inspection.bytes)}; {_checked(inspection)}"


def _checked(inspection: Inspection) -> str:
    if inspection.damage is None:
        return "digests were not compared"
    wrong = len(inspection.damage)
    return (
        "all digests hold"
        if not wrong
        else f"{wrong} of them damaged: " + "; ".join(f"{path} {fault}" for path, fault in inspection.damage)
    )


def _changes(first: Inspection, second: Inspection, differences: Sequence[Difference]) -> Iterator[str]:
    for sign, each in (("a", first), ("b", second)):
        yield f"{sign}  {each.metadata.name}  {utc_text(each.metadata.created_ms)}"
    if not differences:
        yield "nothing differs"
    rows = [(d.what, _value(d, d.before), "->", _value(d, d.after), _distance(d)) for d in differences]
    yield from _table(rows, "")


def _value(difference: Difference, value: Any) -> str:
    if value is None:
        return "-"
    if difference.what == "watermark":
        return watermark_text(value)
    if difference.what.startswith("size of "):
        return format_bytes(value)
    return str(value)


def _distance(difference: Difference) -> str:
    return f"{difference.distance:+,} {difference.unit}" if difference.distance is not None else ""


def _block(title: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield title if rows else f"{title}  none"
    yield from _table(rows, "  ")


def _table(rows: Sequence[Sequence[str]], indent: str) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield (indent + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))).rstrip()


app.command("edit")(edit)  # behind the others in the help
