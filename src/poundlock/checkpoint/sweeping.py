"""Removing what no decision names: by the driver as a rule, and by tasks where its client would keep a core of the driver busy for seconds.

A start finds leftovers before it has a cluster, and names are unique to their attempt: so very many may wait until there is one. A driver
that dies meanwhile finds them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence

from poundlock.checkpoint.capabilities import InTasks, SweepsMany
from poundlock.checkpoint.in_tasks import Tasks, by_tasks
from poundlock.checkpoint.outcome import Log
from poundlock.checkpoint.participant import JSON, Leftover, Orphan, Participant

Left = MutableMapping[str, Sequence[Leftover]]


def sweep_all(
    participants: Mapping[str, Participant], state_of: Callable[[str], JSON], *, check: Callable[[], None], later: Left
) -> dict[str, Sequence[Orphan]]:
    """Find what each participant has left, and remove it; return it.

    Args:
        state_of: a participant's state in the newest decision.
        check: called before anything is removed; raises where a newer driver has taken over.
        later: takes by name what is so much that tasks are to remove it.

    Raises:
        TransientError: a system did not answer, or refused.
        FencedError: as `check`.
    """
    orphans: dict[str, Sequence[Orphan]] = {}
    for name, participant in participants.items():
        if not (isinstance(participant, SweepsMany) and isinstance(participant, InTasks)):
            orphans[name] = participant.sweep(state_of(name), remove=True, check=check)
            continue
        left = participant.leftovers(state_of(name))
        orphans[name] = [each.orphan for each in left]
        if participant.pieces(len(left)) > 1:
            later[name] = left
        elif left:
            check()
            participant.remove(left)
    return orphans


def remove_left(
    participants: Mapping[str, Participant], later: Left, *, check: Callable[[], None], tasks: Tasks | None, log: Log
) -> None:
    """Remove what was left for tasks; where they fail, or are none, the driver does. Raises as `sweep_all`."""
    for name, participant in participants.items():
        left = later.pop(name, ())
        if left and isinstance(participant, SweepsMany):
            check()
            wrong = by_tasks(remove_piece, participant, left, tasks, log)
            if wrong is None:
                participant.remove(left)
            for error in wrong or ():
                raise error


def remove_piece(participant: SweepsMany, leftovers: list[Leftover]) -> list[Exception]:
    """Remove some in a task; return what is wrong, if anything is."""
    try:
        participant.remove(leftovers)
    except Exception as error:
        return [error]
    return []
