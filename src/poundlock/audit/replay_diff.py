"""What a checkpoint did to a sink, measured twice: as it was decided, and as a replay finds it now; and where they differ.

Only figures that both sides know are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.participant import JSON, Counts

_NOTHING = Written(pieces=0, rows=0, bytes=0, digest=f"{0:016x}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a checkpoint did to one sink.

    Args:
        wrote: what was written; None = nothing, or not known.
        places: rows per place, such as a bucket, where the sink has any.
        full: whether `wrote` is known, so that None means nothing.
    """

    counts: Counts
    wrote: Written | None
    places: Mapping[str, int] = field(default_factory=dict)
    full: bool = True

    @property
    def written(self) -> Written | None:
        """What was written; None where it is not known."""
        return self.wrote or (_NOTHING if self.full else None)

    def to_json(self) -> JSON:
        """Return it as a JSON object."""
        wrote = self.written
        return {
            "counts": self.counts.to_json(),
            "wrote": None if wrote is None else wrote.to_json(),
            "places": dict(self.places),
        }


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """A figure that is not what was committed.

    Args:
        figure: which one, such as "written" or "rows in dt=20181219".
    """

    sink: str
    figure: str
    committed: Any
    now: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReplay:
    """What a replay found of one sink.

    Args:
        shown: the first records that came to it, as texts, where asked for.
    """

    committed: Measure
    now: Measure
    shown: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay found.

    Args:
        again: numbers of later decisions that named parts of it anew, because those were aborted from outside.
        rows_read: per source, rows read then and now; None where nobody counted.
        left_out: per sink that was not, why.
    """

    job: str
    checkpoint: int
    record: int
    time_ms: int
    again: Sequence[int]
    rows_read: Mapping[str, tuple[int | None, int | None]]
    sinks: Mapping[str, SinkReplay]
    left_out: Mapping[str, str]
    differences: Sequence[ReplayDifference]

    @property
    def agrees(self) -> bool:
        """Whether everything that was compared is as committed."""
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            **asdict(self),
            "rows_read": {name: {"committed": a, "now": b} for name, (a, b) in self.rows_read.items()},
            "sinks": {
                name: {"committed": s.committed.to_json(), "now": s.now.to_json(), "shown": list(s.shown)}
                for name, s in self.sinks.items()
            },
        }


def compare(sink: str, committed: Measure, now: Measure) -> Sequence[ReplayDifference]:
    """Return where two measures of one sink differ."""
    pairs: list[tuple[str, Any, Any]] = [
        (name, getattr(committed.counts, name), getattr(now.counts, name)) for name in Counts.__slots__
    ]
    before, after = committed.written, now.written
    if before is not None and after is not None:
        pairs.append(("bytes", before.bytes, after.bytes))
        pairs.append((_digest(before, after), before.digest, after.digest))
    if committed.places or now.places:
        places = sorted({*committed.places, *now.places})
        pairs += [(f"rows in {p or 'the folder'}", committed.places.get(p, 0), now.places.get(p, 0)) for p in places]
    return [ReplayDifference(sink, name, a, b) for name, a, b in pairs if a is not None and b is not None and a != b]


def _digest(before: Written, after: Written) -> str:
    """Return the name of the digest; where rows were cut otherwise that may be all that differs."""
    same = before.pieces == after.pieces
    return "digest" if same else f"digest of {before.pieces} pieces and of {after.pieces}"
