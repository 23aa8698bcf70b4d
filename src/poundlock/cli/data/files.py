"""`poundlock files`: the finished files of a job, as its decisions name them. Reads only, and lists no folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.checkpoint_lookup import CheckpointArgument, find_checkpoint
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output
from poundlock.values import format_bytes

if TYPE_CHECKING:
    from poundlock.connectors.files.manifest import ManifestEntry


def command(
    path: CheckpointArgument,
    sink: Annotated[str | None, typer.Option("--sink", metavar="NAME", help="Only the files of this sink.")] = None,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """List the finished files of a job.

    Each with its rows, bytes, event-time bounds and the checkpoint that made it visible.
    """
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.connectors.files.manifest import finished_files

    checkpoint = find_checkpoint(path, define or (), config)
    Output(json).show(_Files(list(finished_files(Ledger(checkpoint.storage), sink=sink))))


@dataclass(frozen=True, slots=True)
class _Files:
    """Finished files for people and programs."""

    files: Sequence[ManifestEntry]

    def to_json(self) -> Any:
        return [asdict(file) for file in self.files]

    def lines(self) -> Iterable[str]:
        yield f"{'checkpoint':>10}  {'rows':>10}  {'bytes':>12}  {'first event':23}  {'last event':23}  file"
        for file in self.files:
            yield (
                f"{file.checkpoint:>10}  {file.rows:>10}  {file.bytes:>12}  {_time(file.min_event_ms):23}"
                f"  {_time(file.max_event_ms):23}  {file.root}/{file.path}"
            )
        rows, size = sum(file.rows for file in self.files), sum(file.bytes for file in self.files)
        yield f"{len(self.files)} files, {rows} rows, {format_bytes(size)}"


def _time(event_ms: int | None) -> str:
    """Return an event time in UTC; one no calendar has stays a number."""
    if event_ms is None:
        return "-"
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=event_ms)
    except OverflowError:
        return str(event_ms)
    return time.strftime("%Y-%m-%d %H:%M:%S.") + f"{time.microsecond // 1000:03d}"
