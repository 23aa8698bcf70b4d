"""What one checkpoint wrote to one sink, added up from what its tasks prepared: rows, bytes, a digest, event times.

The digest adds up in any order, so that it does not depend on which task was done first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from poundlock.checkpoint.participant import JSON, Prepared

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one checkpoint wrote to one sink. A figure that a sink does not tell is None.

    Args:
        pieces: how many prepared pieces it is: segments of files, transactions.
        bytes: their size as written: of files after compression, of messages the values.
        digest: 16 hex digits, the sum modulo 2**64 of those of the pieces.
        min_ms, max_ms: the earliest and latest event time, ms since the epoch, where the sink looks at times.
    """

    pieces: int
    rows: int | None = None
    bytes: int | None = None
    digest: str | None = None
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
