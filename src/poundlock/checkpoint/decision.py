"""The decision record: one line of the ledger, the only point of truth about a checkpoint.

Records form one serial log per job: record L+1 is written only by a driver that has read record L and finished
committing it. Hence only the newest record may have work left, and its sink states are all there is to remember.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.participant import JSON, Counts
from poundlock.metrics.user_totals import UserMetrics
from poundlock.operators.time_values import DecidedTime
from poundlock.state.decided_state import DecidedState
from poundlock.storage.json_record import of_format, typed

FORMAT = 1
METRICS_FORMAT = 3
"""The format of a record that has metrics of the user: a version that does not know them would drop what they add up to, and refuses it by this number."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What one source contributed to a checkpoint: from `start` inclusive to `end` exclusive."""

    start: Any  # position before the checkpoint, in the source's own readable JSON; None at the very beginning
    end: Any  # position after it
    # what names the very data, such as Kafka's topic ids; compared on a restart
    identity: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None  # how many rows were read, None where nobody counted
    # how large that was at the source: of files what was read of them, of messages the values; None where it is not known
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SinkDecision:
    """What the decision says for one sink: what becomes visible now, what is carried on, and how many rows went in.

    `wrote` is what this checkpoint wrote, visible or not; None if that was nothing, or an older version decided it.
    """

    committables: Sequence[JSON]
    state: JSON
    counts: Counts = field(default_factory=Counts)
    wrote: Written | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """The event times that a checkpoint's windows saw, ms since the epoch; None where it is not known."""

    # the earliest and the latest
    min_ms: int | None = None
    max_ms: int | None = None
    # the watermark in use: a row is late when the last millisecond of its window is not behind it
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Redo:
    """What of a sink's part in a decided checkpoint was aborted from outside and must be produced again."""

    again: Sequence[JSON]  # the committables that were aborted; empty in a record that names what replaces them
    done: Sequence[JSON]  # those that are visible, so that what is produced again can be distinguished


@dataclass(frozen=True, slots=True)
class Decision:
    """One ledger record."""

    number: int  # place in the log, from 0, without gaps
    # "checkpoint", "roll", "end", or "start": a driver took over, nothing is committed, and any decision an older driver
    # still has in hand finds its number taken
    occasion: str
    checkpoint: int  # the micro-batch it decides; for other occasions the newest one decided before, -1 if none
    job_id: str  # 32 hex digits
    epoch: int  # the driver's life that wrote it
    time_ms: int  # when it was written, ms since the epoch
    # per source name, what the checkpoint read. Empty for rolls and ends; a start repeats the newest ones.
    sources: Mapping[str, SourceRange]
    # per sink name, what is committed and carried on. Every sink the job ever had is in every record.
    sinks: Mapping[str, SinkDecision]
    # how long "run" and "verify" took, and "decide" and "commit" of the record before
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    # per sink, what of the newest decided checkpoint has to be produced again before anything else is decided
    redo: Mapping[str, Redo] = field(default_factory=dict)
    # when the checkpoint's tasks were started, as they know it, ms since the epoch; None for other occasions and in
    # records of older versions
    started_ms: int | None = None
    event_time: EventTime | None = None  # what the checkpoint's watermarks saw; None where the job has none
    # over how many tasks the splits of split-planned sources were spread; None where there are none
    tasks: int | None = None
    # how many tasks a keyed stage had, and the first stage at most; None where nobody says. A start repeats the newest.
    parallelism: int | None = None
    # the watermark behind the checkpoint, who holds it back, and what the next checkpoint goes on from; None where the
    # job has none. A start repeats the newest.
    watermarks: DecidedTime | None = None
    # in the first record of a job that went on from a savepoint: "savepoint", its name, "path", where it was, and
    # "job_id"
    restored: Mapping[str, str] | None = None
    # keyed state: {"v", "manifest"} says all there is, {"v", "change"} what this decision changes; None where there is
    # none, and in rolls and ends. A start with something to be redone has the state "before" its checkpoint, too.
    state: DecidedState | None = None
    # what the job's own metrics add up to over all checkpoints so far; None where it has none. A start repeats the newest.
    metrics: UserMetrics | None = None

    def to_json(self) -> JSON:
        """Return the record as a JSON object."""
        value = msgspec.to_builtins(self, str_keys=True)
        spans = {name: _without_none(span, "bytes") for name, span in value["sources"].items()}
        sinks = {
            name: _without_none({**sink, "wrote": sink["wrote"] and _without_none(sink["wrote"])}, "wrote")
            for name, sink in value["sinks"].items()
        }
        whole = {
            "v": FORMAT if self.metrics is None else METRICS_FORMAT,
            **value,
            "sources": spans,
            "sinks": sinks,
            "redo": value["redo"] or None,
        }
        return _without_none(whole, *_OPTIONAL)

    @classmethod
    def from_json(cls, value: Any) -> Decision:
        """Return the record of a JSON object.

        Raises:
            ValueError: it is none, or of a format this version does not know.
            TerminalError: what it says of event time, state or metrics is of another format.
        """
        known: Mapping[str, type[DecidedTime | DecidedState | UserMetrics]] = {
            "watermarks": DecidedTime,
            "state": DecidedState,
            "metrics": UserMetrics,
        }
        # Versions that wrote metrics before there was a format for them wrote them into records of the first.
        has_metrics = isinstance(value, dict) and value.get("v") == METRICS_FORMAT
        given = of_format(value, METRICS_FORMAT if has_metrics else FORMAT)
        return typed({n: known[n].from_json(each) if n in known else each for n, each in given.items()}, cls)


_OPTIONAL = ("redo", "started_ms", "event_time", "tasks", "parallelism", "watermarks", "restored", "state", "metrics")


def _without_none(value: JSON, *names: str) -> JSON:
    """Return a JSON object without those of some fields, by default of all, that are null."""
    return {name: each for name, each in value.items() if each is not None or (names and name not in names)}
