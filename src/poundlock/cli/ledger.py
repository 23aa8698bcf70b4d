"""`poundlock ledger`: the decisions of a job, oldest first, as its checkpoint folder has them. Reads only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.checkpoints import CheckpointArgument, find_checkpoint
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.checkpoint.decision import Decision
    from poundlock.checkpoint.ledger import Ledger

__all__ = ["command"]

_OCCASIONS = ("start", "checkpoint", "roll", "end")
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which decisions to show, and of which sink the numbers are."""

    first: int | None
    last: int | None
    occasion: str | None
    sink: str | None

    def __call__(self, decision: Decision) -> bool:
        return (
            (self.first is None or decision.checkpoint >= self.first)
            and (self.last is None or decision.checkpoint <= self.last)
            and (self.occasion is None or decision.occasion == self.occasion)
        )


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The decisions to show."""

    decisions: Sequence[Decision]
    wanted: _Wanted

    def to_json(self) -> Any:
        return [decision.to_json() for decision in self.decisions]

    def lines(self) -> Iterable[str]:
        yield _HEADING
        yield from (_row(decision, self.wanted.sink) for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class _Line:
    """One decision of those that are followed."""

    decision: Decision
    sink: str | None

    def to_json(self) -> Any:
        return self.decision.to_json()

    def lines(self) -> Iterable[str]:
        yield _row(self.decision, self.sink)


_COLUMNS = ("read", "written", "filtered", "dead-letter", "skipped", "committed", "ms")
_HEADING = f"{'number':>7}  {'time':19}  {'occasion':10}  {'checkpoint':>10}  {'epoch':>5}" + "".join(
    f"  {name:>11}" for name in _COLUMNS
)


def _row(decision: Decision, sink: str | None) -> str:
    stamp = datetime.fromtimestamp(decision.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    parts = [part for name, part in decision.sinks.items() if sink in (None, name)]
    numbers = (
        sum(span.rows or 0 for span in decision.sources.values()) if decision.occasion == "checkpoint" else 0,
        sum(part.counts.written for part in parts),
        sum(part.counts.filtered for part in parts),
        sum(part.counts.dead_lettered for part in parts),
        sum(part.counts.skipped for part in parts),
        sum(len(part.committables) for part in parts),
        sum(decision.durations_ms.get(name, 0) for name in ("run", "verify")),
    )
    return (
        f"{decision.number:>7}  {stamp}  {decision.occasion:10}  {decision.checkpoint:>10}  {decision.epoch:>5}"
        + "".join(f"  {number:>11}" for number in numbers)
    )


def command(
    path: CheckpointArgument,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the newest so many.")] = None,
    first_checkpoint: Annotated[int | None, typer.Option("--from", min=0, help="Only from this checkpoint on.")] = None,
    last_checkpoint: Annotated[int | None, typer.Option("--to", min=0, help="Only up to this checkpoint.")] = None,
    occasion: Annotated[
        str | None, typer.Option("--occasion", help="Only one kind: start, checkpoint, roll or end.")
    ] = None,
    sink: Annotated[str | None, typer.Option("--sink", help="Count the rows of this sink alone.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with decisions as they are made.")] = False,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """List the decisions of a job.

    With --json they are one array; with --follow too, one object a line.
    """
    from poundlock.checkpoint.ledger import Ledger

    if occasion is not None and occasion not in _OCCASIONS:
        raise DefinitionError(f"--occasion {occasion} is none", next=f"use one of {', '.join(_OCCASIONS)}")
    wanted = _Wanted(first_checkpoint, last_checkpoint, occasion, sink)
    ledger = Ledger(find_checkpoint(path, define or (), config).storage)
    newest = ledger.newest()
    if sink is not None and newest is not None and sink not in newest.sinks:
        raise DefinitionError(f"the job has no sink {sink!r}", next=f"use one of {', '.join(newest.sinks)}")
    found = [decision for decision in ledger if wanted(decision)] if newest is not None else []
    output = Output(json)
    shown = _Decisions(found[-last:] if last else found, wanted)
    if not follow:
        output.show(shown)
        return
    if not json:
        output.line(_HEADING)
    for decision in shown.decisions:
        output.show(_Line(decision, sink))
    for decision in _new(ledger, newest.number + 1 if newest is not None else 0):
        if wanted(decision):
            output.show(_Line(decision, sink))


def _new(ledger: Ledger, number: int) -> Iterator[Decision]:
    """Yield decisions as they come, for ever."""
    while True:
        newest = ledger.newest()
        while newest is not None and number <= newest.number:
            yield ledger.read(number)
            number += 1
        time.sleep(_POLL_S)
