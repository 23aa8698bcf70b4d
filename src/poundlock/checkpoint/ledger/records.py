"""Making ledger records: what carries over from the one before, and what a start says.

Pure functions; every sink the job ever had stays in every record, so that one taken out and put back goes on counting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.committer import Carried
from poundlock.checkpoint.decision import Decision, EventTime, Redo, SinkDecision, SourceRange
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import JSON, Counts, Staged
from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.time_values import DecidedTime
from poundlock.state.decided_state import DecidedState

START = "start"


def state_of(decision: Decision, sink: str) -> JSON:
    """Return what a sink must remember, {} if it is new."""
    part = decision.sinks.get(sink)
    return dict(part.state) if part else {}


def start_record(
    before: Decision | None,
    *,
    ledger: Ledger,
    identity: Identity,
    epoch: int,
    now_ms: int,
    sinks: Mapping[str, object],
    redo: Mapping[str, Redo],
    state: DecidedState | None = None,
) -> Decision:
    """Return the record with which a driver takes over: nothing is committed, all states go on.

    `redo` is what carrying out the record before showed to be aborted; what that record left to be redone stays so.
    """
    states: dict[str, JSON] = {name: {} for name in sinks}
    sources: Mapping[str, SourceRange] = {}
    watermarks: DecidedTime | None = None
    if before is not None:
        states.update({name: dict(sink.state) for name, sink in before.sinks.items()})
        # Rolls and ends name no sources; few of them stand between two records that do.
        latest = next((record for record in ledger.back(before) if record.occasion in ("checkpoint", START)), None)
        if latest is not None:
            sources, watermarks = latest.sources, latest.watermarks
    return Decision(
        number=before.number + 1 if before else 0,
        occasion=START,
        checkpoint=before.checkpoint if before else -1,
        job_id=identity.job_id,
        epoch=epoch,
        time_ms=now_ms,
        sources=sources,
        sinks={name: SinkDecision([], state) for name, state in states.items()},
        redo=redo or to_redo(before),
        watermarks=watermarks,
        state=state,
    )


def next_record(
    newest: Decision,
    *,
    occasion: str,
    staged: Mapping[str, Staged],
    epoch: int,
    now_ms: int,
    checkpoint: int | None = None,
    sources: Mapping[str, SourceRange] | None = None,
    counts: Mapping[str, Counts] | None = None,
    wrote: Mapping[str, Written] | None = None,
    started_ms: int | None = None,
    event_time: EventTime | None = None,
    tasks: int | None = None,
    watermarks: DecidedTime | None = None,
    durations_ms: Mapping[str, int] | None = None,
    redo: Mapping[str, Redo] | None = None,
    state: DecidedState | None = None,
) -> Decision:
    """Return the record after `newest`. A roll or an end keeps its checkpoint number, what is to be redone, and reads nothing."""
    sinks = {name: SinkDecision([], sink.state) for name, sink in newest.sinks.items()}
    for name, part in staged.items():
        amounts = (counts or {}).get(name, Counts()), (wrote or {}).get(name)
        sinks[name] = SinkDecision(list(part.committables), part.state, *amounts)
    return Decision(
        number=newest.number + 1,
        occasion=occasion,
        checkpoint=newest.checkpoint if checkpoint is None else checkpoint,
        job_id=newest.job_id,
        epoch=epoch,
        time_ms=now_ms,
        sources=sources or {},
        sinks=sinks,
        durations_ms=durations_ms or {},
        redo=(redo or {}) if checkpoint is not None else to_redo(newest),
        started_ms=started_ms,
        event_time=event_time,
        tasks=tasks,
        watermarks=watermarks,
        state=state,
    )


def to_redo(decision: Decision | None, carried: Carried | None = None) -> dict[str, Redo]:
    """Return what has to be produced again after a decision.

    Args:
        decision: the decision; None if there is none.
        carried: what became of it; None = look only at what it says itself was left to do.
    """
    if decision is None:
        return {}
    if carried is None:
        return {name: redo for name, redo in decision.redo.items() if redo.again}
    return {
        name: Redo(
            again, [*(decision.redo[name].done if name in decision.redo else ()), *carried.committed.get(name, ())]
        )
        for name, again in carried.aborted.items()
    }


def resting(before: Mapping[str, SourceRange], now: Mapping[str, SourceRange]) -> dict[str, SourceRange]:
    """Return where sources stand that a checkpoint does not read: one that was taken out and put back goes on from there."""
    return {name: replace(span, start=span.end, rows=0, bytes=None) for name, span in before.items() if name not in now}


def checkpoint_records(ledger: Ledger, n: int) -> Sequence[Decision]:
    """Return the records of checkpoint n, oldest first: the one that decided it, and those that decided parts of it again.

    Few records are read, whatever the ledger holds.

    Raises:
        DefinitionError: n is not decided yet, was never, or is older than what the ledger keeps.
    """
    newest = ledger.newest()
    if newest is None or newest.checkpoint < n:
        so_far = "nothing yet" if newest is None or newest.checkpoint < 0 else f"0 to {newest.checkpoint} so far"
        raise DefinitionError(f"checkpoint {n} is not decided: the ledger has {so_far}", next=_LOOK)
    first = ledger.first()
    low, high = first, newest.number
    while low < high:  # checkpoint numbers never fall
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ledger.read(middle).checkpoint < n else (low, middle)
    records: list[Decision] = []
    for number in range(low, newest.number + 1):
        record = ledger.read(number)
        if record.checkpoint > n:
            break
        if record.occasion == "checkpoint":
            records.append(record)
    if records and not records[0].redo:
        return records
    if first > 0 and ledger.read(first).checkpoint >= n:
        raise DefinitionError(
            f"checkpoint {n} is no longer in the ledger, which begins with record {first}",
            next="ledger_retention says how long decisions are kept; choose a newer checkpoint",
        )
    raise DefinitionError(f"the ledger has no checkpoint {n}: numbers may have gaps", next=_LOOK)


_LOOK = "see what there is: poundlock ledger PATH --occasion checkpoint"


def find_checkpoint(ledger: Ledger, newest: Decision, n: int) -> Decision:
    """Return the record that says what checkpoint n read, looking back from the newest.

    Raises:
        TerminalError: the ledger never decided n, although it decided a later one.
    """
    for record in ledger.back(newest):
        if record.checkpoint < n:
            break
        # What was restored begins with a record that says what its newest checkpoint read.
        if record.checkpoint == n and (record.occasion == "checkpoint" or record.restored is not None):
            return record
    raise TerminalError(
        f"checkpoint {n} of another history: the ledger has decided {newest.checkpoint} but never {n}",
        next="restore Spark's checkpoint and the ledger from the same moment, or begin in a new checkpoint_dir",
    )
