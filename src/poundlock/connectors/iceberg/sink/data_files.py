"""Data files while they are written: one at a time for each partition, as large as the table says, with statistics.

Their names are unique to the attempt that writes them, and they lie in a folder of the job's own within the table's: nobody reads one
that no snapshot names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.connectors.iceberg.files import FileValue, packed_partition, packed_stats, partition_kinds
from poundlock.connectors.iceberg.sink.partitions import sort_order, sorted_rows, split
from poundlock.connectors.iceberg.types import arrow_schema, file_schema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, OutputFile, OutputStream
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.table import Table

_GROUP_BYTES = 32 << 20  # of rows in memory, before they are written as a row group
_ALL_BYTES = 128 << 20  # of all partitions together
_TARGET_BYTES = 512 << 20  # what Iceberg's documentation gives for write.target-file-size-bytes


class _Output:
    """A file that pyiceberg's writer opens, and whose length so far is known."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self.stream: OutputStream | Any = None

    def create(self, overwrite: bool = False) -> OutputStream:
        self.stream = self._file.create(overwrite=overwrite)
        return self.stream


@dataclass
class _Open:
    """The file of a partition that is being written, and its rows that are not written yet."""

    key: PartitionKey | None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0
    path: str = ""
    output: _Output | None = None
    writer: Any = None
    groups: int = 0


class DataFiles:
    """Writes rows of a table into data files.

    Args:
        table: its schema, spec, sort order and properties are taken as they are.
        folder: where in the table's data; names below it are `name` with a number.
        target_bytes: a file is closed when it is so large; None = as the table says.
    """

    def __init__(self, table: Table, folder: str, name: str, target_bytes: int | None = None) -> None:
        from pyiceberg.table import TableProperties
        from pyiceberg.table.locations import load_location_provider

        metadata = table.metadata
        self._io, self._name = table.io, name
        self._schema, self._spec = metadata.schema(), metadata.spec()
        self._file_schema = file_schema(self._schema)
        self._arrow = arrow_schema(self._file_schema, ids=True)
        self._properties = dict(metadata.properties)
        self._kinds = partition_kinds(metadata, metadata.default_spec_id)
        order = table.sort_order()
        self._order, self._order_id = sort_order(order, self._file_schema), order.order_id
        self._target = target_bytes or target_of(self._properties)
        own = {**self._properties, TableProperties.WRITE_DATA_PATH: folder}
        self._locations = load_location_provider(metadata.location, own)
        self._open: dict[Any, _Open] = {}
        self.paths: list[str] = []
        self._done: list[FileValue] = []
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows that have the table's columns, by name and type."""
        for key, rows in split(batch, self._spec, self._schema):
            at = None if key is None else tuple(key.partition)
            opened = self._open.setdefault(at, _Open(key))
            opened.waiting.append(rows)
            opened.bytes += rows.nbytes
            if opened.bytes >= min(_GROUP_BYTES, self._target):
                self._flush(opened)
        self.rows += batch.num_rows
        while sum(each.bytes for each in self._open.values()) > _ALL_BYTES:
            self._flush(max(self._open.values(), key=lambda each: each.bytes))

    def finish(self) -> Sequence[FileValue]:
        """Close all files, make them durable, and return them."""
        for opened in self._open.values():
            if opened.waiting:
                self._flush(opened)
            if opened.writer is not None:
                self._close(opened)
        self._open.clear()
        return self._done

    def remove(self) -> None:
        """Remove every file that was begun. Raises nothing."""
        for opened in self._open.values():
            with contextlib.suppress(Exception):
                if opened.output is not None:
                    opened.output.stream.close()
        delete_files(self._io, self.paths)

    def _flush(self, opened: _Open) -> None:
        rows = pa.Table.from_batches(opened.waiting)
        opened.waiting, opened.bytes = [], 0
        if self._order:
            rows = sorted_rows(rows.rename_columns(self._arrow.names), self._order)
        if opened.writer is None:
            self._begin(opened)
        opened.writer.write(pa.Table.from_arrays(rows.columns, schema=self._arrow))
        opened.groups += 1
        assert opened.output is not None
        if opened.output.stream.tell() >= self._target:
            self._close(opened)

    def _begin(self, opened: _Open) -> None:
        from pyiceberg.io.fileformat import FileFormatFactory
        from pyiceberg.manifest import FileFormat

        name = f"{self._name}-{len(self.paths):05d}.parquet"
        opened.path = self._locations.new_data_location(name, opened.key)
        self.paths.append(opened.path)
        opened.output = _Output(self._io.new_output(opened.path))
        output: Any = opened.output
        opened.writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(
            output, self._file_schema, self._properties
        )
        opened.groups = 0

    def _close(self, opened: _Open) -> None:
        statistics = opened.writer.close().to_serialized_dict()
        make_durable(opened.path)
        values = [] if opened.key is None else list(opened.key.partition)
        self._done.append(
            FileValue(
                path=opened.path,
                rows=statistics["record_count"],
                bytes=len(self._io.new_input(opened.path)),
                spec=self._spec.spec_id,
                partition=packed_partition(values, self._kinds if values else []),
                stats=packed_stats(statistics),
                sort=self._order_id if self._order and opened.groups == 1 else None,
            )
        )
        opened.writer = opened.output = None


def target_of(properties: Mapping[str, str]) -> int:
    """Return how large a table's properties say that its files are to be, in bytes."""
    from pyiceberg.table import TableProperties

    given = properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
    return int(given) if given else _TARGET_BYTES


def delete_files(io: FileIO, paths: Sequence[str]) -> None:
    """Remove files. What is gone is no error, and what cannot be removed stays for the sweep."""
    for path in paths:
        with contextlib.suppress(Exception):
            io.delete(path)


def make_durable(location: str) -> None:
    """Make a file of a local disk durable; stores do so when it is closed."""
    path = location.removeprefix("file://") if location.startswith("file:") else location
    if not os.path.isabs(path):
        return
    for each, flags in ((path, os.O_RDONLY), (os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)):
        handle = os.open(each, flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
