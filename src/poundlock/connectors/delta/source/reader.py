"""Task's half of a Delta source: the files of a split by Arrow, only the columns that are needed, with the values of their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.delta.partition_values import value_of
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, Chunk, FileOrigin
from poundlock.formats.convert import for_python, to_records
from poundlock.operators.pieces import rows_of_row_group
from poundlock.storage import Storage, open_storage

CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = pa.schema([(CHANGE, pa.string()), (VERSION, pa.int64()), (TIME, pa.timestamp("us", tz="UTC"))])
"""What a change data feed has besides the columns of the table, named as by Spark."""
_BEFORE = ("delete", "update_preimage")


@dataclass
class DeltaReader:
    """Reads the splits of one task.

    Args:
        context: where rows are wanted, and which columns.
        change_feed: whether rows say what became of them.
    """

    context: ReaderContext
    change_feed: bool
    _storages: dict[str, Storage] = field(default_factory=dict)
    _partition_by: Sequence[str] = ()

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split. A commit that changes rows is read twice: what goes first, then what comes in its place."""
        storage = self._storages.setdefault(split.payload["root"], open_storage(split.payload["root"]))
        columns = ddl.parse(split.payload["columns"])
        if self.context.columns is not None:
            columns = pa.schema([each for each in columns if each.name in self.context.columns])
        self._partition_by = split.payload["partition_by"]
        for _, files in groupby(split.payload["files"], key=lambda file: (file["version"], file["change"])):
            several = list(files)
            for only in (True, False) if several[0]["change"] == "feed" else (None,):
                for file in several:
                    yield from self._file(storage, file, columns, only)

    def _file(
        self, storage: Storage, file: Mapping[str, Any], columns: pa.Schema, before: bool | None
    ) -> Iterator[Chunk]:
        name = f"{storage.root}/{file['path']}"
        if ":/" in file["path"]:
            raise TerminalError(
                f"{file['path']} is a file of another table, as a shallow clone has them",
                next="read the table that was cloned, or a deep clone",
            )
        try:
            handle = storage.open(file["path"])
        except FileNotFoundError as error:
            raise SourceGoneError(
                f"{name} of version {file['version']} is gone, as after VACUUM",
                next="raise the table's delta.deletedFileRetentionDuration; begin with a new checkpoint folder to read what is there now",
            ) from error
        with handle, pq.ParquetFile(handle) as parquet:
            first = 0
            there = parquet.schema_arrow.names
            feed = file["change"] == "feed"
            wanted = [each.name for each in columns if each.name in there]
            read = [*wanted, CHANGE] if feed and CHANGE not in wanted else wanted
            for group in range(parquet.num_row_groups):
                about = parquet.metadata.row_group(group)
                for batch in parquet.iter_batches(rows_of_row_group(about), row_groups=[group], columns=read):
                    rows = self._whole(batch, file, columns, name)
                    origin = FileOrigin(name, range(first, first + batch.num_rows))
                    first += batch.num_rows
                    if before is not None:
                        kinds = batch.column(CHANGE)
                        keep = pc.is_in(kinds, pa.array(_BEFORE, kinds.type))
                        rows = rows.filter(keep if before else pc.invert(keep))
                        if not rows.num_rows:
                            continue
                        origin = FileOrigin(name, range(first - batch.num_rows, first))
                    yield self._formed(Batch(rows, origin) if before is None else Batch(rows))

    def _whole(self, batch: pa.RecordBatch, file: Mapping[str, Any], columns: pa.Schema, name: str) -> pa.RecordBatch:
        """Return rows with all columns that are wanted: those of the file, of its partition, and null where it is older than the column."""
        count = batch.num_rows
        arrays: Sequence[pa.Array] = [self._column(batch, each, file, count, name) for each in columns]
        return pa.RecordBatch.from_arrays(list(arrays), schema=columns)

    def _column(
        self, batch: pa.RecordBatch, field: pa.Field, file: Mapping[str, Any], count: int, name: str
    ) -> pa.Array:
        if self.change_feed and field.name in FEED_COLUMNS.names:
            if field.name == CHANGE and file["change"] == "feed":
                return batch.column(CHANGE).cast(pa.string())
            values = {CHANGE: file["change"], VERSION: file["version"], TIME: file["time_ms"] * 1000 or None}
            return pa.repeat(
                pa.scalar(values[field.name], pa.int64() if field.name == TIME else field.type), count
            ).cast(field.type)
        if field.name in file["values"]:
            return pa.repeat(value_of(file["values"][field.name], field.type), count)
        if field.name in self._partition_by:
            raise TerminalError(
                f"{name}: the table's log does not say which partition the file was of when it was removed",
                next="begin with a new checkpoint folder behind that version",
            )
        if field.name not in batch.schema.names:
            return pa.nulls(count, field.type)
        try:
            return batch.column(field.name).cast(field.type)
        except pa.ArrowInvalid as error:
            raise TerminalError(
                f"{name}: column {field.name!r} does not fit {field.type}: {str(error).splitlines()[0]}",
                next="mend the table; the file is not as its log says",
            ) from error

    def _formed(self, rows: Batch) -> Chunk:
        if self.context.want == "records":
            return to_records(for_python(rows, self.context.reject))
        return rows
