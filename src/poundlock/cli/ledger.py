"""`poundlock ledger`: the decisions of a job, oldest first, as its checkpoint folder has them. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.checkpoints import CheckpointArgument, find_checkpoint
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output

if TYPE_CHECKING:
    from poundlock.checkpoint.decision import Decision

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The decisions to show."""

    decisions: Sequence[Decision]

    def to_json(self) -> Any:
        return [decision.to_json() for decision in self.decisions]

    def lines(self) -> Iterable[str]:
        yield f"{'number':>7}  {'time':19}  {'occasion':10}  {'checkpoint':>10}  {'epoch':>5}  {'committed':>9}  {'written':>10}"
        for decision in self.decisions:
            time = datetime.fromtimestamp(decision.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            committed = sum(len(sink.committables) for sink in decision.sinks.values())
            written = sum(sink.counts.written for sink in decision.sinks.values())
            yield (
                f"{decision.number:>7}  {time}  {decision.occasion:10}  {decision.checkpoint:>10}  {decision.epoch:>5}"
                f"  {committed:>9}  {written:>10}"
            )


def command(
    path: CheckpointArgument,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the newest so many.")] = None,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """List the decisions of a job."""
    from poundlock.checkpoint.ledger import Ledger

    ledger = Ledger(find_checkpoint(path, define or (), config).storage)
    newest = ledger.newest()
    first = max(0, newest.number + 1 - last) if newest is not None and last else 0
    numbers = range(first, newest.number + 1) if newest is not None else ()
    Output(json).show(_Decisions([ledger.read(number) for number in numbers]))
