"""`poundlock files`: the finished files of a job, as its decisions name them. Reads only, and lists no folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.checkpoint_lookup import CheckpointArgument, find_checkpoint
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import utc_text
from poundlock.values import format_bytes

if TYPE_CHECKING:
    from poundlock.connectors.files.manifest import ManifestEntry


@with_shared_options
def command(
    path: CheckpointArgument,
    sink: Annotated[str | None, Option("--sink", metavar="NAME", help="Only the files of this sink.")] = None,
    *,
    call: Call,
) -> None:
    """List the finished files of a job.

    Each with its rows, bytes, event-time bounds and the checkpoint that made it visible.
    """
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.connectors.files.manifest import finished_files

    files = list(finished_files(Ledger(find_checkpoint(path, call).storage), sink=sink))
    call.output.show(_lines(files), lambda: [asdict(file) for file in files])


def _lines(files: Sequence[ManifestEntry]) -> Iterable[str]:
    yield f"{'checkpoint':>10}  {'rows':>10}  {'bytes':>12}  {'first event':23}  {'last event':23}  file"
    for file in files:
        yield (
            f"{file.checkpoint:>10}  {file.rows:>10}  {file.bytes:>12}  {utc_text(file.min_event_ms):23}"
            f"  {utc_text(file.max_event_ms):23}  {file.root}/{file.path}"
        )
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    yield f"{len(files)} files, {rows} rows, {format_bytes(size)}"
