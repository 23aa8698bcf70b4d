"""What a savepoint holds, for people and programs: read from the folder alone, without the job's code and without Spark.

Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from poundlock.checkpoint.portable import Legible, PendingFile
from poundlock.connectors.rebuild import rebuild_sink
from poundlock.driver.job_state import manifests_of
from poundlock.errors import DefinitionError
from poundlock.operators.job_watermarks import resumed
from poundlock.operators.watermarks import MIN
from poundlock.savepoint.metadata import Metadata, damage, damaged, read_metadata
from poundlock.savepoint.positions import Reading, reading
from poundlock.savepoint.sparklog import StateOperator, newest_offsets, state_operators, watermark_ms
from poundlock.savepoint.take import saved_state
from poundlock.state.manifest import Manifest
from poundlock.storage import Storage

__all__ = ["Inspection", "inspect", "pending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a savepoint holds.

    Args:
        path: its folder.
        metadata: what it says of itself.
        sources: per source, or use of one, how far it was read.
        watermark_ms: the watermark of the next checkpoint, ms since the epoch; None where there is none.
        pending: per sink, what waits to become visible; a sink that cannot say is left out.
        key_groups: into how many key groups keyed state is divided; None where there is none, or Spark keeps it.
        partitions: in how many partitions Spark keeps state; None where it keeps none.
        state: what keeps state.
        backend: what keeps it: "rocksdb", "memory", or a class name; "" where there is none.
        sizes: bytes of each part.
        damage: path and fault of each file that is not as it was written; None where nobody looked.
    """

    path: str
    metadata: Metadata
    sources: Mapping[str, Reading]
    watermark_ms: int | None
    pending: Mapping[str, Sequence[PendingFile]]
    key_groups: int | None
    partitions: int | None
    backend: str
    state: Sequence[StateOperator]
    sizes: Mapping[str, int]
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
        said = self.metadata
        return {
            "path": self.path,
            "format": said.to_json()["v"],
            "name": said.name,
            "job": said.job,
            "job_id": said.job_id,
            "created_ms": said.created_ms,
            "versions": dict(said.versions),
            "checkpoint": said.decision.checkpoint,
            "edited": None if said.edited is None else dict(said.edited),
            "sources": {name: found.to_json() for name, found in self.sources.items()},
            "watermark_ms": self.watermark_ms,
            "operators": {i: o.to_json() for i, o in said.operators.items()},
            "pending": {name: [asdict(file) for file in files] for name, files in self.pending.items()},
            "state": {
                "key_groups": self.key_groups,
                "partitions": self.partitions,
                "backend": self.backend,
                "operators": [asdict(operator) for operator in self.state],
            },
            "noted": dict(said.noted),
            "bytes": self.bytes,
            "sizes": dict(self.sizes),
            "damage": None if self.damage is None else [{"path": path, "fault": fault} for path, fault in self.damage],
        }


def inspect(savepoint: Storage, *, check: bool = True) -> Inspection:
    """Return what a savepoint holds.

    Args:
        savepoint: its folder.
        check: whether to compare every file with its digest, which reads all of them.

    Raises:
        DefinitionError: it is no savepoint, or so damaged that it cannot be read.
    """
    metadata = read_metadata(savepoint)
    found = list(damage(savepoint, metadata)) if check else None
    try:
        log, state = newest_offsets(savepoint), state_operators(savepoint)
        manifests = {} if metadata.decision.state is None else manifests_of(metadata.decision.state)
        return Inspection(
            path=savepoint.root,
            metadata=metadata,
            sources={name: reading(savepoint, name, span.end) for name, span in metadata.decision.sources.items()},
            watermark_ms=_watermark(savepoint, metadata),
            pending=pending(metadata),
            key_groups=next((each.max_parallelism for each in manifests.values()), None),
            partitions=log.partitions if log is not None and state else None,
            backend=_backend(log.provider) if log is not None and state else "",
            state=[*state, *_kept(manifests)],
            sizes=_sizes(metadata, state),
            damage=found,
        )
    except DefinitionError:
        for path, wrong in found or ():
            raise damaged(savepoint, path, wrong) from None
        raise


def _kept(manifests: Mapping[str, Manifest]) -> list[StateOperator]:
    """Return the operators with keyed state; a file is shared by those of a stage, and counts for the first of them."""
    found, counted = [], set()
    for manifest in manifests.values():
        size = sum(file.bytes for file in manifest.files if file.name not in counted)
        counted |= {file.name for file in manifest.files}
        for id, meta in manifest.operators.items():
            found.append(StateOperator(str(meta.number), id, size))
            size = 0
    return found


def _watermark(savepoint: Storage, metadata: Metadata) -> int | None:
    """Return the watermark a job goes on with: of the decision; of Spark's log where an older version decided it."""
    state = metadata.decision.watermarks
    if state is None:
        return watermark_ms(savepoint)
    found = resumed({**state, "before_end": _before_end(state)} if "state" in state else state)
    return None if found == MIN else found


def _before_end(state: Mapping[str, Any]) -> int | None:
    """Return the least watermark that streams had before the end of their input."""
    found = [state["state"]["streams"].get(name, {}).get("before_end") for name in state["state"].get("sources", ())]
    return min((watermark for watermark in found if watermark is not None), default=None)


def pending(metadata: Metadata) -> dict[str, Sequence[PendingFile]]:
    """Return per sink what waits in a savepoint to become visible; a sink that cannot say is left out."""
    found: dict[str, Sequence[PendingFile]] = {}
    for name in metadata.decision.sinks:
        try:
            sink = rebuild_sink(metadata.sinks.get(name, {}))
        except DefinitionError:
            continue  # a package that it needs is not installed here
        if isinstance(sink, Legible):
            found[name] = sink.pending(saved_state(metadata.decision, name))
    return found


def _sizes(metadata: Metadata, state: Sequence[StateOperator]) -> dict[str, int]:
    """Return the bytes of each part, by what was written; state by the numbers Spark gives its operators."""
    names = {operator.number: operator.name for operator in state}
    sizes: dict[str, int] = {}
    for path, file in metadata.files.items():
        head, _, rest = path.partition("/")
        if path.startswith("spark/state/"):
            number = rest.removeprefix("state/").partition("/")[0]
            part = " ".join(text for text in (f"state {number}", names.get(number, "")) if text)
        elif head == "spark":
            part = "Spark's logs"
        elif head == "state":
            part = "state"
        else:
            part = f"{head.removesuffix('s')} {rest.partition('/')[0]}"
        sizes[part] = sizes.get(part, 0) + file.bytes
    return dict(sorted(sizes.items()))


def _backend(provider: str) -> str:
    name = provider.rpartition(".")[2]
    return {"RocksDBStateStoreProvider": "rocksdb", "HDFSBackedStateStoreProvider": "memory"}.get(name, name)
