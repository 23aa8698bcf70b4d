"""`poundlock audit`: proves that in = out + filtered + late + dead-lettered + skipped, and reads the sinks back. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.checkpoints import CheckpointArgument, find_checkpoint, rebuilt_sinks
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output

if TYPE_CHECKING:
    from poundlock.checkpoint.audit import AuditReport

__all__ = ["command"]


def command(
    path: CheckpointArgument,
    first: Annotated[int | None, typer.Option("--from", min=0, help="First checkpoint to look at.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last checkpoint to look at.")] = None,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> int:
    """Prove a job's ledger against its sinks.

    Every file and message that a decision made visible is read and compared by count and checksum. The exit code is 0 if everything agrees, 1 if something does not.
    """
    from poundlock.checkpoint.audit import audit
    from poundlock.checkpoint.ledger import Ledger

    found = find_checkpoint(path, define or (), config)
    report = audit(Ledger(found.storage), rebuilt_sinks(found), first=first, last=last)
    Output(json).show(_Shown(report))
    return 0 if report.agrees else 1


@dataclass(frozen=True, slots=True)
class _Shown:
    """A report for people and programs."""

    report: AuditReport

    def to_json(self) -> Any:
        return self.report.to_json()

    def lines(self) -> Iterable[str]:
        report = self.report
        for name, rows in report.rows_read.items():
            yield f"source {name}: {rows:,} rows read"
        for name, sink in report.sinks.items():
            counts = sink.counts
            yield (
                f"sink {name}: {counts.read:,} in + {counts.produced:,} made = {counts.written:,} written + {counts.filtered:,} filtered"
                f" + {counts.late:,} late + {counts.dead_lettered:,} dead-lettered + {counts.skipped:,} skipped"
            )
            if sink.unchecked:
                yield f"  not read back: {sink.unchecked}"
            else:
                yield f"  {sink.visible:,} visible in {sink.read_back:,} pieces, read back; {sink.waiting_after:,} wait"
        for name, wrong in report.disagreements:
            place = f"checkpoint {wrong.checkpoint}" if wrong.checkpoint is not None else "the whole"
            yield f"DISAGREES  {name or 'the ledger'}, {place}: {wrong.what}" + (
                f" ({wrong.path})" if wrong.path else ""
            )
        span = "no checkpoint" if report.first is None else f"checkpoints {report.first} to {report.last}"
        count = len(report.disagreements)
        yield f"{span}, {report.records} decisions: " + (
            "everything agrees" if report.agrees else f"{count} disagreement{'' if count == 1 else 's'}"
        )
