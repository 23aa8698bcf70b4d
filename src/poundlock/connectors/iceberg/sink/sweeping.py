"""What dead attempts left: data files in the job's own folder that no snapshot names.

Only folders of the newest lives are listed: every start sweeps, so what is older was swept when it was the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.participant import Orphan
from poundlock.connectors.iceberg.catalog import TablePlace, file_system
from poundlock.connectors.iceberg.sink.data_files import delete_files
from poundlock.connectors.iceberg.sink.marks import DecisionMark, Owner

if TYPE_CHECKING:
    from pyiceberg.table import Table


def job_folder(table: Table, owner: Owner) -> str:
    """Return the folder in a table's data that one sink of one job writes to."""
    data = table.metadata.properties.get("write.data.path") or f"{table.metadata.location.rstrip('/')}/data"
    return f"{data.rstrip('/')}/poundlock-{owner.name}"


def epoch_folder(table: Table, owner: Owner, epoch: int) -> str:
    """Return the folder of one life of its driver."""
    return f"{job_folder(table, owner)}/e{epoch:06d}"


def sweep(
    place: TablePlace, owner: Owner, mark: DecisionMark | None, *, remove: bool, check: Callable[[], None]
) -> Sequence[Orphan]:
    """Return, and remove where that is asked for, the files of dead attempts; see `Participant.sweep`.

    Args:
        mark: the newest decision.
    """
    table = place.load("sweeping")
    with place.explained("sweeping"):
        there = _listed(table, owner, 0 if mark is None else mark.epoch)
        if there:
            _leave_out(there, table, owner)
    if remove and there:
        check()
        delete_files(table.io, list(there))
    return list(there.values())


def _listed(table: Table, owner: Owner, first: int) -> dict[str, Orphan]:
    from pyarrow.fs import FileSelector, FileType

    root = job_folder(table, owner)
    files, path = file_system(table.io, root)
    listed: dict[str, Orphan] = {}
    try:
        folders = files.get_file_info(FileSelector(path))
    except FileNotFoundError:
        return {}
    for folder in folders:
        epoch = folder.base_name.removeprefix("e")
        if folder.type != FileType.Directory or not epoch.isdigit() or int(epoch) < first:
            continue
        for info in files.get_file_info(FileSelector(folder.path, recursive=True)):
            if info.type == FileType.File:
                location = f"{root}/{info.path[len(path) :].lstrip('/')}"
                modified = info.mtime_ns // 1_000_000 if info.mtime_ns else 0
                listed[location] = Orphan(location, info.size or 0, modified)
    return listed


def _leave_out(there: dict[str, Orphan], table: Table, owner: Owner) -> None:
    """Take out of some files those that any snapshot names: first by what this sink's own commits added, then by all there is."""
    own = [snapshot for _, snapshot in owner.snapshots(table)]
    for snapshots, added_only in ((own, True), (list(table.metadata.snapshots), False)):
        seen: set[str] = set()
        for snapshot in reversed(snapshots):
            if not there:
                return
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path in seen or (
                    added_only and manifest.added_snapshot_id != snapshot.snapshot_id
                ):
                    continue
                seen.add(manifest.manifest_path)
                _take_out(there, manifest, table)


def _take_out(there: dict[str, Orphan], manifest: Any, table: Table) -> None:
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
        there.pop(entry.data_file.file_path, None)
