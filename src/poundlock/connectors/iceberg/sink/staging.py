"""Rows by key: tasks leave them in files of Arrow batches, and the driver puts them into the table by one commit.

pyiceberg writes no delete files, so the data files that have a row of one of the keys are written again without it (copy on write),
in the same snapshot as the new rows.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.checkpoint.participant import JSON, Committed, WriterContext
from poundlock.connectors.column_checks import need_columns
from poundlock.connectors.iceberg.catalog import known_table
from poundlock.connectors.iceberg.files import FileValue, partition_kinds, to_data_file
from poundlock.connectors.iceberg.sink import committer
from poundlock.connectors.iceberg.sink.columns import check_rows
from poundlock.connectors.iceberg.sink.data_files import DataFiles, delete_files, make_durable
from poundlock.connectors.iceberg.sink.marks import TableCommit, TaskFiles
from poundlock.connectors.iceberg.sink.named import added_files
from poundlock.connectors.iceberg.sink.sweeping import epoch_folder
from poundlock.connectors.iceberg.types import arrow_schema
from poundlock.errors import TerminalError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_batch

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table, Transaction

    from poundlock.connectors.iceberg.sink.sink import IcebergSink

DELETED = "poundlock_deleted"
"""The column of staged rows that says whether the row of the key is to be deleted."""


class KeyedWriter:
    """Stages the rows of one task attempt; the sink is bound to its job."""

    def __init__(self, context: WriterContext, sink: IcebergSink) -> None:
        self._context, self._sink = context, sink
        self._table = table = known_table(sink.place, context.directive["known"])
        wanted = sink.picked(arrow_schema(table.schema()))
        keys = set(sink.key or ())
        fields = [field.with_nullable(field.nullable and field.name not in keys) for field in wanted]
        self._wanted = arrow_schema(table.schema())
        self._schema = pa.schema([*fields, pa.field(DELETED, pa.bool_())])
        name = f"c{context.checkpoint}-{context.subtask:05d}-{context.attempt}.arrow"
        self._path = f"{epoch_folder(table, sink.owner, context.epoch)}/{name}"
        self._handle: Any = None
        self._stream: Any = None
        self._rows = 0

    def write(self, chunk: Chunk) -> int:
        """Write the rows of a chunk; return how many were taken. Raises TransientError where the file system fails."""
        if not len(chunk):
            return 0
        given = to_batch(chunk)
        rows = given.batch
        need_columns(self._context.sink, self._flags, rows.schema.names)
        check_rows(
            self._context.sink, self._sink.table, self._wanted, self._sink.without_flag(rows.schema), self._sink.columns
        )
        flag = rows.column(self._flags[0]) if self._flags else pa.nulls(rows.num_rows, pa.bool_())
        marked = [*rows.columns, pc.fill_null(flag.cast(pa.bool_()), False)]
        flagged = pa.RecordBatch.from_arrays(marked, names=[*rows.schema.names, DELETED])
        batch = to_batch(Batch(flagged, given.origin), self._schema, self._context.reject).batch
        if not batch.num_rows:
            return 0
        with self._sink.place.writing():
            if self._stream is None:
                self._handle = self._table.io.new_output(self._path).create()
                self._stream = pa.ipc.new_stream(self._handle, self._schema)
                hit(Failpoint.SINK_WRITING)
            self._stream.write_batch(batch)
        self._rows += batch.num_rows
        return int(batch.num_rows)

    @property
    def _flags(self) -> tuple[str, ...]:
        return () if self._sink.delete_when is None else (self._sink.delete_when,)

    def prepare(self) -> Sequence[JSON]:
        """Make the file durable, and return the one payload that names it; none if nothing was written."""
        if self._stream is None:
            return []
        with self._sink.place.writing():
            self._stream.close()
            self._handle.close()
            make_durable(self._path)
            size = len(self._table.io.new_input(self._path))
        metadata = self._table.metadata
        spec = metadata.default_spec_id
        prepared = TaskFiles(
            v=1,
            table=str(metadata.table_uuid),
            spec=spec,
            epoch=self._context.epoch,
            checkpoint=self._context.checkpoint,
            rows=self._rows,
            bytes=size,
            files=[FileValue(path=self._path, rows=self._rows, bytes=size, spec=spec, format="ARROW")],
        )
        return [prepared.to_json()]

    def abandon(self) -> None:
        """Remove the file; what stays goes with the sweep."""
        if self._handle is not None:
            with contextlib.suppress(Exception):
                self._handle.close()
            delete_files(self._table.io, [self._path])


def commit(sink: IcebergSink, decided: TableCommit) -> Committed:
    """Put a decision's staged rows into the table, or see that they are there; raises as `committer.commit`."""
    replacing = Replacing(sink)
    done = committer.commit(sink.place, sink.owner, decided, replacing)
    with sink.place.explained("removing staged rows"):
        table = sink.place.load("removing staged rows")
        replacing.remove_others(table, decided)
    delete_files(table.io, [file.path for file in decided.files])
    return done


class Replacing:
    """Writes the files that have a row of one of the keys again, and the new rows with them; see `committer.TableChange`.

    The files of a try that nobody answered stay until the table has the commit: it may be on its way still, and be taken.
    """

    def __init__(self, sink: IcebergSink) -> None:
        self._sink = sink
        self._tries: list[DataFiles] = []

    def stage(self, table: Table, transaction: Transaction, decided: TableCommit) -> int:
        rows = _newest(_staged(self._sink, table, decided), self._sink.key or ())
        folder = epoch_folder(table, self._sink.owner, decided.epoch)
        made = DataFiles(table, folder, _name(decided), self._sink.target_bytes)
        try:
            snapshot = _replace(self._sink, table, transaction, decided, rows, made)
        except BaseException:
            made.remove()  # the catalog was not asked yet
            raise
        self._tries.append(made)
        return snapshot

    def refused(self) -> None:
        """Remove the files of the last try."""
        self._tries.pop().remove()

    def remove_others(self, table: Table, decided: TableCommit) -> None:
        """Remove the files of the tries that did not become the commit, which the table has."""
        if len(self._tries) < 2:
            return
        made = [snapshot for mark, snapshot in self._sink.owner.snapshots(table) if mark == decided.mark]
        if not made:
            return  # it has expired, and the next start sweeps what is left
        named = {file.path for snapshot in made for file in added_files(table, snapshot)}
        for each in self._tries:
            if not named.intersection(each.paths):
                each.remove()


def _name(decided: TableCommit) -> str:
    return f"c{decided.checkpoint}-merged-{uuid.uuid4().hex[:12]}"


def _staged(sink: IcebergSink, table: Table, decided: TableCommit) -> pa.Table:
    pieces = []
    for file in decided.files:
        try:
            with table.io.new_input(file.path).open() as handle:
                pieces.append(pa.ipc.open_stream(handle.read()).read_all())
        except FileNotFoundError:
            raise TerminalError(
                f"{file.path} is gone, and its {file.rows} rows are decided",
                next="put it back; only poundlock may remove files there",
            ) from None
    return pa.concat_tables(pieces, promote_options="permissive")


def _newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return, of rows with one key, the last."""
    numbered = rows.select(list(key)).append_column("row", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(list(key), use_threads=False).aggregate([("row", "max")])["row_max"]
    return rows.take(last.combine_chunks().sort())


def _replace(
    sink: IcebergSink, table: Table, transaction: Transaction, decided: TableCommit, rows: pa.Table, made: DataFiles
) -> int:
    """Stage one snapshot: the files that have a row of one of the keys go, their other rows and the new ones come."""
    keys = rows.select(list(sink.key or ()))
    overwrite = transaction.update_snapshot(sink.owner.summary(decided), sink.branch or "main").overwrite()
    for task, left in _touched(sink, table, keys):
        overwrite.delete_data_file(task.file)
        for batch in left.to_batches():
            made.add(batch)
    wanted = arrow_schema(table.schema())
    new = rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])
    for field in wanted:
        if field.name not in new.schema.names:
            new = new.append_column(field, pa.nulls(new.num_rows, field.type))
    for batch in new.select(wanted.names).cast(wanted).to_batches():
        made.add(batch)
    kinds = partition_kinds(table.metadata, decided.spec)
    for file in made.finish():
        overwrite.append_data_file(to_data_file(file, kinds))
    overwrite.commit()
    committer.add_tag(transaction, overwrite.snapshot_id, sink.tag, decided)
    return int(overwrite.snapshot_id)


def _touched(sink: IcebergSink, table: Table, keys: pa.Table) -> Iterator[tuple[FileScanTask, pa.Table]]:
    """Yield the data files that have a row of one of some keys, and their other rows."""
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual
    from pyiceberg.io.pyarrow import ArrowScan

    scan = table.scan(options={})
    if sink.branch is not None:
        if sink.branch not in table.metadata.refs:
            return
        scan = scan.use_ref(sink.branch)
    for name in keys.schema.names:
        if _is_ordered(keys.schema.field(name).type):
            bounds = pc.min_max(keys[name]).as_py()
            scan = scan.filter(And(GreaterThanOrEqual(name, bounds["min"]), LessThanOrEqual(name, bounds["max"])))
    wanted = arrow_schema(table.schema())
    for task in list(scan.plan_files()):
        reader = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows = reader.to_table([task]).cast(wanted)
        numbered = rows.select(keys.schema.names).append_column("row", pa.array(np.arange(rows.num_rows)))
        hit_rows = numbered.join(keys, keys.schema.names, join_type="left semi", use_threads=False)["row"]
        if len(hit_rows):
            left = np.ones(rows.num_rows, np.bool_)
            left[hit_rows.to_numpy()] = False
            yield task, rows.filter(pa.array(left))


def _is_ordered(kind: pa.DataType) -> bool:
    """Return whether files can be left out by the bounds of a key."""
    kinds = pa.types
    return bool(kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_date(kind))
