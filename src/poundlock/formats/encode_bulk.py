"""Rows into files of the bulk formats, Parquet, ORC and Avro: written as a whole and never appended to.

Several of Parquet or of Avro are joined by record; what was joined carries a marker, so that it can be known again after a crash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from poundlock.errors import DefinitionError, pip_install
from poundlock.formats.encode import Passing, values
from poundlock.formats.own.custom import BulkWriterFactory
from poundlock.formats.own.parquet_options import ParquetOptions
from poundlock.storage.base import Storage

_MARKER = "poundlock.merge"


class BulkFile(Protocol):
    """One file being written. `held` is an estimate of the bytes that are not in the file yet."""

    held: int

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows of the file's schema."""

    def finish(self) -> None:
        """Write the rest and the footer; the handle stays open."""


class ParquetFile:
    """A Parquet file: rows are gathered into row groups of so much Arrow memory."""

    def __init__(
        self, handle: BinaryIO, schema: pa.Schema, compression: str, options: ParquetOptions | None = None
    ) -> None:
        self._schema = schema
        self._options = options = options or ParquetOptions()
        options.check_columns(schema.names)
        # Arrow must not close the handle: it is synced after the footer.
        file = pa.PythonFile(Passing(handle.write), mode="w")
        try:
            self._writer = pq.ParquetWriter(file, schema, compression=compression, **_layout(options, schema))
        except (TypeError, pa.ArrowInvalid, pa.ArrowException) as error:
            raise DefinitionError(
                f"Parquet files with {options} cannot be written: {error}",
                next=f"change the options; for Bloom filters {pip_install('--upgrade', 'pyarrow')}",
            ) from error
        self._rows = 0
        self._batches: list[pa.RecordBatch] = []
        self.held = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.held += batch.nbytes
        self._rows += batch.num_rows
        most = self._options.row_group_rows
        if self.held >= int(self._options.row_group_size) or (most is not None and self._rows >= most):
            self._flush()

    def mark(self, marker: str) -> None:
        """Note a marker in the footer."""
        self._writer.add_key_value_metadata({_MARKER: marker})

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            most = self._options.row_group_rows or table.num_rows
            for first in range(0, max(table.num_rows, 1), max(most, 1)):
                self._writer.write_table(self._sorted(table.slice(first, most)), row_group_size=max(most, 1))
        self._batches, self.held, self._rows = [], 0, 0

    def _sorted(self, group: pa.Table) -> pa.Table:
        order = self._options.order
        return group if not order else group.take(pc.sort_indices(group, sort_keys=order))


def _layout(options: ParquetOptions, schema: pa.Schema) -> dict[str, Any]:
    """Return what Arrow's writer is given; an older Arrow knows no Bloom filters, and has no argument for them."""
    given: dict[str, Any] = {
        "data_page_size": options.page_size,
        "use_dictionary": options.dictionary if isinstance(options.dictionary, bool) else list(options.dictionary),
        "dictionary_pagesize_limit": options.dictionary_page_size,
        "write_page_index": options.page_index,
        "compression_level": options.compression_level,
    }
    if options.order:
        given["sorting_columns"] = pq.SortingColumn.from_ordering(schema, options.order)
    if options.bloom_filters:
        given["bloom_filter_options"] = {
            name: {"ndv": each.distinct, "fpp": each.false_positives} for name, each in options.bloom_filters.items()
        }
    return given


class OrcFile:
    """An ORC file: Arrow's writer gathers rows into stripes."""

    def __init__(self, handle: BinaryIO, schema: pa.Schema, compression: str) -> None:
        import pyarrow.orc as orc

        self._schema = schema
        self._writer = orc.ORCWriter(pa.PythonFile(Passing(handle.write), mode="w"), compression=compression)
        self._is_begun = False
        self.held = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._is_begun = True
        try:
            self._writer.write(pa.Table.from_batches([batch], self._schema))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise DefinitionError(
                f"columns {self._schema.names} cannot be written as ORC: {error}",
                next="cast the column before the sink",
            ) from error

    def finish(self) -> None:
        if not self._is_begun:  # the columns are known by the first rows alone
            self.write(pa.RecordBatch.from_pylist([], self._schema))
        self._writer.close()


class AvroFile:
    """An Avro object container file; needs fastavro."""

    def __init__(self, handle: BinaryIO, schema: pa.Schema, codec: str) -> None:
        from fastavro.write import Writer

        self._writer = Writer(handle, avro_schema(schema), codec)
        self._names = schema.names
        self.held = 0

    def write(self, batch: pa.RecordBatch) -> None:
        for row in zip(*map(values, batch.columns), strict=True):
            self._writer.write(dict(zip(self._names, row, strict=True)))

    def finish(self) -> None:
        self._writer.flush()


class CustomFile:
    """A file that a writer of the user's writes."""

    def __init__(self, handle: BinaryIO, schema: pa.Schema, factory: BulkWriterFactory) -> None:
        self._writer = factory.create(handle, schema)
        self.held = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)

    def finish(self) -> None:
        self._writer.finish()


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """How files of the bulk formats are written."""

    compression: str | None = None  # None = the format's usual one
    parquet: ParquetOptions | None = None  # None = as is usual
    factory: BulkWriterFactory | None = None  # of a format of the user's


def open_bulk(kind: str, handle: BinaryIO, schema: pa.Schema, options: BulkOptions) -> BulkFile:
    """Return a file to write rows to: kind "parquet", "orc", "avro", or one of the user's."""
    if options.factory is not None:
        return CustomFile(handle, schema, options.factory)
    if kind == "parquet":
        return ParquetFile(handle, schema, options.compression or "snappy", options.parquet)
    if kind == "orc":
        return OrcFile(handle, schema, options.compression or "zlib")
    return AvroFile(handle, schema, options.compression or "null")


def schema_digest(schema: pa.Schema) -> str:
    """Return 8 hex digits that stand for columns and types; files of unlike digests are never joined."""
    text = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class BulkMerger:
    """Joins Parquet and Avro files by record."""

    options: BulkOptions = BulkOptions()  # of the joined file

    def merge(self, storage: Storage, kind: str, sources: Sequence[str], target: str, marker: str) -> None:
        """Write the rows of the sources, in order, into one new durable file that carries the marker."""
        join = _join_parquet if kind.startswith("parquet") else _join_avro
        with storage.write(target) as handle:
            join(storage, sources, handle, self.options, marker)
            storage.sync(handle)

    def recognises(self, storage: Storage, kind: str, path: str, marker: str) -> bool:
        """Return whether a file carries the marker."""
        try:
            with storage.open(path) as handle:
                if kind.startswith("parquet"):
                    metadata = pq.read_metadata(pa.PythonFile(handle, mode="r")).metadata or {}
                    return metadata.get(_MARKER.encode()) == marker.encode()
                import fastavro

                return fastavro.reader(handle).metadata.get(_MARKER) == marker
        except (pa.ArrowInvalid, ValueError, EOFError):
            return False  # not a file of this format: not ours


def count_rows(kind: str, handle: BinaryIO) -> int:
    """Return how many rows an open Parquet or Avro file has."""
    if kind.startswith("parquet"):
        return int(pq.ParquetFile(pa.PythonFile(handle, mode="r")).metadata.num_rows)
    import fastavro

    return sum(block.num_records for block in fastavro.block_reader(handle))


def _join_parquet(
    storage: Storage, sources: Sequence[str], handle: BinaryIO, options: BulkOptions, marker: str
) -> None:
    out: ParquetFile | None = None
    for path in sources:
        with storage.open(path) as opened:
            file = pq.ParquetFile(pa.PythonFile(opened, mode="r"))
            out = out or ParquetFile(handle, file.schema_arrow, options.compression or "snappy", options.parquet)
            for batch in file.iter_batches():
                out.write(batch)
    if out is not None:
        out.mark(marker)
        out.finish()


def _join_avro(storage: Storage, sources: Sequence[str], handle: BinaryIO, options: BulkOptions, marker: str) -> None:
    import fastavro
    from fastavro.write import Writer

    out: Any = None
    for path in sources:
        with storage.open(path) as raw:
            reader = fastavro.reader(raw)
            if out is None:
                out = Writer(handle, reader.writer_schema, options.compression or "null", metadata={_MARKER: marker})
            for record in reader:
                out.write(record)
    if out is not None:
        out.flush()


def avro_schema(schema: pa.Schema, name: str = "Row") -> dict[str, Any]:
    """Return the Avro schema of Arrow columns; every field may be null.

    Raises DefinitionError where a type has no counterpart, or a name is not an Avro name.
    """
    return {"type": "record", "name": name, "fields": [_avro_field(f, name) for f in schema]}


def _avro_field(field: pa.Field, path: str) -> dict[str, Any]:
    if not field.name.isidentifier() or not field.name.isascii():
        raise DefinitionError(
            f"column {field.name!r} is not an Avro name", next="rename it: ASCII letters, digits and _"
        )
    return {"name": field.name, "type": ["null", avro_type(field.type, f"{path}_{field.name}")], "default": None}


def avro_type(kind: pa.DataType, path: str) -> Any:
    t = pa.types
    plain = [
        (t.is_boolean, "boolean"), (t.is_int8, "int"), (t.is_int16, "int"), (t.is_int32, "int"), (t.is_integer, "long"),
        (t.is_float32, "float"), (t.is_floating, "double"), (t.is_string, "string"), (t.is_large_string, "string"),
        (t.is_binary, "bytes"), (t.is_large_binary, "bytes"),
    ]  # fmt: skip
    for test, name in plain:
        if test(kind) and not t.is_uint64(kind):
            return name
    if t.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if t.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if t.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if t.is_map(kind) and t.is_string(kind.key_type):
        return {"type": "map", "values": ["null", avro_type(kind.item_type, f"{path}_v")]}
    if t.is_list(kind) or t.is_large_list(kind):
        return {"type": "array", "items": ["null", avro_type(kind.value_type, f"{path}_e")]}
    if t.is_struct(kind):
        return {"type": "record", "name": path, "fields": [_avro_field(f, path) for f in kind]}
    raise DefinitionError(f"type {kind} of {path} has no counterpart in Avro", next="cast the column before the sink")
