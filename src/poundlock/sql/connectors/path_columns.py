"""Columns of files that stand in no record: those of partitions, in the names of folders, and what is known of each file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from poundlock.connectors.base import Reader, ReaderContext, ReplayPromise, Split
from poundlock.connectors.files.source.lines import LineOrigin
from poundlock.connectors.files.source.source import FileSource
from poundlock.formats.arrays import texts_of
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, SubsetOrigin, origin_of
from poundlock.formats.convert import to_batch
from poundlock.sql.connectors.partition_rows import DEFAULT_PARTITION
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.types import STRING, SqlType
from poundlock.storage import Storage, open_storage


@dataclass(frozen=True, slots=True)
class PathColumn:
    """A column that a file's path, or what is known of it, has.

    Args:
        key: the name of the folder's part before =, or of the metadata.
    """

    column: str
    type: SqlType
    key: str
    is_partition: bool


@dataclass(frozen=True)
class NamedFiles:
    """Files, and beside each record columns of where it stands."""

    files: FileSource
    columns: tuple[PathColumn, ...]
    zone: str

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when all files are read."""
        return self.files.bounded

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading gives."""
        return self.files.replay

    @property
    def place(self) -> str:
        """What it reads, for explain."""
        return self.files.place

    @property
    def known_columns(self) -> pa.Schema:
        """The columns of the rows."""
        return self.schema()

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        named = [pa.field(each.column, each.type.arrow) for each in self.columns]
        return pa.schema([*self.files.schema(), *named])

    def preflight(self) -> None:
        """Raise DefinitionError if there is nothing that could be read."""
        self.files.preflight()

    def enumerator(self, workspace: Storage) -> Any:
        """Return the driver's half."""
        return self.files.enumerator(workspace)

    def reader(self, context: ReaderContext) -> Reader:
        """Return the task's half."""
        return _NamedReader(self.files.reader(context), self)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        return self.files.describe(position)


@dataclass
class _NamedReader:
    reader: Any
    source: NamedFiles
    _known: dict[str, list[pa.Array]] = field(default_factory=dict)

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows with their columns."""
        for chunk in self.reader.read(split):
            batch = to_batch(chunk)
            origin = origin_of(chunk)
            of = origin.of if isinstance(origin, SubsetOrigin) else origin
            assert isinstance(of, FileOrigin | LineOrigin)
            rows = batch.batch
            for column, value in zip(self.source.columns, self._values(of.file), strict=True):
                rows = rows.append_column(column.column, pa.repeat(value[0], rows.num_rows))
            yield Batch(rows, batch.origin)

    def _values(self, file: str) -> list[pa.Array]:
        """Return the value of each column for a file, one each."""
        if file not in self._known:
            self._known[file] = [self._value(file, column) for column in self.source.columns]
        return self._known[file]

    def _value(self, file: str, column: PathColumn) -> pa.Array:
        from zoneinfo import ZoneInfo

        text = _partition(file, column.key) if column.is_partition else _metadata(file, column.key)
        one = pa.RecordBatch.from_arrays([texts_of([text]) if text is not None else pa.nulls(1, pa.string())], ["text"])
        return evaluate(
            cast_to(ColumnRef("text", STRING), column.type), one, EvaluationContext(ZoneInfo(self.source.zone))
        )


def _partition(file: str, key: str) -> str | None:
    for part in file.split("/")[:-1]:
        name, sign, value = part.partition("=")
        if sign and unquote(name) == key:
            return None if value == DEFAULT_PARTITION else unquote(value)
    return None


def _metadata(file: str, key: str) -> str | None:
    folder, _, name = file.rpartition("/")
    if key == "file.path":
        return file
    if key == "file.name":
        return name
    entry = open_storage(folder).stat(name)
    if entry is None:
        return None
    if key == "file.size":
        return str(entry.bytes)
    from datetime import UTC, datetime

    return datetime.fromtimestamp(entry.modified_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
