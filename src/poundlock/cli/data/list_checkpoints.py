"""`poundlock checkpoints`: a job's checkpoints, newest first, and which of them can be given to `run -s`. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from poundlock.cli.checkpoint_lookup import FoundCheckpoint, find_of_job
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import utc_text

if TYPE_CHECKING:
    from poundlock.checkpoint.decision import Decision
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.rest.figures import CheckpointFigures


_DEFAULT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checkpoint:
    """One completed checkpoint.

    Args:
        figures: what its own decision tells; how long is without deciding and committing.
        duration_ms: of tasks, verifying, deciding and committing; of the newest the last two are not known yet.
        occasions: of the decisions made of it: "checkpoint", and "roll" or "end" where pending data was finished after it.
        path: what to give to `run -s`; None if it can no longer be restored.
        kept_bytes: size of its copy; None where there is none.
    """

    figures: CheckpointFigures
    duration_ms: int
    occasions: Sequence[str]
    path: str | None
    kept_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        its = self.figures
        return {
            "checkpoint": its.number,
            "started_ms": its.started_ms,
            "decided_ms": its.decided_ms,
            "duration_ms": self.duration_ms,
            "bytes": its.size,
            "rows_read": its.rows_read,
            "rows_written": its.rows_written,
            "occasions": self.occasions,
            "path": self.path,
            "kept_bytes": self.kept_bytes,
        }

    def line(self) -> str:
        """Return it for people."""
        its = self.figures
        numbers = (self.duration_ms, its.size, its.rows_read, its.rows_written)
        return (
            f"{its.number:>10}  {utc_text(its.decided_ms, 'seconds')}"
            + "".join(f"  {'-' if number is None else number:>11}" for number in numbers)
            + f"  {', '.join(self.occasions):22}  {self.path or '-'}"
        )


_HEADING = (
    f"{'checkpoint':>10}  {'time':19}"
    + "".join(f"  {name:>11}" for name in ("ms", "bytes", "read", "written"))
    + f"  {'decided by':22}  restorable from"
)


@with_shared_options
def command(
    job: Annotated[
        str,
        Argument(
            metavar="JOB",
            help="A job's id, the beginning of its id, or its name; its checkpoint folder, or its file JOB.PY[:NAME].",
        ),
    ],
    last: Annotated[int, Option("-n", "--last", min=1, help="How many at most.")] = _DEFAULT,
    *,
    call: Call,
) -> None:
    """List a job's checkpoints, newest first.

    With time, duration, size and rows of each, and the path from which it can be restored.
    """
    checkpoint = find_of_job(job, call)
    its, listed = checkpoint.identity, list(_newest(checkpoint, last))
    data = {"job_id": its.job_id, "name": its.name, "checkpoint_dir": checkpoint.storage.root}
    none = f"No completed checkpoint of job {its.job_id} ({its.name})."
    lines = [_HEADING, *(each.line() for each in listed)] if listed else [none]
    call.output.show(lines, {**data, "checkpoints": [each.to_json() for each in listed]})


def _newest(checkpoint: FoundCheckpoint, most: int) -> Iterator[_Checkpoint]:
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.rest.figures import CheckpointFigures

    ledger = Ledger(checkpoint.storage)
    kept = _Kept(checkpoint, ledger)
    newest = ledger.newest()
    later: Decision | None = None
    occasions: list[str] = []
    for decision in ledger.back(newest) if newest is not None else ():
        if decision.occasion in ("roll", "end"):
            occasions.insert(0, decision.occasion)
        if decision.occasion == "checkpoint" and not decision.redo:
            figures = CheckpointFigures.of(decision)
            # How long deciding and committing took is in the record after it, where that is of the same life.
            after = later.durations_ms if later is not None and later.epoch == decision.epoch else {}
            yield _Checkpoint(
                figures=figures,
                duration_ms=figures.duration_ms + sum(after.get(part, 0) for part in ("decide", "commit")),
                occasions=list(dict.fromkeys(["checkpoint", *occasions])),
                path=kept.path(decision.checkpoint),
                kept_bytes=kept.bytes(decision.checkpoint),
            )
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
