"""The audit of a job: does the ledger add up, and do the sinks hold what it says? Reads only.

In = out + filtered + late + dead-lettered + skipped, checkpoint by checkpoint; every row written is visible or waits; and what is
visible is read back whole and compared with the counts and digests of the decision that named it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger import Ledger
from poundlock.checkpoint.participant import Auditable, Counts, Disagreement, Participant
from poundlock.checkpoint.records import state_of

__all__ = ["AuditReport", "SinkAudit", "audit"]


@dataclass(slots=True)
class SinkAudit:
    """What the audit found of one sink.

    Args:
        counts: what the ledger says went to it.
        visible: rows that decisions made visible, as the ledger says.
        waiting_before: rows that waited hidden before the first checkpoint looked at.
        waiting_after: rows that wait hidden after the last one.
        read_back: committables that were read and compared.
        unchecked: why its output was not read; "" if it was.
    """

    counts: Counts = field(default_factory=Counts)
    visible: int = 0
    waiting_before: int = 0
    waiting_after: int = 0
    read_back: int = 0
    unchecked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What the audit found.

    Args:
        first, last: the checkpoints looked at; None where the ledger has none in the range.
        records: decisions read.
        rows_read: per source, rows read.
        sinks: per sink.
        disagreements: per sink, or "" for the ledger itself, what does not agree.
    """

    first: int | None
    last: int | None
    records: int
    rows_read: Mapping[str, int]
    sinks: Mapping[str, SinkAudit]
    disagreements: Sequence[tuple[str, Disagreement]]

    @property
    def agrees(self) -> bool:
        """Whether everything agrees."""
        return not self.disagreements

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "first": self.first,
            "last": self.last,
            "records": self.records,
            "rows_read": dict(self.rows_read),
            "sinks": {name: {**asdict(sink), "counts": sink.counts.to_json()} for name, sink in self.sinks.items()},
            "disagreements": [{"sink": name, **asdict(found)} for name, found in self.disagreements],
        }


def audit(
    ledger: Ledger, sinks: Mapping[str, Participant | None], *, first: int | None = None, last: int | None = None
) -> AuditReport:
    """Audit a range of checkpoints.

    Args:
        ledger: the decisions.
        sinks: per name, the sink; None where it cannot be made without the job's own code.
        first, last: checkpoints to look at, both included; None = from the beginning, to the newest.
    """
    work = _Audit(sinks)
    for decision in ledger:
        if first is not None and decision.checkpoint < first:
            work.skip(decision)
        elif last is not None and decision.checkpoint > last:
            break
        else:
            work.take(decision)
    return work.report()


class _Audit:
    """Adds up decision after decision."""

    def __init__(self, sinks: Mapping[str, Participant | None]) -> None:
        self._sinks = sinks
        self._found: dict[str, SinkAudit] = {}
        self._rows_read: dict[str, int] = {}
        self._wrong: list[tuple[str, Disagreement]] = []
        self._ends: dict[str, Any] = {}
        self._checkpoints: list[int] = []
        self._records = 0
        self._before: Decision | None = None
        self._newest: Decision | None = None

    def skip(self, decision: Decision) -> None:
        self._before = decision
        self._note_ends(decision)

    def take(self, decision: Decision) -> None:
        self._records += 1
        self._newest = decision
        if decision.occasion == "checkpoint":
            self._checkpoints.append(decision.checkpoint)
            self._continuity(decision)
            for name, span in decision.sources.items():
                self._rows_read[name] = self._rows_read.get(name, 0) + (span.rows or 0)
        self._note_ends(decision)
        for name, part in decision.sinks.items():
            found = self._sink(name)
            found.counts.add(part.counts)
            if not part.counts.balanced():
                self._say(name, decision.checkpoint, "", f"the counts do not add up: {part.counts.to_json()}")
            prepared = part.wrote.rows if part.wrote is not None else None
            # What is produced again was counted when it was produced first.
            if prepared not in (None, part.counts.written) and name not in decision.redo:
                what = f"{part.counts.written} rows are counted and {prepared} were prepared"
                self._say(name, decision.checkpoint, "", what)
            sink = self._sinks.get(name)
            if isinstance(sink, Auditable):
                for committable in part.committables:
                    found.read_back += 1
                    found.visible += sink.rows_of(committable)
                    self._wrong += [(name, wrong) for wrong in sink.audit(committable)]

    def _sink(self, name: str) -> SinkAudit:
        if name not in self._found:
            sink = self._sinks.get(name)
            reason = "it cannot be made without the job's own code" if sink is None else "it cannot be read back"
            self._found[name] = SinkAudit(
                waiting_before=self._waiting(self._before, name),
                unchecked="" if isinstance(sink, Auditable) else reason,
            )
        return self._found[name]

    def _waiting(self, decision: Decision | None, name: str) -> int:
        sink = self._sinks.get(name)
        return sink.rows_pending(state_of(decision, name)) if decision and isinstance(sink, Auditable) else 0

    def _continuity(self, decision: Decision) -> None:
        for name, span in decision.sources.items():
            if name in self._ends and span.start is not None and self._ends[name] not in (span.start, span.end):
                self._say(
                    "", decision.checkpoint, name, f"source {name!r} goes on at {span.start}, not at {self._ends[name]}"
                )

    def _note_ends(self, decision: Decision) -> None:
        self._ends.update({name: span.end for name, span in decision.sources.items()})

    def _say(self, sink: str, checkpoint: int | None, path: str, what: str) -> None:
        self._wrong.append((sink, Disagreement(checkpoint, path, what)))

    def report(self) -> AuditReport:
        for name, found in self._found.items():
            found.waiting_after = self._waiting(self._newest, name)
            written = found.counts.written + found.waiting_before
            if not found.unchecked and written != found.visible + found.waiting_after:
                self._say(
                    name,
                    None,
                    "",
                    f"{written} rows were written or waited, and {found.visible + found.waiting_after} are visible or wait",
                )
        return AuditReport(
            first=min(self._checkpoints, default=None),
            last=max(self._checkpoints, default=None),
            records=self._records,
            rows_read=self._rows_read,
            sinks=self._found,
            disagreements=self._wrong,
        )
