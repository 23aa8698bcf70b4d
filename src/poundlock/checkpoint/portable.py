"""The seam between a savepoint and a sink: what it carries hidden from one checkpoint to the next, and how far its output was.

What a sink carries is copied into the savepoint, and out of it under the names of the job that restores; neither job ever
touches the other's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from poundlock.checkpoint.participant import JSON, Participant
from poundlock.storage import Storage

NewerOutput = Literal["refuse", "keep", "retract"]
"""What becomes of output that was finished after the savepoint was taken: see docs/savepoints.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """What a sink says of output that is there and was not when a savepoint was taken.

    Args:
        what: what there is, to follow the sink's name, such as "has 3 files that …"; "" = nothing.
        unknown: why nobody can tell; "" = it was looked at.
        retractable: whether a restore can remove it.
        lost: what of the output the savepoint counts on is not there any more, to follow the sink's name too; "" = nothing is known.
    """

    what: str = ""
    unknown: str = ""
    retractable: bool = True
    lost: str = ""


@runtime_checkable
class Portable(Participant, Protocol):
    """A participant that can take part in a savepoint. Of one that is not, nobody can tell whether it has newer output.

    A class that derives from it and carries nothing from one checkpoint to the next has to say `newer` only.
    """

    def save(self, state: JSON, savepoint: Storage, folder: str, copy: Callable[[Storage, str, str], None]) -> None:
        """Copy what a state names into a folder of a savepoint.

        Args:
            state: the sink's state in the decision at the cut.
            savepoint: the savepoint.
            folder: the sink's folder in it.
            copy: copies a file of a storage to a path in the savepoint.
        """
        return

    def check_saved(self, state: JSON) -> None:
        """Raise DefinitionError unless a saved state names only what can be restored; nothing is changed."""
        return

    def note(self) -> JSON:
        """Return what `newer` will have to know besides the state, as it is at the cut; {} = nothing.

        Called at a checkpoint's border while the job waits, so it must be quick. It raises nothing.
        """
        return {}

    @abstractmethod
    def newer(self, state: JSON, note: JSON) -> Newer:
        """Look for finished output that is there and was not at the cut; nothing is changed.

        Args:
            state: the saved state.
            note: what `note` returned at the cut; {} where the savepoint has none.

        Raises:
            PoundlockError: it cannot be looked for now.
        """

    def restore(self, state: JSON, savepoint: Storage, folder: str, newer: NewerOutput) -> JSON:
        """Take a saved state over: copy its data out of the savepoint, under this job's names; return the state of it.

        May be called again after a crash.

        Args:
            state: the saved state.
            savepoint: the savepoint.
            folder: the sink's folder in it.
            newer: what to do with newer output; "refuse" was looked at before.
        """
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFile:
    """Data that waits to become visible.

    Args:
        path: the name it will have, below the sink's place.
        rows, bytes: how much it is.
    """

    path: str
    rows: int
    bytes: int


@runtime_checkable
class Legible(Protocol):
    """A participant that can say what a saved state holds, for people, and have it edited. Nothing is touched."""

    def pending(self, state: JSON) -> Sequence[PendingFile]:
        """Return what the state carries that is still to become visible."""
