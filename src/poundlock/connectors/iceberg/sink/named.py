"""Which data files a snapshot added, by its own manifests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A data file that a manifest names."""

    path: str
    rows: int
    bytes: int


def added_files(table: Table, snapshot: Any) -> Iterator[NamedFile]:
    """Yield the data files that a snapshot added. Raises what the file system raises."""
    from pyiceberg.manifest import ManifestEntryStatus

    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.status == ManifestEntryStatus.ADDED:
                file = entry.data_file
                yield NamedFile(file.file_path, file.record_count, file.file_size_in_bytes)
