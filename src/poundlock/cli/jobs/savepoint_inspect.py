"""`poundlock savepoint inspect` and `diff`: what is in a savepoint's folder, without the job and without Spark. Read only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output, iso_text
from poundlock.values import format_bytes

if TYPE_CHECKING:
    from poundlock.savepoint.comparison import Difference
    from poundlock.savepoint.inspection import Inspection


SavepointArgument = Annotated[str, Argument(metavar="PATH", help="Folder of the savepoint.")]


def inspect(
    path: SavepointArgument,
    json: JsonOption = False,
    no_check: Annotated[bool, Option("--no-check", help="Do not read all files to compare their digests.")] = False,
    state: Annotated[bool, Option("--state", help="Count the entries of the state.")] = False,
) -> None:
    """Show what a savepoint holds.

    Positions, watermark, pending files, operators, sizes, and whether every file is as it was written.
    """
    from poundlock.savepoint.inspection import inspect
    from poundlock.storage import open_storage

    storage = open_storage(path)
    inspection = inspect(storage, check=not no_check)
    rows = _state_rows(inspection) if state and not inspection.damage else {}
    data = inspection.to_json()
    if rows:
        data["state"] |= {"rows": rows}
    Output(json).show(_lines(inspection, rows), data)
    inspection.raise_if_damaged(storage)


def diff(
    first: Annotated[str, Argument(metavar="A", help="Folder of a savepoint.")],
    second: Annotated[str, Argument(metavar="B", help="Folder of another one.")],
    json: JsonOption = False,
) -> None:
    """Show what differs from one savepoint to another."""
    from poundlock.savepoint.comparison import compare
    from poundlock.savepoint.inspection import inspect
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
    from poundlock.tasks.state_files import run_files

    files = run_files(inspection.path)
    manifests = manifests_of(state).values()
    return {id: count_entries(manifest, files, id) for manifest in manifests for id in manifest.operators}


def _lines(inspection: Inspection, counted: Mapping[str, int | None]) -> Iterator[str]:
    """Yield a savepoint for people; with the entries of operators, by id, where they were counted."""
    metadata = inspection.metadata
    versions = ", ".join(f"{package} {version}" for package, version in metadata.versions.items())
    yield f"{metadata.name}: savepoint of job {metadata.job} ({metadata.job_id}), format {metadata.to_json()['v']}"
    yield f"taken {iso_text(metadata.created_ms)} at checkpoint {metadata.decision.checkpoint}{versions and f' by {versions}'}"
    if metadata.edited is not None:
        yield f"edited, made of {metadata.edited['from']}:"
        yield from (f"  {text}" for text in metadata.edited["done"])
    yield from _block("sources", [(name, r.kind, text) for name, r in inspection.sources.items() for text in r.lines()])
    yield f"watermark  {iso_text(inspection.watermark_ms) if inspection.watermark_ms is not None else '-'}"
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
        yield f"{sign}  {each.metadata.name}  {iso_text(each.metadata.created_ms)}"
    if not differences:
        yield "nothing differs"
    rows = [(d.what, _value(d, d.before), "->", _value(d, d.after), _distance(d)) for d in differences]
    yield from _table(rows, "")


def _value(difference: Difference, value: Any) -> str:
    if value is None:
        return "-"
    if difference.what == "watermark":
        return iso_text(value)
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
