"""What a source promises when a range is read again, as a value that it declares.

`Job(require=…)`, `explain` and the conformance suite go by this and by nothing else: not by a class, a name or a format. A source
that declares nothing promises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

ReplayKind = Literal["exact", "if-unchanged", "received-once", "unknown"]


@dataclass(frozen=True, slots=True)
class ReplayPromise:
    """What a second reading of a range gives.

    Args:
        kind: "exact": the same rows, or an error that names the range, whatever happens at the other system in between;
            "if-unchanged": the same rows as long as nobody changes what was written there before, and the source does not notice
            if somebody does; "received-once": what was received comes again, and what was on its way when the driver
            died is lost; "unknown": nobody knows.
        reason: one clause that says why, for people; it follows the name of the source in `explain`.
    """

    kind: ReplayKind
    reason: str


@runtime_checkable
class DeclaresReplay(Protocol):
    """A source that says what a second reading of a range gives."""

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives. A pure function of the source's arguments; asks no server."""
        ...


UNDECLARED = ReplayPromise("unknown", "it does not declare what a range gives when it is read again")


def replay_of(source: object) -> ReplayPromise:
    """Return what a source declares; a promise of the kind "unknown" if it declares nothing."""
    return source.replay if isinstance(source, DeclaresReplay) else UNDECLARED
