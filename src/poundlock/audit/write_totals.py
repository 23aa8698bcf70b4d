"""What one checkpoint wrote to one sink, added up from what its tasks prepared: rows, bytes, a digest, event times.

The digest adds up in any order, so that it does not depend on which task was done first. A replay measures it a second time; only
figures that both sides know are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from poundlock.checkpoint.participant import JSON, Counts, Prepared

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one checkpoint wrote to one sink. A figure that a sink does not tell is None."""

    pieces: int  # how many prepared pieces it is: segments of files, transactions
    rows: int | None = None
    bytes: int | None = None  # their size as written: of files after compression, of messages the values
    digest: str | None = None  # 16 hex digits, the sum modulo 2**64 of those of the pieces
    # the earliest and latest event time, ms since the epoch, where the sink looks at times
    min_ms: int | None = None
    max_ms: int | None = None

    @classmethod
    def of(cls, payloads: Iterable[JSON]) -> Written:
        """Return the sum of prepared payloads; see `Writer.prepare` for what they may say."""
        given = list(payloads)
        digests = [payload.get("digest") for payload in given]
        return cls(
            pieces=len(given),
            rows=_total(given, "rows"),
            bytes=_total(given, "bytes"),
            digest=None if None in digests else f"{sum(int(d, 16) for d in digests if d) % _MODULUS:016x}",
            min_ms=min((p["min_ms"] for p in given if p.get("min_ms") is not None), default=None),
            max_ms=max((p["max_ms"] for p in given if p.get("max_ms") is not None), default=None),
        )

    def to_json(self) -> JSON:
        """Return the known figures as a JSON object."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


def written(prepared: Iterable[Prepared]) -> dict[str, Written]:
    """Return what was written, per sink that anything was prepared for."""
    by_sink: dict[str, list[JSON]] = {}
    for item in prepared:
        by_sink.setdefault(item.sink, []).append(item.payload)
    return {name: Written.of(payloads) for name, payloads in by_sink.items()}


def _total(payloads: Iterable[JSON], name: str) -> int | None:
    values = [payload.get(name) for payload in payloads]
    return None if None in values else sum(int(value) for value in values if value is not None)


_NOTHING = Written(pieces=0, rows=0, bytes=0, digest=f"{0:016x}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a checkpoint did to one sink."""

    counts: Counts
    wrote: Written | None  # what was written; None = nothing, or not known
    places: Mapping[str, int] = field(default_factory=dict)  # rows per place, such as a bucket, where the sink has any
    full: bool = True  # whether `wrote` is known, so that None means nothing

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
    """A figure that is not what was committed."""

    sink: str
    figure: str  # which one, such as "written" or "rows in dt=20181219"
    committed: Any
    now: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReplay:
    """The replay of one sink."""

    committed: Measure
    now: Measure
    shown: Sequence[str] = ()  # the first records that came to it, as texts, where asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The result of a replay."""

    job: str
    checkpoint: int
    record: int
    time_ms: int
    # numbers of later decisions that named parts of it again, because those were aborted from outside
    again: Sequence[int]
    # per source, rows read then and now; None where nobody counted
    rows_read: Mapping[str, tuple[int | None, int | None]]
    sinks: Mapping[str, SinkReplay]
    left_out: Mapping[str, str]  # per sink that was not, why
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
        # Where rows were cut otherwise that may be all that differs.
        cut = "" if before.pieces == after.pieces else f" of {before.pieces} pieces and of {after.pieces}"
        pairs.append((f"digest{cut}", before.digest, after.digest))
    if committed.places or now.places:
        places = sorted({*committed.places, *now.places})
        pairs += [(f"rows in {p or 'the folder'}", committed.places.get(p, 0), now.places.get(p, 0)) for p in places]
    return [ReplayDifference(sink, name, a, b) for name, a, b in pairs if a is not None and b is not None and a != b]
