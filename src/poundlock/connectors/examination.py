"""What `poundlock doctor` asks a source or a sink: whether it could work, with nothing left behind, and what time it is there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Examination:
    """What a source or a sink that could work has seen at its system.

    Args:
        to_make: what is not there yet and is made when a job starts, such as "topic 'poundlock-markers'".
        ms_ahead: by how many ms the system's clock is ahead of this machine's, negative = behind; None = it does not tell.
        clock: whose clock that is, for people.
    """

    to_make: Sequence[str] = ()
    ms_ahead: int | None = None
    clock: str = ""


@runtime_checkable
class Examinable(Protocol):
    """It can be asked what its preflight asks without anything being made that stays."""

    @abstractmethod
    def examine(self) -> Examination:
        """Return what there is to be seen. Takes some seconds at most.

        Raises:
            DefinitionError: it could not work, with what to change.
            TransientError: nobody answers.
        """
