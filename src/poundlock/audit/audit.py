"""The audit of a job: does the ledger add up, and do the sinks hold what it says? Reads only.

In = out + filtered + late + dead-lettered + skipped, checkpoint by checkpoint; every row written is visible or waits; and what is
visible is read back whole and compared with the counts and digests of the decision that named it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from poundlock.audit.read_back import Auditable, AuditScope, Decided, Disagreement, Reading
from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import state_of
from poundlock.checkpoint.participant import Counts, Participant
from poundlock.errors import DefinitionError


@dataclass(slots=True)
class SinkAudit:
    """The audit of one sink."""

    counts: Counts = field(default_factory=Counts)  # what the ledger says went to it
    visible: int = 0  # rows that decisions made visible, as the ledger says
    at_once: int = 0  # rows that became visible without a decision that names them, and cannot be compared
    again: int = 0  # rows that were decided, aborted from outside, and are to be produced again by the next start
    waiting_before: int = 0  # rows that waited hidden before the first checkpoint looked at
    waiting_after: int = 0  # rows that wait hidden after the last one
    read_back: int = 0  # committables that were read and compared
    removed: int = 0  # rows of these that the system removed itself, as it keeps them for a time only
    others: int = 0  # rows in the same place that others wrote; no fault
    uncompared: Sequence[str] = ()  # why some committables could not be compared
    unchecked: str = ""  # why its output was not read; "" if it was


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of an audit."""

    # the checkpoints looked at; None where the ledger has none in the range
    first: int | None
    last: int | None
    records: int
    rows_read: Mapping[str, int]
    sinks: Mapping[str, SinkAudit]
    disagreements: Sequence[tuple[str, Disagreement]]  # per sink, or "" for the ledger itself, what does not agree
    since: int | None = None  # the checkpoint it was to begin with, where there are decisions before it; else None

    @property
    def agrees(self) -> bool:
        """Whether everything agrees."""
        return not self.disagreements

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        wrong = [{"sink": name, **asdict(disagreement)} for name, disagreement in self.disagreements]
        return {**asdict(self), "disagreements": wrong}


def audit(
    ledger: Ledger,
    sinks: Mapping[str, Participant | None],
    *,
    first: int | None = None,
    last: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> AuditReport:
    """Audit a range of checkpoints.

    Args:
        sinks: per name, the sink; None where it cannot be made without the job's own code.
        first, last: checkpoints to look at, both included; None = from the beginning, to the newest.
        progress: takes a line on how far it has come, often.

    Raises:
        DefinitionError: no checkpoint is as new as the first to look at.
    """
    newest = ledger.newest()
    if (
        newest is not None and first is not None and first > newest.checkpoint + 1
    ):  # the next one may be taken any moment
        raise DefinitionError(
            f"there is no checkpoint {first}, the newest one is {newest.checkpoint}", next="begin with an earlier one"
        )
    number = -1 if newest is None else newest.number
    work = _Audit(
        sinks,
        AuditScope(complete=ledger.first() == 0, progress=progress),
        # A record that has a successor is carried out; of the newest it is noted.
        committed=lambda n: n < number or ledger.is_committed(n),
    )
    decisions = ledger if newest is None or first is None or work.wants_all else _since(ledger, first, newest)
    for decision in decisions:
        number = max(number, decision.number)
        if last is not None and decision.checkpoint > last:
            if not work.wants_all:
                break
            work.skip(decision)
        elif first is not None and decision.checkpoint < first:
            work.skip(decision, before=True)
        else:
            work.take(decision)
    work.read(lambda: ledger.since(number + 1))
    return work.report(since=first)


def _since(ledger: Ledger, first: int, newest: Decision) -> Iterator[Decision]:
    """Yield the decisions from a checkpoint on, and before them those that say where it began, without reading all before."""
    number, oldest = ledger.first_of(first, newest), ledger.first()
    while number > oldest:
        number -= 1
        if ledger.read(number).sources:
            break
    return ledger.since(number)


class _Audit:
    """Adds up decision after decision."""

    def __init__(
        self, sinks: Mapping[str, Participant | None], scope: AuditScope, *, committed: Callable[[int], bool]
    ) -> None:
        self._sinks = sinks
        self._committed = committed
        self._auditable: dict[str, Auditable] = {}
        for name, sink in sinks.items():
            if isinstance(sink, Auditable) and not sink.unaudited:
                self._auditable[name] = sink
        self._readings: dict[str, Reading] = {n: sink.open_audit(scope) for n, sink in self._auditable.items()}
        self._held: dict[str, list[Decided]] = {}  # of the newest checkpoint: a part of it may have been produced again
        self._audits: dict[str, SinkAudit] = {}
        self._rows_read: dict[str, int] = {}
        self._wrong: list[tuple[str, Disagreement]] = []
        self._ends: dict[str, Any] = {}
        self._checkpoints: list[int] = []
        self._records = 0
        self._begun_later = False
        self._before: Decision | None = None
        self._newest: Decision | None = None  # of those that are looked at
        self._redone: Decision | None = None  # the newest of all

    @property
    def wants_all(self) -> bool:
        """Whether a sink wants to know what is decided outside the range."""
        return any(reading.whole for reading in self._readings.values())

    def skip(self, decision: Decision, *, before: bool = False) -> None:
        """Note a decision outside the range."""
        if before:
            self._begun_later = True
            self._before = decision
            self._note_ends(decision)
        self._name(decision, compared=False)

    def take(self, decision: Decision) -> None:
        """Look at a decision."""
        self._records += 1
        if decision.restored is not None:
            self._before = decision  # what a savepoint held hidden was written by another job
        self._newest = decision
        if decision.occasion == "checkpoint":
            self._checkpoints.append(decision.checkpoint)
            self._continuity(decision)
            for name, span in decision.sources.items():
                self._rows_read[name] = self._rows_read.get(name, 0) + (span.rows or 0)
        self._note_ends(decision)
        for name, part in decision.sinks.items():
            sink = self._sink(name)
            sink.counts.add(part.counts)
            if part.state.get("at_once"):
                sink.at_once += part.counts.written
            if not part.counts.balanced():
                self._say(name, decision.checkpoint, "", f"the counts do not add up: {part.counts.to_json()}")
            prepared = part.wrote.rows if part.wrote is not None else None
            # What is produced again was counted when it was produced first.
            if prepared not in (None, part.counts.written) and name not in decision.redo:
                what = f"{part.counts.written} rows are counted and {prepared} were prepared"
                self._say(name, decision.checkpoint, "", what)
        self._name(decision, compared=True)

    def _name(self, decision: Decision, *, compared: bool) -> None:
        """Tell the sinks what a decision names, as soon as no later one can replace it."""
        self._redone = decision
        for name in self._readings:
            held = self._held.setdefault(name, [])
            if held and held[0].checkpoint != decision.checkpoint:
                self._settle(name)
                held = self._held[name]
            redo = decision.redo.get(name)
            if (
                redo is not None and decision.occasion == "checkpoint"
            ):  # what is not done was aborted, and is replaced by this
                held[:] = [item for item in held if item.committable in redo.done]
            held += [
                Decided(
                    record=decision.number,
                    checkpoint=decision.checkpoint,
                    committable=committable,
                    compared=compared,
                    committed=self._committed(decision.number),
                )
                for committable in decision.sinks.get(name, _NOTHING).committables
            ]

    def _settle(self, name: str) -> None:
        for item in self._held.pop(name, ()):
            try:
                rows = self._auditable[name].rows_of(item.committable)
                self._readings[name].take(item)
            except (AttributeError, KeyError, TypeError, ValueError) as error:  # the record was edited
                what = f"decision {item.record} names what is none of this sink's: {type(error).__name__}: {error}"
                self._say(name, item.checkpoint, "", what)
                continue
            if item.compared:
                self._sink(name).visible += rows
        self._held[name] = []

    def read(self, meanwhile: Callable[[], Iterable[Decision]]) -> None:
        """Read the sinks; `meanwhile` returns what a running job decided until now."""
        for name, reading in self._readings.items():
            self._drop_aborted(name)
            self._settle(name)
            if name in self._audits:
                reading.read()
        if self.wants_all:
            for decision in meanwhile():
                self._name(decision, compared=False)
            for name in self._readings:
                self._settle(name)

    def _drop_aborted(self, name: str) -> None:
        """Set apart what the next start produces again: it will never be visible, and another decision will replace it."""
        redo = self._redone.redo.get(name) if self._redone is not None else None
        if redo is None or not redo.again:
            return
        kept: list[Decided] = []
        for item in self._held.get(name, ()):
            if item.committable not in redo.again:
                kept.append(item)
            elif item.compared:
                self._sink(name).again += self._auditable[name].rows_of(item.committable)
        self._held[name] = kept

    def _sink(self, name: str) -> SinkAudit:
        if name not in self._audits:
            self._audits[name] = SinkAudit(
                waiting_before=self._waiting(self._before, name), unchecked=_unchecked(self._sinks.get(name))
            )
        return self._audits[name]

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

    def report(self, *, since: int | None) -> AuditReport:
        """Return the result; `since` is the checkpoint that it was to begin with."""
        for name, sink in self._audits.items():
            if name in self._readings:
                self._add_read_back(name, sink)
            sink.waiting_after = self._waiting(self._newest, name)
            written = sink.counts.written - sink.at_once + sink.waiting_before
            there = sink.visible + sink.waiting_after + sink.again
            if not sink.unchecked and written != there:
                self._say(name, None, "", f"{written} rows were written or waited, and {there} are visible or wait")
        return AuditReport(
            first=min(self._checkpoints, default=None),
            last=max(self._checkpoints, default=None),
            records=self._records,
            rows_read=self._rows_read,
            sinks=self._audits,
            disagreements=self._wrong,
            since=since if self._begun_later else None,
        )

    def _add_read_back(self, name: str, sink: SinkAudit) -> None:
        result = self._readings[name].result()
        sink.read_back, sink.removed, sink.others = result.compared, result.removed, result.others
        sink.uncompared = list(result.uncompared)
        if sink.at_once:
            sink.uncompared.append(f"{sink.at_once} rows were written without transactions: no decision names them")
        self._wrong += [(name, wrong) for wrong in result.disagreements]


def _unchecked(sink: Participant | None) -> str:
    if sink is None:
        return "it cannot be made without the job's own code"
    return sink.unaudited if isinstance(sink, Auditable) else "it cannot be read back"


_NOTHING = SinkDecision([], {})
