"""Sinks whose rows nobody keeps, such as those on a terminal: there is nothing to sweep and nothing to compare with a decision.

`fsck` then needs no job's file for them. What stands for one that is made again commits nothing: its rows come where the job runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poundlock.checkpoint.capabilities import Inspectable
from poundlock.checkpoint.participant import JSON, Committed, Finding, Kind, Participant, Writer, WriterContext
from poundlock.errors import DefinitionError

NOTHING = "nothing"


class KeepsNothing(Inspectable, Participant):
    """A sink that keeps nothing."""

    def describe_json(self) -> JSON:
        """Return that there is nothing to sweep, inspect or commit again."""
        return {"v": 1, "kind": NOTHING}

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        """Return nothing: whatever was decided is gone."""
        return []


@dataclass(frozen=True)
class NothingKept(KeepsNothing):
    """Stands for a sink that keeps nothing, where the job's own code is not there."""

    kind: ClassVar[Kind] = Kind.FORGETFUL

    @classmethod
    def from_json(cls, description: JSON) -> NothingKept:
        """Return it of what `describe_json` gave. Raises DefinitionError: another version wrote that."""
        if description.get("v") != 1:
            raise DefinitionError(
                f"a sink that keeps nothing is described in format {description.get('v')!r}",
                next="use the version of poundlock that ran the job",
            )
        return cls()

    def open_writer(self, context: WriterContext) -> Writer:
        """Refuse: it takes no rows."""
        raise AssertionError("what stands for a sink writes nothing")

    def commit(self, committable: JSON) -> Committed:
        """Do nothing: the next start of the job shows what has not been shown."""
        return Committed()
