"""`poundlock ledger` and `checkpoints`: a job's decisions, oldest first, and its checkpoints, newest first, with which of them can be given
to `run -s`. Both read only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, takewhile
from json import dumps as json_text
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from poundlock.cli.completion import checkpoint_names
from poundlock.cli.job_lookup import CheckpointArgument, FoundCheckpoint, find_checkpoint, find_of_job
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import watermark_text
from poundlock.errors import DefinitionError
from poundlock.values import utc_text

if TYPE_CHECKING:
    from poundlock.checkpoint.decision import Decision
    from poundlock.checkpoint.ledger.ledger import Ledger
    from poundlock.rest.figures import CheckpointFigures


_OCCASIONS = ("start", "checkpoint", "roll", "end")
_POLL_S = 0.5


_COLUMNS = ("read", "written", "bytes", "filtered", "late", "dead-letter", "skipped", "committed", "ms")
_HEADING = f"{'number':>7}  {'time':24}  {'occasion':10}  {'checkpoint':>10}  {'epoch':>5}" + "".join(
    f"  {name:>11}" for name in _COLUMNS
)


def _lines(decision: Decision, *, sink: str | None, verbose: bool) -> Iterator[str]:
    yield _row(decision, sink)
    if verbose:
        yield from (f"{'':9}{text}" for text in _details(decision, sink))


def _details(decision: Decision, sink: str | None) -> Iterator[str]:
    """Yield what a checkpoint read and wrote, a line a source and a sink, and what it took."""
    if decision.occasion == "checkpoint":
        for name, span in decision.sources.items():
            yield f"source {name}: {_json(span.start)} to {_json(span.end)}, {_count(span.rows)} rows"
    for name, part in decision.sinks.items():
        if sink in (None, name) and (wrote := part.wrote) is not None:
            times = f", events {utc_text(wrote.min_ms)} to {utc_text(wrote.max_ms)}" if wrote.min_ms is not None else ""
            yield (
                f"sink {name}: {_count(wrote.rows)} rows, {_count(wrote.bytes)} bytes, {wrote.pieces} pieces,"
                f" digest {wrote.digest or '-'}{times}"
            )
    if (seen := decision.event_time) is not None:
        yield f"event time: {utc_text(seen.min_ms)} to {utc_text(seen.max_ms)}, watermark {watermark_text(seen.watermark_ms)}"
    if (marks := decision.watermarks) is not None and decision.occasion == "checkpoint":
        held = marks.held_by
        who = "" if held is None else f", held back by {held}"
        yield f"watermark behind it: {watermark_text(marks.watermark)}{who}"
    if decision.parallelism is not None and decision.occasion == "checkpoint":
        yield f"parallelism {decision.parallelism}"
    if decision.durations_ms:
        yield "took: " + ", ".join(f"{name} {ms} ms" for name, ms in decision.durations_ms.items())


def _json(position: Any) -> str:
    return json_text(position, separators=(",", ":"), ensure_ascii=False)


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number}"


def _row(decision: Decision, sink: str | None) -> str:
    from poundlock.plan.plan import DEAD_LETTER  # not when only help is asked for

    # Dead letters have a column of their own.
    parts = [part for name, part in decision.sinks.items() if (name != DEAD_LETTER if sink is None else name == sink)]
    numbers = (
        sum(span.rows or 0 for span in decision.sources.values()) if decision.occasion == "checkpoint" else 0,
        sum(part.counts.written for part in parts),
        sum(part.wrote.bytes or 0 for part in parts if part.wrote is not None),
        sum(part.counts.filtered for part in parts),
        sum(part.counts.late for part in parts),
        sum(part.counts.dead_lettered for part in parts),
        sum(part.counts.skipped for part in parts),
        sum(len(part.committables) for part in parts),
        sum(decision.durations_ms.get(name, 0) for name in ("run", "verify")),
    )
    return (
        f"{decision.number:>7}  {utc_text(decision.time_ms)}  {decision.occasion:10}  {decision.checkpoint:>10}  {decision.epoch:>5}"
        + "".join(f"  {number:>11}" for number in numbers)
    )


@with_shared_options
def command(
    path: CheckpointArgument,
    last: Annotated[int | None, Option("--last", min=1, help="Only the newest so many.")] = None,
    first_checkpoint: Annotated[int | None, Option("--from", min=0, help="Only from this checkpoint on.")] = None,
    last_checkpoint: Annotated[int | None, Option("--to", min=0, help="Only up to this checkpoint.")] = None,
    occasion: Annotated[str | None, Option("--occasion", help="Only one kind: start, checkpoint, roll or end.")] = None,
    sink: Annotated[str | None, Option("--sink", help="Count the rows of this sink alone.")] = None,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Ranges, digests, event times and durations as well.")
    ] = False,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on with decisions as they are made.")] = False,
    *,
    call: Call,
) -> None:
    """List the decisions of a job.

    With --json they are one array; with --follow too, one object a line.
    """
    from poundlock.checkpoint.ledger.ledger import Ledger

    if occasion is not None and occasion not in _OCCASIONS:
        raise DefinitionError(f"--occasion {occasion} is none", next=f"use one of {', '.join(_OCCASIONS)}")

    def wanted(decision: Decision) -> bool:
        return (
            (first_checkpoint is None or decision.checkpoint >= first_checkpoint)
            and (last_checkpoint is None or decision.checkpoint <= last_checkpoint)
            and (occasion is None or decision.occasion == occasion)
        )

    ledger = Ledger(find_checkpoint(path, call).storage)
    newest = ledger.newest()
    if sink is not None and newest is not None and sink not in newest.sinks:
        raise DefinitionError(f"the job has no sink {sink!r}", next=f"use one of {', '.join(newest.sinks)}")
    decisions: list[Decision] = []
    if newest is not None and last is not None:
        decisions = [*islice(filter(wanted, ledger.back(newest)), last)][::-1]  # a long ledger is not read for its end
    elif newest is not None:
        number = ledger.first() if first_checkpoint is None else ledger.first_of(first_checkpoint, newest)
        decided = ledger.since(number)
        if last_checkpoint is not None:
            decided = takewhile(lambda decision: decision.checkpoint <= last_checkpoint, decided)
        decisions = [*filter(wanted, decided)]
    lines = partial(_lines, sink=sink, verbose=verbose)
    if not follow:
        texts = chain([_HEADING], chain.from_iterable(map(lines, decisions)))
        call.output.show(texts, lambda: [decision.to_json() for decision in decisions])
        return
    call.output.say(_HEADING)
    new = filter(wanted, _new(ledger, newest.number + 1 if newest is not None else 0))
    for decision in chain(decisions, new):
        call.output.show(lines(decision), decision.to_json)


def _new(ledger: Ledger, number: int) -> Iterator[Decision]:
    """Yield decisions as they come, for ever."""
    while True:
        newest = ledger.newest()
        while newest is not None and number <= newest.number:
            yield ledger.read(number)
            number += 1
        time.sleep(_POLL_S)


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
        its = self.figures
        numbers = (self.duration_ms, its.size, its.rows_read, its.rows_written)
        return (
            f"{its.number:>10}  {utc_text(its.decided_ms)}"
            + "".join(f"  {'-' if number is None else number:>11}" for number in numbers)
            + f"  {', '.join(self.occasions):22}  {self.path or '-'}"
        )


_CHECKPOINTS = (
    f"{'checkpoint':>10}  {'time':24}"
    + "".join(f"  {name:>11}" for name in ("ms", "bytes", "read", "written"))
    + f"  {'decided by':22}  restorable from"
)


@with_shared_options
def checkpoints(
    job: Annotated[
        str,
        Argument(
            metavar="JOB",
            help="A job's id, the beginning of its id, or its name; its checkpoint folder, or its file JOB.PY[:NAME].",
            autocompletion=checkpoint_names,
        ),
    ],
    last: Annotated[int, Option("-n", "--last", min=1, help="How many at most.")] = 20,
    *,
    call: Call,
) -> None:
    """List a job's checkpoints, newest first.

    With time, duration, size and rows of each, and the path from which it can be restored.
    """
    checkpoint = find_of_job(job, call)
    its, listed = checkpoint.identity, list(_newest_checkpoints(checkpoint, last))
    data = {"job_id": its.job_id, "name": its.name, "checkpoint_dir": checkpoint.storage.root}
    none = f"No completed checkpoint of job {its.job_id} ({its.name})."
    lines = [_CHECKPOINTS, *(each.line() for each in listed)] if listed else [none]
    call.output.show(lines, {**data, "checkpoints": [each.to_json() for each in listed]})


def _newest_checkpoints(checkpoint: FoundCheckpoint, most: int) -> Iterator[_Checkpoint]:
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
