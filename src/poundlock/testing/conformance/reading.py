"""What readers of our own sinks see, for `read` of `sink_conformance`: the rows of files, on whatever store they are."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from poundlock.connectors.files.sink.sink import FileSink
from poundlock.storage import open_storage


def visible_rows(sink: FileSink) -> list[dict[str, Any]]:
    """Return the rows of a FileSink's visible files, as they were given to it.

    A CSV sink without a header needs `columns`; types are those that its text looks like.
    """
    storage = open_storage(sink.path)
    paths = [entry.path for entry in storage.list() if not any(part.startswith(".") for part in entry.path.split("/"))]
    return [row for path in paths for row in _rows(sink, storage.read(path))]


def _rows(sink: FileSink, data: bytes) -> list[dict[str, Any]]:
    kind = sink.kind_of_rows
    if kind == "parquet":
        table: pa.Table = pyarrow.parquet.read_table(pa.BufferReader(data))
        return list(table.to_pylist())
    if kind == "orc":
        import pyarrow.orc as orc

        return list(orc.ORCFile(pa.BufferReader(data)).read().to_pylist())
    if kind == "avro":
        import fastavro

        records: Any = fastavro.reader(io.BytesIO(data))
        return [dict(row) for row in records]
    if sink.compression == "gzip":
        data = gzip.decompress(data)
    elif sink.compression is not None:
        data = pa.CompressedInputStream(pa.BufferReader(data), sink.compression).read()
    if kind == "raw":
        return [{str(sink.row): line} for line in data.split(b"\n")[:-1]]
    if kind == "json":
        return [json.loads(line) for line in data.split(b"\n")[:-1]]
    names = None if sink.header else list(sink.columns or ())
    options = pyarrow.csv.ReadOptions(column_names=names)
    return list(pyarrow.csv.read_csv(pa.BufferReader(data), read_options=options).to_pylist())
