"""How two savepoints differ: of one job or of two, in what they say of themselves. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from poundlock.savepoint.inspection import Inspection
from poundlock.savepoint.metadata import listed
from poundlock.savepoint.positions import SourceProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same.

    Args:
        what: which thing, such as "source events events:0".
        before, after: what each savepoint has; None where it has none.
        distance: how far `after` is ahead of `before`, where that can be counted.
        unit: what it is counted in.
    """

    what: str
    before: Any
    after: Any
    distance: int | None = None
    unit: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in ("what", "before", "after", "distance", "unit")}


def compare(a: Inspection, b: Inspection) -> list[Difference]:
    """Return what differs between two savepoints, from the first to the second; their names and times aside."""
    first, second = a.metadata, b.metadata
    differences = [
        *_each("", {"job": first.job, "job id": first.job_id}, {"job": second.job, "job id": second.job_id}),
        *_each("version of ", first.versions, second.versions),
        *_each("", {"checkpoint": first.decision.checkpoint}, {"checkpoint": second.decision.checkpoint}),
        *_sources(a.sources, b.sources),
        *_counted("watermark", a.watermark_ms, b.watermark_ms, "ms"),
        *_each("operator ", first.operators, second.operators, _operator),
        *_each("state ", _state(a), _state(b)),
        *_pending(a, b),
    ]
    for part in sorted({*a.sizes, *b.sizes}):
        differences += _counted(f"size of {part}", a.sizes.get(part), b.sizes.get(part), "bytes")
    return differences


def _each(
    prefix: str, a: Mapping[str, Any], b: Mapping[str, Any], show: Callable[[Any], Any] = lambda value: value
) -> Iterator[Difference]:
    for name in (*a, *(n for n in b if n not in a)):
        before, after = (show(each[name]) if name in each else None for each in (a, b))
        if before != after:
            yield Difference(what=f"{prefix}{name}", before=before, after=after)


def _counted(what: str, before: int | None, after: int | None, unit: str) -> Iterator[Difference]:
    if before != after:
        distance = after - before if before is not None and after is not None else None
        yield Difference(what=what, before=before, after=after, distance=distance, unit=unit)


def _sources(a: Mapping[str, SourceProgress], b: Mapping[str, SourceProgress]) -> Iterator[Difference]:
    for name in (*a, *(n for n in b if n not in a)):
        before, after = a.get(name), b.get(name)
        if before is None or after is None or before.kind != after.kind or not (before.unit and after.unit):
            positions = [None if each is None else each.position for each in (before, after)]
            if positions[0] != positions[1] or (before is None) != (after is None):
                yield Difference(what=f"source {name}", before=positions[0], after=positions[1])
            continue
        for part in (*before.counted, *(p for p in after.counted if p not in before.counted)):
            what = f"source {name} {part}" if before.kind == "kafka" else f"source {name}"
            yield from _counted(what, before.counted.get(part), after.counted.get(part), before.unit)


def _state(inspection: Inspection) -> dict[str, Any]:
    return {} if inspection.key_groups is None else {"key groups": inspection.key_groups}


def _pending(a: Inspection, b: Inspection) -> Iterator[Difference]:
    for sink in (*a.pending, *(n for n in b.pending if n not in a.pending)):
        files = [{f.path: (f.rows, f.bytes) for f in each.pending.get(sink, ())} for each in (a, b)]
        yield from _each(
            f"pending file of {sink} ", files[0], files[1], lambda pair: f"{pair[0]} rows, {pair[1]} bytes"
        )


def _operator(operator: Any) -> str:
    made_of = "; ".join(f"{name} {listed(value)}" for name, value in operator.made_of.items())
    return f"{operator.kind}{'' if operator.named else ' (not named)'}{made_of and f' of {made_of}'}"
