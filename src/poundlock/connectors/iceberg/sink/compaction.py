"""Small files of a table written together, in a snapshot of the kind "replace": one that changes no rows, which readers of changes pass over.

It comes behind a commit and may be left out: whatever is in its way leaves the table as it is, until the next time.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from poundlock.checkpoint.participant import Committed
from poundlock.connectors.iceberg.errors import explain, load_pyiceberg
from poundlock.connectors.iceberg.files import partition_kinds, to_data_file
from poundlock.connectors.iceberg.sink.committer import of_one_try
from poundlock.connectors.iceberg.sink.data_files import DataFiles, target_of
from poundlock.connectors.iceberg.sink.sweeping import job_folder
from poundlock.connectors.iceberg.types import arrow_schema
from poundlock.redaction import secret_values

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata

    from poundlock.connectors.iceberg.sink.sink import IcebergSink

# Iceberg's rewrite_data_files has the same two by default: min-file-size-bytes, as a share of the target, and min-input-files.
_SMALL = 0.75
_LEAST_FILES = 5
_MOST_BYTES = 2 << 30
"""So much is rewritten at a time, by the driver alone; the rest is left for the next time."""


def compact(sink: IcebergSink, checkpoint: int, done: Committed) -> Committed:
    """Rewrite small files behind a commit that was just made, where it is time for that; return the commit with what came of it."""
    if sink.compact_every is None or checkpoint % sink.compact_every or "snapshot" not in done.detail:
        return done
    try:
        made = _rewrite(sink, checkpoint)
    except Exception as error:  # the rows are committed, whatever this is
        words = explain(error, sink.place.shown, "compacting", secret_values(sink.catalog)).what
        made = f"not done: {words}"
    return Committed({**done.detail, "compaction": made})


def _rewrite(sink: IcebergSink, checkpoint: int) -> str:
    table = sink.place.load("compacting")
    chosen = _chosen(sink, table, sink.target_bytes or target_of(table.metadata.properties))
    if not chosen:
        return "no small files"
    # No sweep looks here: the commit of a driver that was replaced may still be on its way, and may still be taken.
    folder = f"{job_folder(table, sink.owner)}/compacted"
    made = DataFiles(table, folder, f"c{checkpoint}-{uuid.uuid4().hex[:12]}", sink.target_bytes)
    try:
        for group in chosen:
            for task in group:
                _copy(table, task, made)
            files = made.finish()
    except BaseException:
        made.remove()
        raise
    of_one_try(table, table.metadata.default_spec_id)
    table.catalog = cast(Any, _SaysReplace(table.catalog))
    transaction = table.transaction()
    rewrite = transaction.update_snapshot({"poundlock.compaction": sink.owner.name}, sink.branch or "main").overwrite()
    kinds = partition_kinds(table.metadata, table.metadata.default_spec_id)
    removed = [task.file for group in chosen for task in group]
    for file in removed:
        rewrite.delete_data_file(file)
    for new in files:
        rewrite.append_data_file(to_data_file(new, kinds))
    rewrite.commit()
    try:
        transaction.commit_transaction()
    except load_pyiceberg("exceptions").CommitFailedException:
        made.remove()
        return "not done: another writer was quicker"
    return f"{len(removed)} files into {len(files)}"


def _chosen(sink: IcebergSink, table: Table, target: int) -> Sequence[Sequence[FileScanTask]]:
    """Return the small files of each partition that has enough of them; those with deletes are left to whoever writes these."""
    scan = table.scan()
    if sink.branch is not None:
        if sink.branch not in table.metadata.refs:
            return []
        scan = scan.use_ref(sink.branch)
    spec = table.metadata.default_spec_id
    groups: dict[Any, list[FileScanTask]] = defaultdict(list)
    for task in scan.plan_files():
        file = task.file
        is_plain = file.spec_id == spec and not task.delete_files and file.file_format == "PARQUET"
        if is_plain and file.file_size_in_bytes < _SMALL * target:
            groups[file.partition].append(task)
    chosen: list[Sequence[FileScanTask]] = []
    room = _MOST_BYTES
    for group in groups.values():
        some: list[FileScanTask] = []
        for task in group:
            if task.file.file_size_in_bytes <= room:
                some.append(task)
                room -= task.file.file_size_in_bytes
        if len(some) >= _LEAST_FILES:
            chosen.append(some)
        else:
            room += sum(task.file.file_size_in_bytes for task in some)
    return chosen


def _copy(table: Table, task: FileScanTask, made: DataFiles) -> None:
    """Write the rows of a file once more, in the table's columns as they are now."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    wanted = arrow_schema(table.schema())
    for batch in ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_record_batches([task]):
        made.add(batch.cast(wanted))


class _SaysReplace:
    """A catalog that is asked for a snapshot of the kind "replace": pyiceberg stages files that come and go as an overwrite alone."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def commit_table(self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> Any:
        """Ask for a commit; see `Catalog.commit_table`."""
        return self._catalog.commit_table(table, requirements, tuple(map(_replacing, updates)))

    def _delete_old_metadata(self, io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Remove what a table's properties let go; pyiceberg asks for it behind each commit."""
        self._catalog._delete_old_metadata(io, base, metadata)


def _replacing(update: Any) -> Any:
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update import AddSnapshotUpdate

    if not isinstance(update, AddSnapshotUpdate):
        return update
    given = update.snapshot.summary
    summary = Summary(Operation.REPLACE, **({} if given is None else given.additional_properties))
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"summary": summary}))
