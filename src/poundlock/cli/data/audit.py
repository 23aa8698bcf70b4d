"""`poundlock audit`: proves that in = out + filtered + late + dead-lettered + skipped, and reads the sinks back. Reads only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.checkpoint_lookup import CheckpointArgument, find_checkpoint, rebuilt_sinks
from poundlock.cli.options import Call, with_shared_options

if TYPE_CHECKING:
    from poundlock.audit.audit import AuditReport, SinkAudit


_EVERY_S = 3.0


@with_shared_options
def command(
    path: CheckpointArgument,
    first: Annotated[int | None, Option("--from", min=0, help="First checkpoint to look at.")] = None,
    last: Annotated[int | None, Option("--to", min=0, help="Last checkpoint to look at.")] = None,
    *,
    call: Call,
) -> int:
    """Prove a job's ledger against its sinks.

    Every file and message that a decision made visible is read and compared by count and checksum; topics as read_committed readers see them. The exit code is 0 if everything agrees, 1 if something does not.
    """
    from poundlock.audit.audit import audit
    from poundlock.checkpoint.ledger.ledger import Ledger

    checkpoint = find_checkpoint(path, call)
    sinks, progress = rebuilt_sinks(checkpoint), _Seldom(call.output.note)
    report = audit(Ledger(checkpoint.storage), sinks, first=first, last=last, progress=progress)
    call.output.show(_lines(report), report.to_json)
    return 0 if report.agrees else 1


class _Seldom:
    """Lets a line through every few seconds, the first after as many: a short audit says nothing but its result."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._last = say, time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last >= _EVERY_S:
            self._say(text)
            self._last = time.monotonic()


def _lines(report: AuditReport) -> Iterable[str]:
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
            yield from (f"  {text}" for text in _besides(sink))
    for name, wrong in report.disagreements:
        place = f"checkpoint {wrong.checkpoint}" if wrong.checkpoint is not None else "the whole"
        yield f"DISAGREES  {name or 'the ledger'}, {place}: {wrong.what}" + (f" ({wrong.path})" if wrong.path else "")
    span = "no checkpoint" if report.first is None else f"checkpoints {report.first} to {report.last}"
    count = len(report.disagreements)
    yield f"{span}, {report.records} decisions: " + (
        "everything agrees" if report.agrees else f"{count} disagreement{'' if count == 1 else 's'}"
    )


def _besides(sink: SinkAudit) -> Iterable[str]:
    """Yield what is neither agreement nor fault."""
    if sink.removed:
        yield f"{sink.removed:,} of these removed by retention, not compared"
    if sink.again:
        yield f"{sink.again:,} aborted from outside: the next start produces them again"
    if sink.others:
        yield f"{sink.others:,} of other producers in the same topics"
    yield from (f"not compared: {text}" for text in sink.uncompared)
