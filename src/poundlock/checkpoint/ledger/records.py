"""What ledger records say together: what carries over from one to the next, and those of a checkpoint.

Every sink the job ever had stays in every record, so that one taken out and put back goes on counting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from poundlock.checkpoint.committer import Carried
from poundlock.checkpoint.decision import Decision, Redo, SourceRange
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import JSON
from poundlock.errors import DefinitionError, TerminalError
from poundlock.state.decided_state import DecidedState

START = "start"


def state_of(decision: Decision | None, sink: str) -> JSON:
    """Return what a sink must remember, {} if it is new."""
    part = decision.sinks.get(sink) if decision else None
    return dict(part.state) if part else {}


def to_redo(decision: Decision | None, carried: Carried | None = None) -> dict[str, Redo]:
    """Return what has to be produced again after a decision.

    Args:
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
    records: list[Decision] = []
    for number in range(ledger.first_of(n, newest), newest.number + 1):
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


def state_parts(ledger: Ledger, newest: Decision | None) -> list[DecidedState]:
    """Return what the newest decisions say of state, oldest first: back to one that says all, and one more than it takes.

    That one more tells the state before the newest checkpoint.
    """
    parts: list[DecidedState] = []
    for record in ledger.back(newest) if newest is not None else ():
        if record.state is not None:
            parts.append(record.state)
            if record.state.manifest is not None and (len(parts) > 1 or record.occasion == "start"):
                break
    return parts[::-1]
