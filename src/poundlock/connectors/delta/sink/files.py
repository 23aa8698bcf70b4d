"""Parquet files of one task attempt: one open file a partition, a new one when it is large enough, with the statistics of its rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import pyarrow as pa

from poundlock.connectors.delta.sink.statistics import FileStatistics
from poundlock.connectors.delta.sink.values import WrittenFile
from poundlock.formats.encode import Passing
from poundlock.formats.encode_bulk import ParquetFile
from poundlock.formats.own.parquet_options import ParquetOptions
from poundlock.storage import Storage
from poundlock.storage.object_files import ObjectWriter

_ROW_GROUP = 16 << 20  # bytes of Arrow's memory


@dataclass
class _OpenFile:
    path: str
    values: Mapping[str, str | None]
    handle: BinaryIO
    parquet: ParquetFile
    statistics: FileStatistics
    written: list[int]

    @property
    def bytes(self) -> int:
        return self.written[0]


@dataclass
class DeltaFiles:
    """The files of one attempt.

    Args:
        storage: the table's folder.
        compression: the codec of Parquet.
        target_bytes: a file that has so many is finished, and the next row begins another.
        most_open: so many files are open at once; the one that was written to longest ago is finished first.
        name: path of a new file of a partition, by its values and the file's number.
        modified_ms: what files say of when they were written.
    """

    storage: Storage
    compression: str
    target_bytes: int
    most_open: int
    name: Callable[[Mapping[str, str | None], int], str]
    modified_ms: int
    _open: OrderedDict[tuple[str | None, ...], _OpenFile] = field(default_factory=OrderedDict)
    _done: list[WrittenFile] = field(default_factory=list)
    _count: int = 0

    def write(self, values: Mapping[str, str | None], rows: pa.RecordBatch) -> None:
        """Write rows of one partition."""
        key = tuple(values.values())
        file = self._open.get(key)
        if file is None:
            while len(self._open) >= self.most_open:
                self._finish(next(iter(self._open)))
            file = self._open[key] = self._begin(values, rows.schema)
        self._open.move_to_end(key)
        file.parquet.write(rows)
        file.statistics.add(rows)
        if file.bytes >= self.target_bytes:
            self._finish(key)

    def finish(self) -> tuple[WrittenFile, ...]:
        """Make all of them durable and return them."""
        for key in list(self._open):
            self._finish(key)
        return tuple(self._done)

    def abandon(self) -> None:
        """Remove them, as far as that is possible."""
        for file in self._open.values():
            with suppress(Exception):
                file.handle.discard() if isinstance(file.handle, ObjectWriter) else file.handle.close()
        for path in [*(file.path for file in self._open.values()), *(done.path for done in self._done)]:
            with suppress(Exception):
                self.storage.delete(path)
        self._open.clear()
        self._done.clear()

    def _begin(self, values: Mapping[str, str | None], schema: pa.Schema) -> _OpenFile:
        path = self.name(values, self._count)
        self._count += 1
        handle = self.storage.write(path)
        written = [0]

        def write(data: bytes) -> None:
            handle.write(data)
            written[0] += len(data)

        layout = ParquetOptions(row_group_size=min(_ROW_GROUP, self.target_bytes))
        parquet = ParquetFile(cast(BinaryIO, Passing(write)), schema, self.compression, layout)
        return _OpenFile(path, values, handle, parquet, FileStatistics(schema), written)

    def _finish(self, key: tuple[str | None, ...]) -> None:
        file = self._open[key]
        file.parquet.finish()
        self.storage.sync(file.handle)
        file.handle.close()
        del self._open[key]  # now, so that one that could not be finished is still abandoned
        statistics = file.statistics
        self._done.append(
            WrittenFile(
                file.path, file.bytes, statistics.rows, dict(file.values), statistics.to_json(), self.modified_ms
            )
        )
