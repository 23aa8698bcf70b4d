"""The task's half: the rows of a data file, a row group at a time, without those that position deletes take out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.iceberg.catalog import known_table
from poundlock.connectors.iceberg.errors import changed_table
from poundlock.connectors.iceberg.files import FileValue, partition_kinds, to_data_file
from poundlock.connectors.iceberg.types import plain_schema
from poundlock.errors import SourceGoneError
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_records

if TYPE_CHECKING:
    from poundlock.connectors.iceberg.source.source import IcebergSource


class IcebergReader:
    """Reads the splits of one task."""

    def __init__(self, source: IcebergSource, context: ReaderContext) -> None:
        self._source, self._context = source, context

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split."""
        for batch in self._batches(split):
            chunk = Batch(batch)
            yield to_records(chunk) if self._context.want == "records" else chunk

    def _batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
        from pyiceberg.table import FileScanTask, _parse_row_filter

        source, payload = self._source, split.payload
        table = known_table(source.place, payload["known"])
        if str(table.metadata.table_uuid) != payload["known"]["table"]:
            raise changed_table(source.place.shown, table.metadata.table_uuid, payload["known"]["table"])
        kinds = {spec: partition_kinds(table.metadata, spec) for spec in table.specs()}
        file, *deletes = (msgspec.convert(each, FileValue) for each in (payload["file"], *payload["deletes"]))
        task = FileScanTask(
            to_data_file(file, kinds[file.spec]), {to_data_file(each, kinds[each.spec]) for each in deletes}
        )
        schema = table.schemas()[payload["schema"]]
        names = [field.name for field in schema.fields]
        chosen = source.columns if source.columns is not None else names
        needed = self._context.columns
        wanted = [name for name in chosen if needed is None or name in needed] or list(chosen)[:1]
        projected = schema.select(*wanted)
        plain = plain_schema(projected)
        order = [name for name in wanted if name in plain.names]
        where = AlwaysTrue() if source.where is None else _parse_row_filter(source.where)
        scan = ArrowScan(table.metadata, table.io, projected, where)
        try:
            with source.place.explained(f"reading {file.path}"):
                # ArrowScan.to_record_batches would hold a whole file in memory.
                positions = _read_all_delete_files(table.io, [task])
                for batch in scan._record_batches_from_scan_tasks_and_deletes([task], positions):
                    yield batch.cast(plain).select(order)
        except FileNotFoundError as error:
            raise self._gone(payload, file) from error
        except Exception as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise self._gone(payload, file) from error
            raise

    def _gone(self, payload: object, file: FileValue) -> SourceGoneError:
        return SourceGoneError(
            f"{file.path} of {self._source.place.shown} is gone, and the job has still to read it",
            next="begin with a new checkpoint folder; keep snapshots, and their files, for longer than the job may stand still",
        )
