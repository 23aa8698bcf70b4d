"""What tells a commit that was made from one that was not: a mark in the table's own properties, set by the very commit it stands for.

A mark is the newest decision of one sink of one job that the table has: driver's life and checkpoint, which only grow. It outlives
the snapshot, whose summary has it too, so that maintenance may expire snapshots.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.iceberg.files import FileValue

if TYPE_CHECKING:
    from pyiceberg.table import Table

_PROPERTY = "poundlock.committed."
_DECIDED = "poundlock.decided."
_DECISION = "poundlock.decision"


class DecisionMark(msgspec.Struct, frozen=True, order=True):
    """A decision: the life of the driver that planned it, and the checkpoint. Later ones compare greater."""

    epoch: int
    checkpoint: int

    def __str__(self) -> str:
        return f"e{self.epoch}-c{self.checkpoint}"

    @classmethod
    def parse(cls, text: str) -> DecisionMark:
        """Return the mark of a text. Raises ValueError."""
        epoch, _, checkpoint = text.removeprefix("e").partition("-c")
        return cls(int(epoch), int(checkpoint))


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose marks they are.

    Args:
        job_id: 32 hex digits.
        sink: name of the sink in the job.
        branch: the branch of the table that is written; "" = main.
    """

    job_id: str
    sink: str
    branch: str = ""

    @property
    def name(self) -> str:
        """Letters and digits that no other owner has."""
        return (
            f"{self.job_id[:12]}-{hashlib.sha256(f'{self.job_id}/{self.sink}/{self.branch}'.encode()).hexdigest()[:8]}"
        )

    @property
    def decided_property(self) -> str:
        """The name of the table's property that says which decision has the mark: two copies of a checkpoint folder make the same marks."""
        return f"{_DECIDED}{self.job_id}.{self.name[-8:]}"

    @property
    def property(self) -> str:
        """The name of the table's property."""
        return f"{_PROPERTY}{self.job_id}.{self.name[-8:]}"

    @staticmethod
    def decided(decided: TableCommit) -> str:
        """Return the value of that property."""
        return f"{decided.mark} {decided.decision}"

    def summary(self, decided: TableCommit) -> dict[str, str]:
        """Return what stands in the summary of a snapshot that a decision makes."""
        return {
            "poundlock.job-id": self.job_id,
            "poundlock.sink": self.sink,
            "poundlock.epoch": str(decided.epoch),
            "poundlock.checkpoint": str(decided.checkpoint),
            _DECISION: decided.decision,
        }

    def other_decision(self, table: Table, decided: TableCommit) -> str:
        """Return where a table says that the mark of a decision is another decision's; "" where it does not, or says nothing of it any more."""
        mark, _, decision = table.metadata.properties.get(self.decided_property, "").partition(" ")
        if mark == str(decided.mark) and decision != decided.decision:
            return f"its property {self.decided_property}"
        for made, snapshot in self.snapshots(table):
            if made == decided.mark and decision_of(snapshot) not in ("", decided.decision):
                return f"snapshot {snapshot.snapshot_id}"
        return ""

    def newest(self, table: Table) -> DecisionMark | None:
        """Return the newest decision that a table has, by its property and by its snapshots; None if there is none."""
        marks = [mark for mark, _ in self.snapshots(table)]
        if (text := table.metadata.properties.get(self.property)) is not None:
            marks.append(DecisionMark.parse(text))
        return max(marks, default=None)

    def snapshots(self, table: Table) -> list[tuple[DecisionMark, Any]]:
        """Return the snapshots of this owner that a table still has, the oldest first."""
        made = []
        for snapshot in table.metadata.snapshots:
            has = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if has.get("poundlock.job-id") == self.job_id and has.get("poundlock.sink") == self.sink:
                mark = DecisionMark(int(has.get("poundlock.epoch", 0)), int(has.get("poundlock.checkpoint", 0)))
                made.append((mark, snapshot))
        return sorted(made, key=lambda pair: pair[0])


def decision_of(snapshot: Any) -> str:
    """Return the digest of the decision that made a snapshot; "" where it does not say so."""
    return str(snapshot.summary.additional_properties.get(_DECISION, ""))


class TaskFiles(SinkValue, frozen=True, kw_only=True):
    """What one task wrote.

    Args:
        table: the table's id.
        spec: the partition spec by which it wrote.
    """

    table: str
    spec: int
    epoch: int
    checkpoint: int
    rows: int
    bytes: int
    files: list[FileValue]


class TableCommit(SinkValue, frozen=True, kw_only=True, omit_defaults=True):
    """What one decision makes visible, by one commit.

    Args:
        after: the mark that the table has before it; "" = none.
    """

    table: str
    spec: int
    epoch: int
    checkpoint: int
    after: str = ""
    rows: int
    bytes: int
    files: list[FileValue]

    @property
    def mark(self) -> DecisionMark:
        """The mark that it leaves."""
        return DecisionMark(self.epoch, self.checkpoint)

    @property
    def decision(self) -> str:
        """The digest of the files' names, which tells this decision from another one with the same mark."""
        names = "\0".join(sorted(file.path for file in self.files))
        return hashlib.blake2b(names.encode(), digest_size=16).hexdigest()


class CarriedMark(SinkValue, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered from one decision to the next.

    Args:
        pending: always empty: all that is decided is committed.
        job: the job that made the mark.
        mark: the newest decision that names rows; "" = none.
    """

    pending: list[Any] = msgspec.field(default_factory=list)
    job: str = ""
    mark: str = ""
