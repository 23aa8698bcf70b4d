"""Very many calls of a participant as tasks of the cluster, where its client would keep a core of the driver busy for seconds.

A commit, an abort and a verification may be done by any process, any number of times. So a task that is repeated does no harm, and where
the tasks fail the driver does all of it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from math import ceil
from typing import Protocol, TypeVar

from poundlock.checkpoint.capabilities import InTasks
from poundlock.checkpoint.outcome import Log

T = TypeVar("T")
R = TypeVar("R")
P = TypeVar("P")


class Tasks(Protocol):
    """What runs functions on the cluster."""

    def run(self, call: Callable[[list[T]], list[R]], pieces: Sequence[list[T]]) -> list[list[R]]:
        """Return what a call returns for each piece, a task each, in order.

        Raises:
            Exception: a task failed too often.
        """


def by_tasks(
    call: Callable[[P, list[T]], list[R]], participant: P, items: Sequence[T], tasks: Tasks | None, log: Log
) -> list[R] | None:
    """Return what a call returns for pieces of some items, one after the other; None where the driver is to call it itself.

    Args:
        call: a function of a module, which tasks can import, given the participant.
        tasks: None = there is no cluster.
    """
    pieces = participant.pieces(len(items)) if tasks is not None and isinstance(participant, InTasks) else 1
    if tasks is None or pieces <= 1:
        return None
    size = ceil(len(items) / pieces)
    try:
        done = tasks.run(partial(call, participant), [list(items[n : n + size]) for n in range(0, len(items), size)])
    except Exception as error:  # of Spark's: a lost executor, a job that is being ended
        log.warning("tasks failed, the driver does it", why=str(error).partition("\n")[0])
        return None
    return list(chain.from_iterable(done))
