"""Which buckets of a job are sealed, for those who read its files: by its decisions, and by the manifests that stand in the buckets.

Only what the stores have is read; a seal that is decided and has no manifest yet is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from poundlock.checkpoint.decision import Decision
from poundlock.connectors.files.file_values import FileCommittable
from poundlock.connectors.files.partitions.manifest_names import name_of
from poundlock.connectors.files.partitions.manifests import BucketManifest, newest_manifest, path_in
from poundlock.storage import Storage


@dataclass(frozen=True, slots=True)
class SealedEntry:
    """The newest version of a sealed bucket.

    Args:
        sink: name of the sink.
        root: the sink's folder.
        manifest_path: of the manifest, below the folder.
        manifest: what it says.
    """

    sink: str
    root: str
    manifest_path: str
    manifest: BucketManifest

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object: the manifest, and where it is."""
        made = {"sink": self.sink, "root": self.root, "manifest": self.manifest_path}
        return {**made, **msgspec.to_builtins(self.manifest)}


@dataclass(slots=True)
class SealedListing:
    """The sealed buckets of a job, as far as its decisions were handed in.

    Args:
        open_root: opens the folder of a sink.
        sink: only of this sink; None = of all file sinks.
    """

    open_root: Callable[[str], Storage]
    sink: str | None = None
    # sink, folder and name of manifests: of each, in the order in which they were seen
    _buckets: dict[tuple[str, str, str, str], None] = field(default_factory=dict)
    _sinks: dict[tuple[str, str, str], None] = field(default_factory=dict)

    @property
    def seals(self) -> bool:
        """Whether any of the sinks seals buckets."""
        return bool(self._sinks)

    def take(self, decisions: Iterable[Decision]) -> None:
        """Take note of further decisions."""
        for decision in decisions:
            for name, part in decision.sinks.items():
                if self.sink in (None, name):
                    self._take_state(name, part.state)
                    self._take_seals(name, part.committables)

    def entries(self) -> Iterator[SealedEntry]:
        """Yield the sealed buckets, in the order of their first seals. Raises OSError and TerminalError."""
        for name, root, manifest, bucket in self._buckets:
            if (entry := self._entry(name, root, manifest, bucket)) is not None:
                yield entry

    def of_bucket(self, bucket: str) -> SealedEntry | None:
        """Return a bucket, of the first sink that has sealed it; None = none has. Raises OSError and TerminalError."""
        entries = (self._entry(name, root, manifest, bucket) for name, root, manifest in self._sinks)
        return next((entry for entry in entries if entry is not None), None)

    def _take_state(self, name: str, state: Any) -> None:
        pending = state.get("partitions")  # of sinks of every kind: what is no state of a file sink says nothing here
        manifest, root = pending.get("manifest") if isinstance(pending, dict) else None, state.get("root")
        if manifest and isinstance(manifest, str) and isinstance(root, str):
            self._sinks[name, root, manifest] = None

    def _take_seals(self, name: str, committables: Sequence[Any]) -> None:
        for committable in committables:
            mark = committable.get("mark")
            if not isinstance(mark, dict) or "seal" not in mark:
                continue
            file = FileCommittable.of(committable)
            if file.mark is None or file.mark.seal is None:
                continue
            self._sinks[name, file.root, file.mark.seal.manifest] = None
            self._buckets[name, file.root, file.mark.seal.manifest, file.bucket] = None

    def _entry(self, name: str, root: str, manifest: str, bucket: str) -> SealedEntry | None:
        newest = newest_manifest(self.open_root(root), bucket, manifest)
        if newest is None:
            return None
        return SealedEntry(name, root, path_in(bucket, name_of(manifest, newest.version)), newest)
