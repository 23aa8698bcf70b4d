"""The filesystem connector: folders of files of one format, with columns in the names of their folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.base import Reader, ReaderContext, ReplayPromise, Split
from poundlock.connectors.files.buckets.assigners import BasePathBucketAssigner, ExpressionBucketAssigner
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.files.source.source import FileSource
from poundlock.formats.arrays import Numbers, texts_of
from poundlock.formats.chunk import Batch, Chunk, origin_of
from poundlock.formats.convert import to_batch
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import DecodeProgram, TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.formats.format import FormatColumn, FormatContext
from poundlock.sql.formats.registry import decoder_of, encoder_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn
from poundlock.sql.types import STRING, SqlType
from poundlock.storage import Storage, open_storage

DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
_PARTITION, _BUCKET = "$partition", "$bucket"
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
"""What Flink writes as % and two digits in the name of a partition's folder."""
_METADATA: dict[str, SqlType] = {
    "file.path": STRING,
    "file.name": STRING,
    "file.size": SqlType("BIGINT"),
    "file.modification-time": SqlType("TIMESTAMP_LTZ", (3,)),
}


class FilesystemTable:
    """Reads and writes files."""

    def source(self, table: TableContext) -> TableSource:
        options, path = self._options(table)
        watched = options.span("source.monitor-interval")
        most = options.whole("source.max-files-per-checkpoint", 10_000)
        decoder, partitions = self._decoder(table, options)
        options.finish("filesystem")
        files = FileSource(path, max_files_per_checkpoint=most or 10_000)
        if watched is not None:
            files = FileSource(path, watch=True, discover_every=watched, max_files_per_checkpoint=most or 10_000)
        wanted = [f for f in table.fields if f.name not in partitions]
        metadata = {c.name: c.key for c in table.definition.columns if isinstance(c, ConnectorColumn)}
        carried = [(f.column, f.type, f.name, True) for f in table.fields if f.name in partitions]
        carried += [(f.column, f.type, metadata[f.name], False) for f in wanted if f.name in metadata]
        source: Any = files
        if carried:
            source = NamedFiles(files, tuple(NamedColumn(*each) for each in carried), table.zone.key)
        names = tuple(f.column for f in table.fields)
        kept = tuple((column, column) for column, *_ in carried)
        program = DecodeProgram(decoder, "value", names, kept, table.name.name)
        return TableSource(source, program, decoder.is_updating)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options, path = self._options(table)
        rolling = self._rolling(options)
        compaction = self._compaction(options)
        partitions = table.definition.partitioned_by
        written = [f for f in table.fields if f.name not in partitions]
        context = FormatContext(
            table.name.name, tuple(FormatColumn(f.name, f.column, f.type) for f in written), table.zone
        )
        encoder = encoder_of(options, context)
        options.finish("filesystem")
        if overwrite:
            raise OptionError(
                f"{table.name.name}: INSERT OVERWRITE is not there yet",
                next="write into an empty folder",
                kind="unsupported_query",
            )
        parts = [next(f for f in table.fields if f.name == name) for name in partitions]
        sink = FileSink(
            path,
            row="value",
            bucket=ExpressionBucketAssigner(f"`{_BUCKET}`") if parts else BasePathBucketAssigner(),
            rolling=rolling,
            compaction=compaction,
        )
        schema = [("value", pa.binary()), *([(_BUCKET, pa.string())] if parts else [])]
        program = PartitionedProgram(encoder, tuple(parts), EvaluationContext(table.zone), table.name.name)
        return TableSink(sink, program, pa.schema(schema), takes="retract" if encoder.takes_updates else "append")

    @staticmethod
    def _options(table: TableContext) -> tuple[TableOptions, str]:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        return options, options.required("path")

    @staticmethod
    def _decoder(table: TableContext, options: TableOptions) -> tuple[Any, tuple[str, ...]]:
        partitions = table.definition.partitioned_by
        metadata = {c.name: c for c in table.definition.columns if isinstance(c, ConnectorColumn)}
        for column in metadata.values():
            if column.key not in _METADATA:
                raise OptionError(
                    f"{table.name.name}.{column.name}: files have no metadata {column.key!r}",
                    next=f"use one of {', '.join(sorted(_METADATA))}",
                    kind="unknown_column",
                )
        data = [f for f in table.fields if f.name not in partitions and f.name not in metadata]
        columns = tuple(FormatColumn(f.name, f.column, f.type) for f in data)
        return decoder_of(options, FormatContext(table.name.name, columns, table.zone)), partitions

    @staticmethod
    def _compaction(options: TableOptions) -> FileCompaction | None:
        is_wanted, target = options.flag("auto-compaction"), options.bytes("compaction.file-size")
        return FileCompaction(min_size=target or 128 << 20) if is_wanted else None

    @staticmethod
    def _rolling(options: TableOptions) -> RollingPolicy:
        given: dict[str, Any] = {}
        size = options.bytes("sink.rolling-policy.file-size")
        if size is not None:
            given["size"] = size
        interval = options.span("sink.rolling-policy.rollover-interval")
        if interval is not None:
            given["interval"] = interval
        idle = options.span("sink.rolling-policy.inactivity-interval")
        if idle is not None:
            given["inactivity"] = idle
        options.span("sink.rolling-policy.check-interval")  # a checkpoint looks in any case
        return RollingPolicy(**given)


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedColumn:
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
    columns: tuple[NamedColumn, ...]
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
            rows = batch.batch
            file = str(origin_of(chunk).at(0)["file"])  # a chunk is of one file
            for column, value in zip(self.source.columns, self._values(file), strict=True):
                rows = rows.append_column(column.column, pa.repeat(value[0], rows.num_rows))
            yield Batch(rows, batch.origin)

    def _values(self, file: str) -> list[pa.Array]:
        """Return the value of each column for a file, one each."""
        if file not in self._known:
            self._known[file] = [self._value(file, column) for column in self.source.columns]
        return self._known[file]

    def _value(self, file: str, column: NamedColumn) -> pa.Array:
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


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionedProgram:
    """Records of rows, and the folder that each belongs into."""

    encoder: Any
    partitions: tuple[Field, ...]
    context: EvaluationContext
    table: str
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a record for each row."""
        columns, names = [self.encoder.encode(rows)], ["value"]
        if self.partitions:
            columns.append(self._folders(rows))
            names.append(_BUCKET)
        return pa.RecordBatch.from_arrays(columns, names), None

    def _folders(self, rows: pa.RecordBatch) -> pa.Array:
        parts = []
        for each in self.partitions:
            text = evaluate(cast_to(each.ref, STRING), rows, self.context)
            coded = text.dictionary_encode()
            named = texts_of([_folder(each.name, value) for value in coded.dictionary.to_pylist()])
            none = texts_of([f"{_escaped(each.name)}={DEFAULT_PARTITION}"])
            indices = coded.indices
            if indices.null_count:
                indices = pc.fill_null(indices, pa.array([len(named)], indices.type)[0])
                named = pa.concat_arrays([named, none])
            parts.append(named.take(indices))
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, texts_of(["/"])[0])

    def describe(self) -> str:
        """Return it in words."""
        return f"writes records of {self.table}"


def _folder(name: str, value: str) -> str:
    return f"{_escaped(name)}={_escaped(value) if value.strip() else DEFAULT_PARTITION}"


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
