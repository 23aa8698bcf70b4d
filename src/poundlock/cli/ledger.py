"""`poundlock ledger`: the decisions of a job, oldest first, as its checkpoint folder has them. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.checkpoint.decision import Decision

__all__ = ["command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The decisions to show."""

    path: str
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
    path: Annotated[str, typer.Argument(metavar="PATH", help="Checkpoint folder of a job.")],
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the newest so many.")] = None,
    json: JsonOption = False,
) -> None:
    """List the decisions of a job."""
    from poundlock.checkpoint.ledger import Ledger
    from poundlock.storage import open_storage

    decisions = list(Ledger(open_storage(path)))
    if not decisions:
        raise DefinitionError(
            f"{path} has no ledger with a decision in it", next="give the checkpoint folder of a job that has run"
        )
    Output(json).show(Decisions(path=path, decisions=decisions[-last:] if last else decisions))
