"""`poundlock checkpoints`: a job's checkpoints, newest first, and which of them can be given to `run -s`. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.checkpoint_lookup import FoundCheckpoint, find_of_job
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output

if TYPE_CHECKING:
    from poundlock.checkpoint.decision import Decision
    from poundlock.checkpoint.identity import Identity
    from poundlock.checkpoint.ledger.ledger import Ledger


_DEFAULT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checkpoint:
    """One completed checkpoint.

    Args:
        checkpoint: its number.
        started_ms, decided_ms: when, ms since the epoch.
        duration_ms: of tasks, verifying, deciding and committing; of the newest the last two are not known yet.
        bytes: written to sinks; None where a sink does not tell.
        rows_read: None where nobody counted.
        rows_written: to all sinks.
        occasions: of the decisions made of it: "checkpoint", and "roll" or "end" where pending data was finished after it.
        path: what to give to `run -s`; None if it can no longer be restored.
        kept_bytes: size of its copy; None where there is none.
    """

    checkpoint: int
    started_ms: int
    decided_ms: int
    duration_ms: int
    bytes: int | None
    rows_read: int | None
    rows_written: int
    occasions: Sequence[str]
    path: str | None
    kept_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checkpoints:
    """Those of one job."""

    identity: Identity
    folder: str
    checkpoints: Sequence[_Checkpoint]

    def to_json(self) -> Any:
        return {
            "job_id": self.identity.job_id,
            "name": self.identity.name,
            "checkpoint_dir": self.folder,
            "checkpoints": [asdict(each) for each in self.checkpoints],
        }

    def lines(self) -> Iterable[str]:
        if not self.checkpoints:
            yield f"No completed checkpoint of job {self.identity.job_id} ({self.identity.name})."
            return
        yield _HEADING
        for each in self.checkpoints:
            numbers = (each.duration_ms, each.bytes, each.rows_read, each.rows_written)
            stamp = datetime.fromtimestamp(each.decided_ms / 1000, UTC).replace(tzinfo=None)
            yield (
                f"{each.checkpoint:>10}  {stamp.isoformat(sep=' ', timespec='seconds')}"
                + "".join(f"  {'-' if number is None else number:>11}" for number in numbers)
                + f"  {', '.join(each.occasions):22}  {each.path or '-'}"
            )


_HEADING = (
    f"{'checkpoint':>10}  {'time':19}"
    + "".join(f"  {name:>11}" for name in ("ms", "bytes", "read", "written"))
    + f"  {'decided by':22}  restorable from"
)


def command(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="A job's id, the beginning of its id, or its name; its checkpoint folder, or its file JOB.PY[:NAME].",
        ),
    ],
    last: Annotated[int, typer.Option("-n", "--last", min=1, help="How many at most.")] = _DEFAULT,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """List a job's checkpoints, newest first.

    With time, duration, size and rows of each, and the path from which it can be restored.
    """
    checkpoint = find_of_job(job, define or (), config)
    Output(json).show(
        _Checkpoints(
            identity=checkpoint.identity, folder=checkpoint.storage.root, checkpoints=list(_newest(checkpoint, last))
        )
    )


def _newest(checkpoint: FoundCheckpoint, most: int) -> Iterator[_Checkpoint]:
    from poundlock.checkpoint.ledger.ledger import Ledger

    ledger = Ledger(checkpoint.storage)
    kept = _Kept(checkpoint, ledger)
    newest = ledger.newest()
    later: Decision | None = None
    occasions: list[str] = []
    for decision in ledger.back(newest) if newest is not None else ():
        if decision.occasion in ("roll", "end"):
            occasions.insert(0, decision.occasion)
        if decision.occasion == "checkpoint" and not decision.redo:
            yield _figures(decision, later, list(dict.fromkeys(["checkpoint", *occasions])), kept)
            occasions, most = [], most - 1
            if most == 0:
                return
        later = decision


class _Kept:
    """Which checkpoints can be restored, and from where."""

    def __init__(self, checkpoint: FoundCheckpoint, ledger: Ledger) -> None:
        from poundlock.driver.savepoints.retained_checkpoints import copies

        self._storage = checkpoint.storage
        self._copies = copies(checkpoint.storage)
        newest = ledger.newest()
        ready = newest is not None and ledger.is_committed(newest.number)
        self._newest = newest.checkpoint if newest is not None and ready else None

    def path(self, checkpoint: int) -> str | None:
        if checkpoint in self._copies:
            return f"{self._storage.root}/{self._copies[checkpoint]}"
        return self._storage.root if checkpoint == self._newest else None

    def bytes(self, checkpoint: int) -> int | None:
        if checkpoint not in self._copies:
            return None
        return sum(entry.bytes for entry in self._storage.list(self._copies[checkpoint]))


def _figures(decision: Decision, later: Decision | None, occasions: Sequence[str], kept: _Kept) -> _Checkpoint:
    sizes = [sink.wrote.bytes for sink in decision.sinks.values() if sink.wrote is not None]
    rows = [span.rows for span in decision.sources.values()]
    took = sum(decision.durations_ms.get(part, 0) for part in ("run", "verify"))
    # How long deciding and committing took is in the record after it, where that is of the same life.
    after = later.durations_ms if later is not None and later.epoch == decision.epoch else {}
    return _Checkpoint(
        checkpoint=decision.checkpoint,
        started_ms=decision.started_ms if decision.started_ms is not None else decision.time_ms - took,
        decided_ms=decision.time_ms,
        duration_ms=took + sum(after.get(part, 0) for part in ("decide", "commit")),
        bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        rows_read=None if None in rows else sum(count for count in rows if count is not None),
        rows_written=sum(sink.counts.written for sink in decision.sinks.values()),
        occasions=occasions,
        path=kept.path(decision.checkpoint),
        kept_bytes=kept.bytes(decision.checkpoint),
    )
