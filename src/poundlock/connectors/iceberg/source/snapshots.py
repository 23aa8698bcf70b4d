"""Snapshots in the order in which they were made, and the data files that each has to be read: the same whenever they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poundlock.connectors.iceberg.catalog import TablePlace
from poundlock.connectors.iceberg.files import FileValue, from_data_file, partition_kinds
from poundlock.errors import SourceGoneError, TerminalError

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

    from poundlock.connectors.iceberg.source.source import IcebergSource


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file that is read, and the delete files that take rows out of it."""

    file: FileValue
    deletes: tuple[FileValue, ...] = ()


def ordered(place: TablePlace, table: Table, last: int, after: str, sequence: int = 0) -> list[Snapshot]:
    """Return the snapshots behind one up to another, the oldest first.

    Args:
        last: the newest.
        after: the one before the first; "" = from the oldest on that the table has.
        sequence: its number among the table's commits, by which the one behind it is known when it has expired itself; 0 = not known.

    Raises:
        SourceGoneError: one in between is not there any more, or the table was set back.
    """
    chain: list[Snapshot] = []
    at: int | None = last
    while at is not None and str(at) != after:
        snapshot = table.metadata.snapshot_by_id(at)
        if snapshot is None:
            if not after:
                break  # what is older has expired, and nobody has begun to read it
            raise SourceGoneError(
                f"snapshot {at} of {place.shown} has expired, and the job has read the table up to snapshot {after}",
                next="begin with a new checkpoint folder; keep snapshots for longer than the job may stand still",
            )
        chain.append(snapshot)
        at = snapshot.parent_snapshot_id
    # pyiceberg takes the parent out of a snapshot whose parent expires; Iceberg's own maintenance leaves it.
    if at is None and after and not (sequence and chain[-1].sequence_number == sequence + 1):
        raise SourceGoneError(
            f"no way leads from snapshot {after} of {place.shown}, up to which the job has read, to snapshot {last}:"
            " some in between have expired, or the table was set back",
            next="begin with a new checkpoint folder; keep snapshots for longer than the job may stand still",
        )
    return chain[::-1]


def there(place: TablePlace, table: Table, snapshot: str) -> Snapshot:
    """Return a snapshot. Raises SourceGoneError where it has expired."""
    kept = table.metadata.snapshot_by_id(int(snapshot))
    if kept is None:
        raise SourceGoneError(
            f"snapshot {snapshot} of {place.shown} has expired, and the job has still to read it",
            next="begin with a new checkpoint folder; keep snapshots for longer than the job may stand still",
        )
    return kept


def rewrites(source: IcebergSource, snapshot: Snapshot) -> bool:
    """Return whether nothing of a snapshot is read, because it adds no rows.

    Raises:
        TerminalError: it changes or removes rows, and the source is not to skip such snapshots.
    """
    operation = str(snapshot.summary.operation.value) if snapshot.summary is not None else "append"
    if operation == "append":
        return False
    if operation != "replace" and source.on_overwrite == "fail":
        raise TerminalError(
            f"snapshot {snapshot.snapshot_id} of {source.place.shown} is of the kind {operation}: it changes or removes rows,"
            " and an incremental source reads those that are added",
            next='leave such snapshots out: on_overwrite="skip"; or read the table whole: mode="snapshot"',
        )
    return True


def scanned(source: IcebergSource, table: Table, snapshot: Snapshot) -> Sequence[PlannedFile]:
    """Return all files of a table as it was at a snapshot."""
    scan = table.scan(snapshot_id=snapshot.snapshot_id, **_filter(source))
    return _planned(source, table, lambda: scan.plan_files())


def added(source: IcebergSource, table: Table, snapshot: Snapshot) -> Sequence[PlannedFile]:
    """Return the files that a snapshot added."""
    if rewrites(source, snapshot):
        return ()
    scan = table.incremental_append_scan(to_snapshot_id_inclusive=snapshot.snapshot_id, **_filter(source))
    own = scan.from_snapshot_id_inclusive(snapshot.snapshot_id)
    return _planned(source, table, lambda: own.plan_files())


def _filter(source: IcebergSource) -> dict[str, Any]:
    return {} if source.where is None else {"row_filter": source.where}


def _planned(source: IcebergSource, table: Table, plan: Any) -> Sequence[PlannedFile]:
    with source.place.explained("planning its files"):
        try:
            tasks: list[FileScanTask] = list(plan())
        except FileNotFoundError as error:
            raise SourceGoneError(
                f"a file of {source.place.shown} is gone that says which data files it has: {error}",
                next="begin with a new checkpoint folder, or put the file back",
            ) from error
        except ValueError as error:
            if "equality delete" not in str(error):
                raise
            raise TerminalError(
                f"{source.place.shown} has equality deletes, which pyiceberg does not read: {error}",
                next="have the table compacted by the engine that writes them, then start the job again",
            ) from error
    kinds = {spec: partition_kinds(table.metadata, spec) for spec in table.specs()}
    made = [
        PlannedFile(
            from_data_file(task.file, kinds[task.file.spec_id]),
            tuple(sorted((from_data_file(d, kinds[d.spec_id]) for d in task.delete_files), key=lambda d: d.path)),
        )
        for task in tasks
    ]
    return sorted(made, key=lambda planned: planned.file.path)
