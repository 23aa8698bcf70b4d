"""What a savepoint holds, for people and programs, and how two of them differ: read from the folder alone.

Neither the job's code nor Spark is needed, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from poundlock.checkpoint.ledger.records import state_of
from poundlock.checkpoint.portable import Legible, PendingFile
from poundlock.connectors.sink_factory import rebuild_sink
from poundlock.errors import DefinitionError
from poundlock.operators.time_values import MAX, MIN, TimeState
from poundlock.savepoint.metadata import FORMAT, Metadata, damage, damaged, listed, read_metadata
from poundlock.savepoint.positions import SourceProgress, reading
from poundlock.state.decided_state import manifests_of
from poundlock.state.manifest import Manifest
from poundlock.storage import Storage


@dataclass(frozen=True, slots=True)
class StateOperator:
    """An operator that keeps state."""

    number: str  # in the files of state
    name: str
    bytes: int  # size of its files; those that it shares count for the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a savepoint holds."""

    path: str
    metadata: Metadata
    sources: Mapping[str, SourceProgress]  # per source, or use of one, how far it was read
    watermark_ms: int | None  # the watermark of the next checkpoint, ms since the epoch; None where there is none
    # per sink, what waits to become visible; a sink that cannot say is left out
    pending: Mapping[str, Sequence[PendingFile]]
    key_groups: int | None  # into how many key groups keyed state is divided; None where there is none
    state: Sequence[StateOperator]
    sizes: Mapping[str, int]
    # path and fault of each file that is not as it was written; None where nobody looked
    damage: Sequence[tuple[str, str]] | None

    @property
    def bytes(self) -> int:
        """The size of all of it."""
        return sum(self.sizes.values())

    def raise_if_damaged(self, savepoint: Storage) -> None:
        """Raise DefinitionError if a file is not as it was written."""
        for path, wrong in self.damage or ():
            raise damaged(savepoint, path, wrong)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        metadata = self.metadata
        return {
            "path": self.path,
            "format": FORMAT,
            "name": metadata.name,
            "job": metadata.job,
            "job_id": metadata.job_id,
            "created_ms": metadata.created_ms,
            "versions": dict(metadata.versions),
            "checkpoint": metadata.decision.checkpoint,
            "edited": None if metadata.edited is None else dict(metadata.edited),
            "sources": {name: source.to_json() for name, source in self.sources.items()},
            "watermark_ms": self.watermark_ms,
            "operators": {i: asdict(o) for i, o in metadata.operators.items()},
            "pending": {name: [asdict(file) for file in files] for name, files in self.pending.items()},
            "state": {"key_groups": self.key_groups, "operators": [asdict(operator) for operator in self.state]},
            "noted": dict(metadata.noted),
            "bytes": self.bytes,
            "sizes": dict(self.sizes),
            "damage": None if self.damage is None else [{"path": path, "fault": fault} for path, fault in self.damage],
        }


def inspect(
    savepoint: Storage, *, check: bool = True, progress: Callable[[int, int], None] = lambda done, total: None
) -> Inspection:
    """Return what a savepoint holds.

    Args:
        check: whether to compare every file with its digest, which reads all of them.
        progress: takes how many files of how many have been read, often.

    Raises:
        DefinitionError: it is no savepoint, or so damaged that it cannot be read.
    """
    metadata = read_metadata(savepoint)
    faults = list(damage(savepoint, metadata, progress=progress)) if check else None
    try:
        manifests = manifests_of(metadata.decision.state)
        return Inspection(
            path=savepoint.root,
            metadata=metadata,
            sources={name: reading(savepoint, name, span.end) for name, span in metadata.decision.sources.items()},
            watermark_ms=_watermark(metadata),
            pending=pending(metadata),
            key_groups=next((each.max_parallelism for each in manifests.values()), None),
            state=_kept(manifests),
            sizes=_sizes(metadata),
            damage=faults,
        )
    except DefinitionError:
        for path, wrong in faults or ():
            raise damaged(savepoint, path, wrong) from None
        raise


def _kept(manifests: Mapping[str, Manifest]) -> list[StateOperator]:
    """Return the operators with keyed state; a file is shared by those of a stage, and counts for the first of them."""
    operators, counted = [], set()
    for manifest in manifests.values():
        size = sum(file.bytes for file in manifest.files if file.name not in counted)
        counted |= {file.name for file in manifest.files}
        for id, meta in manifest.operators.items():
            operators.append(StateOperator(str(meta.number), id, size))
            size = 0
    return operators


def _watermark(metadata: Metadata) -> int | None:
    """Return the watermark a job goes on with: behind the end of its input, the one before that."""
    state = metadata.decision.watermarks
    if state is None:
        return None
    watermark = _before_end(state.state) if state.watermark == MAX else state.watermark
    return None if watermark == MIN else watermark


def _before_end(state: TimeState) -> int | None:
    """Return the least watermark that streams had before the end of their input."""
    watermarks = [state.streams[name].before_end for name in state.sources if name in state.streams]
    return min((watermark for watermark in watermarks if watermark is not None), default=None)


def pending(metadata: Metadata) -> dict[str, Sequence[PendingFile]]:
    """Return per sink what waits in a savepoint to become visible; a sink that cannot say is left out."""
    waiting: dict[str, Sequence[PendingFile]] = {}
    for name in metadata.decision.sinks:
        try:
            sink = rebuild_sink(metadata.sinks.get(name, {}))
        except DefinitionError:
            continue  # a package that it needs is not installed here
        if isinstance(sink, Legible):
            waiting[name] = sink.pending(state_of(metadata.decision, name))
    return waiting


def _sizes(metadata: Metadata) -> dict[str, int]:
    """Return the bytes of each part, by what was written."""
    sizes: dict[str, int] = {}
    for path, file in metadata.files.items():
        head, _, rest = path.partition("/")
        part = "state" if head == "state" else f"{head.removesuffix('s')} {rest.partition('/')[0]}"
        sizes[part] = sizes.get(part, 0) + file.bytes
    return dict(sorted(sizes.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same."""

    what: str  # which thing, such as "source events events:0"
    # what each savepoint has; None where it has none
    before: Any
    after: Any
    distance: int | None = None  # how far `after` is ahead of `before`, where that can be counted
    unit: str = ""  # what it is counted in

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


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
