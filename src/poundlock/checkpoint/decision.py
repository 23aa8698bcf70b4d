"""The decision record: one line of the ledger, the only point of truth about a checkpoint.

Records form one serial log per job: record L+1 is written only by a driver that has read record L and finished
committing it. Hence only the newest record may have work left, and its sink states are all there is to remember.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.participant import JSON, Counts
from poundlock.operators.time_values import DecidedTime
from poundlock.state.decided_state import DecidedState

FORMAT = 1


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What one source contributed to a checkpoint: from `start` inclusive to `end` exclusive.

    Args:
        start: position before the checkpoint, in the source's own readable JSON; None at the very beginning.
        end: position after it.
        identity: what names the very data, such as Kafka's topic ids; compared on a restart.
        rows: how many rows were read, None where nobody counted.
        bytes: how large that was at the source: of files what was read of them, of messages the values; None where it is
            not known.
    """

    start: Any
    end: Any
    identity: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    bytes: int | None = None

    def to_json(self) -> JSON:
        """Return the range as a JSON object."""
        value = {"start": self.start, "end": self.end, "identity": dict(self.identity), "rows": self.rows}
        return {**value, "bytes": self.bytes} if self.bytes is not None else value


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
    """The event times that a checkpoint's windows saw, ms since the epoch; None where it is not known.

    Args:
        min_ms, max_ms: the earliest and the latest.
        watermark_ms: the watermark in use: a row is late when the last millisecond of its window is not behind it.
    """

    min_ms: int | None = None
    max_ms: int | None = None
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Redo:
    """What of a sink's part in a decided checkpoint was aborted from outside and must be produced again.

    Args:
        again: the committables that were aborted; empty in a record that names what replaces them.
        done: those that are visible, so that what is produced again can be distinguished.
    """

    again: Sequence[JSON]
    done: Sequence[JSON]


@dataclass(frozen=True, slots=True)
class Decision:
    """One ledger record.

    Args:
        number: place in the log, from 0, without gaps.
        occasion: "checkpoint", "roll", "end", or "start": a driver took over, nothing is committed, and any decision an
            older driver still has in hand finds its number taken.
        checkpoint: the micro-batch it decides; for other occasions the newest one decided before, -1 if none.
        job_id: 32 hex digits.
        epoch: the driver's life that wrote it.
        time_ms: when it was written, ms since the epoch.
        sources: per source name, what the checkpoint read. Empty for rolls and ends; a start repeats the newest ones.
        sinks: per sink name, what is committed and carried on. Every sink the job ever had is in every record.
        redo: per sink, what of the newest decided checkpoint has to be produced again before anything else is decided.
        durations_ms: how long "run" and "verify" took, and "decide" and "commit" of the record before.
        started_ms: when the checkpoint's tasks were started, as they were told, ms since the epoch; None for other
            occasions and in records of older versions.
        event_time: what the checkpoint's watermarks saw; None where the job has none.
        tasks: over how many tasks the splits of split-planned sources were spread; None where there are none.
        watermarks: the watermark behind the checkpoint, who holds it back, and what the next checkpoint goes on from; None
            where the job has none. A start repeats the newest.
        state: keyed state: {"v", "manifest"} says all there is, {"v", "change"} what this decision changes; None where there is
            none, and in rolls and ends. A start with something to be redone has the state "before" its checkpoint, too.
        restored: in the first record of a job that went on from a savepoint: "savepoint", its name, "path", where it was,
            and "job_id".
    """

    number: int
    occasion: str
    checkpoint: int
    job_id: str
    epoch: int
    time_ms: int
    sources: Mapping[str, SourceRange]
    sinks: Mapping[str, SinkDecision]
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    redo: Mapping[str, Redo] = field(default_factory=dict)
    started_ms: int | None = None
    event_time: EventTime | None = None
    tasks: int | None = None
    watermarks: DecidedTime | None = None
    restored: Mapping[str, str] | None = None
    state: DecidedState | None = None

    def to_json(self) -> JSON:
        """Return the record as a JSON object."""
        redo = {name: {"again": list(r.again), "done": list(r.done)} for name, r in self.redo.items()}
        return {
            "v": FORMAT,
            "number": self.number,
            "occasion": self.occasion,
            "checkpoint": self.checkpoint,
            "job_id": self.job_id,
            "epoch": self.epoch,
            "time_ms": self.time_ms,
            "sources": {name: span.to_json() for name, span in self.sources.items()},
            "sinks": {name: _sink_json(sink) for name, sink in self.sinks.items()},
            "durations_ms": dict(self.durations_ms),
            **({"redo": redo} if redo else {}),
            **({"started_ms": self.started_ms} if self.started_ms is not None else {}),
            **({"event_time": asdict(self.event_time)} if self.event_time is not None else {}),
            **({"tasks": self.tasks} if self.tasks is not None else {}),
            **({"watermarks": self.watermarks.to_json()} if self.watermarks is not None else {}),
            **({"restored": dict(self.restored)} if self.restored is not None else {}),
            **({"state": self.state.to_json()} if self.state is not None else {}),
        }

    @classmethod
    def from_json(cls, value: JSON) -> Decision:
        """Return the record of a JSON object. Raises ValueError for a format this version does not know."""
        if value.get("v") != FORMAT:
            raise ValueError(f"decision format {value.get('v')!r} is not known to this version")
        return cls(
            number=value["number"],
            occasion=value["occasion"],
            checkpoint=value["checkpoint"],
            job_id=value["job_id"],
            epoch=value["epoch"],
            time_ms=value["time_ms"],
            sources={
                n: SourceRange(r["start"], r["end"], r["identity"], r.get("rows"), r.get("bytes"))
                for n, r in value["sources"].items()
            },
            sinks={
                n: SinkDecision(
                    s["committables"],
                    s["state"],
                    Counts.from_json(s["counts"]),
                    Written.from_json(s["wrote"]) if "wrote" in s else None,
                )
                for n, s in value["sinks"].items()
            },
            durations_ms=value.get("durations_ms", {}),
            redo={name: Redo(r["again"], r["done"]) for name, r in value.get("redo", {}).items()},
            started_ms=value.get("started_ms"),
            event_time=EventTime(**value["event_time"]) if "event_time" in value else None,
            tasks=value.get("tasks"),
            watermarks=DecidedTime.from_json(value["watermarks"]) if "watermarks" in value else None,
            restored=value.get("restored"),
            state=DecidedState.from_json(value["state"]) if "state" in value else None,
        )


def _sink_json(sink: SinkDecision) -> JSON:
    value = {"committables": list(sink.committables), "state": sink.state, "counts": sink.counts.to_json()}
    return {**value, "wrote": sink.wrote.to_json()} if sink.wrote is not None else value
