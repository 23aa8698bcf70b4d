"""The filesystem connector: folders of files of one format, with columns in the names of their folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.base import Reader, ReaderContext, ReplayPromise, Split
from poundlock.connectors.files.buckets.assigners import BasePathBucketAssigner, ColumnBucketAssigner
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.files.source.lines import LineOrigin
from poundlock.connectors.files.source.source import FileSource
from poundlock.formats import ddl
from poundlock.formats.arrays import Numbers, texts_of
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, SubsetOrigin, origin_of
from poundlock.formats.convert import to_batch
from poundlock.formats.own.parquet_options import ParquetOptions
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.partition_commit import partition_commit_of, read_partition_options
from poundlock.sql.connectors.table import DecodeProgram, TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.formats.format import FormatColumn, FormatContext
from poundlock.sql.formats.registry import columns_of_records, decoder_of, encoder_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn, TableDefinition
from poundlock.sql.types import STRING, SqlType
from poundlock.storage import Storage, open_storage
from poundlock.stream.nodes import RowProgram

DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
_BUCKET = "$bucket"
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

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        return columns_of_records(definition.options, otherwise="columns")

    def source(self, table: TableContext) -> TableSource:
        options, path = self._options(table)
        watched, most = self._source_options(options)
        partitions = table.definition.partitioned_by
        metadata = self._metadata(table)
        data = [f for f in table.fields if f.name not in partitions and f.name not in metadata]
        carried = [PathColumn(f.column, f.type, f.name, True) for f in table.fields if f.name in partitions]
        carried += [
            PathColumn(f.column, f.type, metadata[f.name], False)
            for f in table.fields
            if f.name in metadata and f.name not in partitions
        ]
        bulk = bulk_format(options)
        names = tuple(f.column for f in table.fields)
        kept = tuple((each.column, each.column) for each in carried)
        columns = tuple(FormatColumn(f.name, f.column, f.type) for f in data)
        is_updating = False
        program: RowProgram
        given: dict[str, Any] = {}
        if bulk is None:
            decoder = decoder_of(options, FormatContext(table.name.name, self._recorded(table), table.zone))
            is_updating = decoder.is_updating
            program = DecodeProgram(decoder, "value", names, kept, table.name.name, decoder.leaves_out)
        else:
            given = {"format": bulk, "schema": ddl.render(bulk_schema(columns, table.name.name))}
            program = ColumnsProgram(columns, names, table.name.name)
        self._rolling(options)
        self._compaction(options)
        read_partition_options(options)
        options.finish("filesystem")
        discovery: dict[str, Any] = {} if watched is None else {"discover_every": watched}
        files = FileSource(
            path,
            watch=watched is not None,
            max_files_per_checkpoint=most,
            **discovery,
            **given,
        )
        source: Any = NamedFiles(files, tuple(carried), table.zone.key) if carried else files
        return TableSource(source, program, is_updating)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options, path = self._options(table)
        rolling = self._rolling(options)
        compaction = self._compaction(options)
        partitions = table.definition.partitioned_by
        commit = partition_commit_of(options, partitions, is_batch=table.is_batch)
        written = [f for f in table.fields if f.name not in partitions]
        columns = tuple(FormatColumn(f.name, f.column, f.type) for f in written)
        bulk = bulk_format(options)
        given: dict[str, Any] = {"row": "value", "rolling": rolling}
        encoder: Any = None
        if bulk is None:
            encoder = encoder_of(options, FormatContext(table.name.name, columns, table.zone))
        else:
            given = _bulk_options(options, bulk, columns, rolling)
        self._source_options(options)
        options.finish("filesystem")
        parts = [next(f for f in table.fields if f.name == name) for name in partitions]
        sink = FileSink(
            path,
            bucket=ColumnBucketAssigner(_BUCKET) if parts else BasePathBucketAssigner(),
            compaction=compaction,
            overwrite=_replaced_buckets(table, parts) if overwrite else None,
            partition_commit=commit,
            **given,
        )
        program = PartitionedProgram(
            encoder, tuple(parts), EvaluationContext(table.zone), table.name.name, () if bulk is None else columns
        )
        made = bulk_schema(columns, table.name.name) if bulk is not None else pa.schema([("value", pa.binary())])
        schema = made.append(pa.field(_BUCKET, pa.string())) if parts else made
        takes_updates = encoder is not None and encoder.takes_updates
        return TableSink(sink, program, schema, takes="retract" if takes_updates else "append")

    @staticmethod
    def _options(table: TableContext) -> tuple[TableOptions, str]:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        return options, options.required("path")

    @staticmethod
    def _recorded(table: TableContext) -> tuple[FormatColumn, ...]:
        """Return the columns of records, those too that nobody reads: some formats tell columns by their places."""
        read = {f.name: f for f in table.fields}
        return tuple(
            FormatColumn(c.name, read[c.name].column, read[c.name].type)
            if c.name in read
            else FormatColumn(c.name, f"$unread {c.name}", c.type)
            for c in table.definition.columns
            if isinstance(c, PhysicalColumn) and c.name not in table.definition.partitioned_by
        )

    @staticmethod
    def _metadata(table: TableContext) -> dict[str, str]:
        """Return what the columns of metadata are, by their names."""
        metadata = {c.name: c.key for c in table.definition.columns if isinstance(c, ConnectorColumn)}
        for name, key in metadata.items():
            if key not in _METADATA:
                raise OptionError(
                    f"{table.name.name}.{name}: files have no metadata {key!r}",
                    next=f"use one of {', '.join(sorted(_METADATA))}",
                    kind="unknown_column",
                )
        return metadata

    @staticmethod
    def _source_options(options: TableOptions) -> tuple[str | None, int]:
        """Return how often there are looks for new files, None = one, and how many are read in a checkpoint at most."""
        return options.span("source.monitor-interval"), options.read(
            "source.max-files-per-checkpoint", _files, 10_000, "100"
        )

    @staticmethod
    def _compaction(options: TableOptions) -> FileCompaction | None:
        """Return how the files of a checkpoint are merged: up to a size each, so that none waits for the next one."""
        size = options.bytes("compaction.file-size") or options.bytes("sink.rolling-policy.file-size")
        if not options.flag("auto-compaction"):
            return None
        return FileCompaction(every_checkpoints=1, min_size=size or "128 MB")

    @staticmethod
    def _rolling(options: TableOptions) -> RollingPolicy:
        given: dict[str, Any] = {}
        size = options.bytes("sink.rolling-policy.file-size")
        if size is not None:
            given["size"] = size
        interval = options.span("sink.rolling-policy.rollover-interval")
        if interval is not None:
            given["every"] = interval
        idle = options.span("sink.rolling-policy.inactivity-interval")
        if idle is not None:
            given["inactivity"] = idle
        options.span("sink.rolling-policy.check-interval")  # a checkpoint looks in any case
        return RollingPolicy(**given)


def _files(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


# --- files of columns ------------------------------------------------------------------------------------------------

_BULK: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "parquet": {
        "parquet.compression": {each: each for each in ("snappy", "gzip", "zstd", "lz4", "brotli")}
        | {"uncompressed": "none", "none": "none"},
        "parquet.utc-timezone": {"true": "true"},  # times in files are in UTC
    },
    "orc": {"orc.compress": {"zlib": "zlib", "none": "none", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}},
    "avro": {"avro.codec": {"null": "none", "deflate": "deflate"}},
}
"""Formats of whole files, and their options: for each, what is written in a script and what it is called here."""


def bulk_format(options: TableOptions) -> str | None:
    """Return the format where it is one of whole files, whose options are read here; None where files are of records.

    Raises:
        OptionError: it is one that there is not.
    """
    name = options.required("format")
    for option, words in _BULK.get(name, {}).items():
        options.one_of(option, tuple(words), next(iter(words)))
    if name == "parquet":
        _parquet_options(options)
    return name if name in _BULK else None


def _parquet_options(options: TableOptions) -> ParquetOptions | None:
    """Return how Parquet files are laid out, by the names that Parquet's writer has for it; None where nothing says."""
    given: dict[str, Any] = {
        "row_group_size": options.bytes("parquet.block.size"),
        "page_size": options.bytes("parquet.page.size"),
        "dictionary_page_size": options.bytes("parquet.dictionary.page.size"),
    }
    if options.one_of("parquet.enable.dictionary", ("true", "false"), "true") == "false":
        given["dictionary"] = False
    set_here = {name: value for name, value in given.items() if value is not None}
    return ParquetOptions(**set_here) if set_here else None


def bulk_schema(columns: Sequence[FormatColumn], table: str) -> pa.Schema:
    """Return the columns of files, under the names that they have there.

    Raises:
        OptionError: there is none, or one of a type that files have not.
    """
    for each in columns:
        if "TIME(" in str(each.type) or (each.type.root in ("TIMESTAMP", "TIMESTAMP_LTZ") and each.type.sizes[0] > 6):
            raise OptionError(
                f"{table}.{each.name}: there is no {each.type} in files of columns",
                next="declare TIMESTAMP(6), or a STRING",
                kind="type_mismatch",
            )
    if not columns:
        raise OptionError(f"{table}: no column is left for the files", next="declare a column that is no partition")
    return pa.schema([pa.field(each.name, each.type.arrow) for each in columns])


def _bulk_options(
    options: TableOptions, format: str, columns: Sequence[FormatColumn], rolling: RollingPolicy
) -> dict[str, Any]:
    """Return how files of columns are written: each is finished at a checkpoint, however long it was open until then."""
    option = next(iter(_BULK[format]))
    words = _BULK[format][option]
    codec = words[options.one_of(option, tuple(words), next(iter(words)))]
    names = tuple(each.name for each in columns)
    return {
        "format": format,
        "columns": names,
        "compression": codec,
        "parquet": _parquet_options(options) if format == "parquet" else None,
        "rolling": RollingPolicy(on_checkpoint=True, size=rolling.size),
    }


@dataclass(frozen=True)
class ColumnsProgram:
    """The columns of files under their names in batches.

    Args:
        names: of what comes out, in their order; those that are no columns of the files are there under their names.
    """

    columns: tuple[FormatColumn, ...]
    names: tuple[str, ...]
    table: str
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the columns."""
        of_files = {each.column: each for each in self.columns}
        made = []
        for name in self.names:
            each = of_files.get(name)
            column = rows.column(name if each is None else each.name)
            made.append(column if each is None or column.type == each.type.arrow else column.cast(each.type.arrow))
        return (pa.RecordBatch.from_arrays(made, list(self.names)) if made else rows.select([])), None

    def describe(self) -> str:
        """Return it in words."""
        return f"names the columns of {self.table}"


# --- reading ---------------------------------------------------------------------------------------------------------


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


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionedProgram:
    """Records of rows, or columns of files, and the folder that each row belongs into.

    Args:
        encoder: of records; None where files have columns.
        columns: of files, under the names that they have there.
    """

    encoder: Any
    partitions: tuple[Field, ...]
    context: EvaluationContext
    table: str
    columns: tuple[FormatColumn, ...] = ()
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a record for each row, or its columns."""
        if self.encoder is None:
            columns, names = [rows.column(each.column) for each in self.columns], [each.name for each in self.columns]
        else:
            columns, names = [self.encoder.encode(rows)], ["value"]
        if self.partitions:
            columns.append(self.folders(rows))
            names.append(_BUCKET)
        return pa.RecordBatch.from_arrays(columns, names), None

    def folders(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the folder of the partition that each row is of."""
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


def _replaced_buckets(table: TableContext, partitions: Sequence[Field]) -> list[str]:
    """Return the folders that INSERT OVERWRITE empties in any case: the whole table, or the partition that it names whole."""
    static = dict(table.static)
    if not all(each.name in static for each in partitions):
        return []
    program = PartitionedProgram(None, tuple(partitions), EvaluationContext(table.zone), table.name.name)
    columns = [
        evaluate(
            cast_to(static[each.name], each.type), pa.RecordBatch.from_arrays([pa.nulls(1)], ["one"]), program.context
        )
        for each in partitions
    ]
    if not partitions:
        return [""]
    return [str(program.folders(pa.RecordBatch.from_arrays(columns, [each.column for each in partitions]))[0].as_py())]


def _folder(name: str, value: str) -> str:
    return f"{_escaped(name)}={_escaped(value) if value.strip() else DEFAULT_PARTITION}"


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
