"""The columns of a file that says them itself: Parquet, Avro, and CSV with a header (all text).

What is inferred can always be written as DDL, so that a plan and its tasks agree on it.
"""

from __future__ import annotations

import pyarrow as pa

from poundlock.connectors.files.source.reader import first_line, header_names
from poundlock.errors import DefinitionError
from poundlock.formats.decode_avro import arrow_schema, load_fastavro
from poundlock.storage import Storage

_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.large_string(): pa.string(), pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32(),
}  # fmt: skip


def infer_schema(
    storage: Storage, path: str, format: str, *, compression: str, delimiter: str, quote: str
) -> pa.Schema:
    """Return the columns of one file. Raises DefinitionError where it does not say them, or is not of this format."""
    import pyarrow.parquet as pq

    try:
        if format == "parquet":
            with storage.open(path) as handle, pq.ParquetFile(handle) as file:
                return pa.schema([plain_type(f) for f in file.schema_arrow])
        if format == "orc":
            import pyarrow.orc as orc

            with storage.open(path) as handle:
                return pa.schema([plain_type(f) for f in orc.ORCFile(handle).schema])
        if format == "avro":
            with storage.open(path) as handle:
                return arrow_schema(load_fastavro().reader(handle).writer_schema)
        first = first_line(storage, path, compression) or b""
        return pa.schema([(name, pa.string()) for name in header_names(first, delimiter=delimiter, quote=quote)])
    except DefinitionError:
        raise
    except (pa.ArrowInvalid, ValueError, EOFError, OSError) as error:
        raise DefinitionError(
            f"{storage.root}/{path} cannot be read as {format}: {error}", next='give schema="…", or another format'
        ) from None


def plain_type(field: pa.Field) -> pa.Field:
    """Return a column with a type that DDL can say and that holds every value of its own."""
    return field.with_type(_plain(field.type))


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([plain_type(f) for f in kind])
    return kind
