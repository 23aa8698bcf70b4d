"""The task's half: rows into data files that no snapshot names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from poundlock.checkpoint.participant import JSON, WriterContext
from poundlock.connectors.iceberg.catalog import known_table
from poundlock.connectors.iceberg.sink.columns import check_rows
from poundlock.connectors.iceberg.sink.data_files import DataFiles
from poundlock.connectors.iceberg.sink.marks import TaskFiles
from poundlock.connectors.iceberg.sink.sweeping import epoch_folder
from poundlock.connectors.iceberg.types import arrow_schema
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_batch

if TYPE_CHECKING:
    from poundlock.connectors.iceberg.sink.sink import IcebergSink


class IcebergWriter:
    """Writes the rows of one task attempt; the sink is bound to its job."""

    def __init__(self, context: WriterContext, sink: IcebergSink) -> None:
        self._context, self._sink = context, sink
        self._table = table = known_table(sink.place, context.directive["known"])
        self._wanted = arrow_schema(table.schema())
        folder = epoch_folder(table, sink.owner, context.epoch)
        name = f"c{context.checkpoint}-{context.subtask:05d}-{context.attempt}"
        self._files = DataFiles(table, folder, name, sink.target_bytes)
        self._begun = False

    def write(self, chunk: Chunk) -> int:
        """Write the rows of a chunk; return how many were taken. Raises TransientError where the file system fails."""
        if not len(chunk):
            return 0
        if isinstance(chunk, Batch):
            check_rows(self._context.sink, self._sink.table, self._wanted, chunk.batch.schema, self._sink.columns)
        batch = to_batch(chunk, self._sink.picked(self._wanted), self._context.reject).batch
        if not batch.num_rows:
            return 0
        with self._sink.place.writing():
            self._files.add(self._completed(batch))
            if not self._begun:
                self._begun = True
                hit(Failpoint.SINK_WRITING)
        return int(batch.num_rows)

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with all of the table's columns."""
        columns = [
            batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
            for field in self._wanted
        ]
        return pa.RecordBatch.from_arrays(columns, names=self._wanted.names)

    def prepare(self) -> Sequence[JSON]:
        """Make the files durable, and return the one payload that names them; none if nothing was written."""
        with self._sink.place.writing():
            files = list(self._files.finish())
        if not files:
            return []
        metadata = self._table.metadata
        prepared = TaskFiles(
            v=1,
            table=str(metadata.table_uuid),
            spec=metadata.default_spec_id,
            epoch=self._context.epoch,
            checkpoint=self._context.checkpoint,
            rows=self._files.rows,
            bytes=sum(file.bytes for file in files),
            files=files,
        )
        return [prepared.to_json()]

    def abandon(self) -> None:
        """Remove the files; what stays goes with the sweep."""
        self._files.remove()
