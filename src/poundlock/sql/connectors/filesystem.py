"""The filesystem connector: folders of files of one format, with columns in the names of their folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from poundlock.connectors.files.buckets.assigners import BasePathBucketAssigner, ColumnBucketAssigner
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.files.source.source import FileSource
from poundlock.formats import ddl
from poundlock.formats.arrays import Numbers
from poundlock.formats.own.parquet_options import ParquetOptions
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.partition_commit import partition_commit_of, read_partition_options
from poundlock.sql.connectors.partition_rows import BUCKET, PartitionedProgram, replaced_buckets
from poundlock.sql.connectors.path_columns import NamedFiles, PathColumn
from poundlock.sql.connectors.table import DecodeProgram, TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.formats.format import FormatColumn, FormatContext
from poundlock.sql.formats.registry import WITHOUT_ENDS, columns_of_records, decoder_of, encoder_of
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn, TableDefinition
from poundlock.sql.types import STRING, SqlType
from poundlock.stream.nodes import RowProgram

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
            bucket=ColumnBucketAssigner(BUCKET) if parts else BasePathBucketAssigner(),
            compaction=compaction,
            overwrite=replaced_buckets(table, parts) if overwrite else None,
            partition_commit=commit,
            **given,
        )
        program = PartitionedProgram(
            encoder, tuple(parts), EvaluationContext(table.zone), table.name.name, () if bulk is None else columns
        )
        made = bulk_schema(columns, table.name.name) if bulk is not None else pa.schema([("value", pa.binary())])
        schema = made.append(pa.field(BUCKET, pa.string())) if parts else made
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
        OptionError: it is one that there is not, or that files do not take.
    """
    name = options.required("format")
    if name in WITHOUT_ENDS:
        raise OptionError(
            f"{options.table}: files do not take {name!r}, whose records do not say where they end",
            next="write 'format' = 'avro' or 'parquet'",
            kind="bad_option_value",
        )
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
