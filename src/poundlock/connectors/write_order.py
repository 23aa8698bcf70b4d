"""What orders the writes of a sink by key whose system keeps the greatest of several: the moment its checkpoint was begun, in ms.

It is the driver's clock, and never less than one more than that of the newest decision, so it grows from checkpoint to checkpoint, from an
attempt to the next and from one job to the next. A number of a checkpoint would not: a job that is begun with a new folder, or goes on from a savepoint,
counts from a smaller one again.
"""

from __future__ import annotations

from collections.abc import Sequence

from poundlock.checkpoint.participant import JSON, Prepared, Staged, WriterContext


def directive_of(state: JSON) -> JSON:
    """Return what the tasks of the next checkpoint have to know of the newest decision."""
    return {"v": 1, "after_ms": state.get("begun_ms", 0)}


def begun_ms(context: WriterContext) -> int:
    """Return the moment that all writes of an attempt carry."""
    return max(context.started_ms, int(context.directive.get("after_ms", 0)) + 1)


def staged(state: JSON, prepared: Sequence[Prepared]) -> Staged:
    """Return what the next decision says: rows are visible already, and the greatest moment they carry is remembered."""
    newest = max((int(item.payload["begun_ms"]) for item in prepared), default=0)
    return Staged({"v": 1, "pending": [], "at_once": True, "begun_ms": max(newest, state.get("begun_ms", 0))}, [])
