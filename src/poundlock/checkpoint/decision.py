"""The decision record: one line of the ledger, the only point of truth about a checkpoint.

Records form one serial log per job: record L+1 is written only by a driver that has read record L and finished
committing it. Hence only the newest record may have work left, and its sink states are all there is to remember.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.participant import JSON, Counts

__all__ = ["Decision", "Redo", "SinkDecision", "SourceRange"]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What one source contributed to a checkpoint: from `start` inclusive to `end` exclusive.

    Args:
        start: position before the checkpoint, in the source's own readable JSON; None at the very beginning.
        end: position after it.
        identity: what names the very data, such as Kafka's topic ids; compared on a restart.
        rows: how many rows were read, None where nobody counted.
    """

    start: Any
    end: Any
    identity: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class SinkDecision:
    """What the decision says for one sink: what becomes visible now, what is carried on, and how many rows went in."""

    committables: Sequence[JSON]
    state: JSON
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class Redo:
    """What of a sink's part in a decided checkpoint was aborted from outside and must be produced again.

    Args:
        again: the committables that were aborted; empty in a record that names what replaces them.
        done: those that are visible, so that what is produced again can be told apart.
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
            "sources": {
                name: {"start": r.start, "end": r.end, "identity": dict(r.identity), "rows": r.rows}
                for name, r in self.sources.items()
            },
            "sinks": {
                name: {"committables": list(s.committables), "state": s.state, "counts": s.counts.to_json()}
                for name, s in self.sinks.items()
            },
            "durations_ms": dict(self.durations_ms),
            **({"redo": redo} if redo else {}),
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
                n: SourceRange(r["start"], r["end"], r["identity"], r.get("rows")) for n, r in value["sources"].items()
            },
            sinks={
                n: SinkDecision(s["committables"], s["state"], Counts.from_json(s["counts"]))
                for n, s in value["sinks"].items()
            },
            durations_ms=value.get("durations_ms", {}),
            redo={name: Redo(r["again"], r["done"]) for name, r in value.get("redo", {}).items()},
        )
