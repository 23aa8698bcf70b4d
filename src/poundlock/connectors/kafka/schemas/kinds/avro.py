"""Values of Avro by schemas of a registry: read by fastavro from the schema that wrote them to the one of the job, and written."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.connectors.kafka.schemas.codec import Incompatible, SchemaReader, head_of
from poundlock.connectors.kafka.schemas.encoder import EncodedValues, SchemaWriter
from poundlock.connectors.kafka.schemas.framing import SIZE
from poundlock.connectors.kafka.schemas.registered import RegisteredSchema
from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.avro.defaults import with_read_defaults
from poundlock.formats.avro.schemas import Schema, is_record, parsed_schema, reader_schema
from poundlock.formats.avro.unions import RECORD_NAMES, to_columns, to_values
from poundlock.formats.chunk import Records
from poundlock.formats.convert import misfits, to_batch
from poundlock.formats.decode_avro import load_fastavro
from poundlock.formats.encode import values


class AvroReader(SchemaReader):
    """Reads what one schema of Avro wrote.

    Args:
        reader: the schema to read by; None: that which the columns say.
    """

    def __init__(self, written: RegisteredSchema, columns: pa.Schema, reader: Schema | None) -> None:
        try:
            self._writer = parsed_schema(written.text, [each.text for each in written.references])
        except DefinitionError as error:
            raise Incompatible(error.what) from None
        self._columns = columns
        self._reader = with_read_defaults(reader_schema(columns, self._writer) if reader is None else reader)
        if is_record(self._reader) is not is_record(self._writer):
            raise Incompatible("one of them is of a record, and the other one of a single value")
        self._single = None if is_record(self._reader) else columns.names[0]
        self._change = to_columns(self._reader)

    def read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        fastavro = load_fastavro()
        read, writer, reader, change = fastavro.schemaless_reader, self._writer, self._reader, self._change
        mismatch = fastavro.read.SchemaResolutionError
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for place, value in enumerate(values):
            stream = io.BytesIO(value)
            stream.seek(SIZE)
            try:
                row = read(stream, writer, reader, **RECORD_NAMES)
                left = len(value) - stream.tell()
                if left:
                    raise ValueError(f"{left} bytes are left behind it")
                rows.append(row if change is None or row is None else change(row))
            except mismatch as error:
                raise Incompatible(head_of(error)) from None
            except Exception as error:  # fastavro raises what the bytes lead it to, such as IndexError
                bad[place] = f"not a value of its schema: {head_of(error)}"
        if self._single is not None:
            rows = [{self._single: row} for row in rows]
        return fitting(rows, self._columns, len(values), bad)


def fitting(
    rows: list[Any], columns: pa.Schema, count: int, bad: dict[int, str]
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Return decoded values as columns, and why others are none.

    Args:
        rows: those that could be read, in order.
        count: how many values there are.
        bad: why the others could not be read, by their place.
    """
    try:
        return to_batch(Records(rows), columns).batch, bad
    except TerminalError:
        failed = misfits(rows, columns)
    places = np.setdiff1d(np.arange(count), list(bad))
    kept = [row for place, row in enumerate(rows) if place not in failed]
    return to_batch(Records(kept), columns).batch, {**bad, **{int(places[row]): why for row, why in failed.items()}}


class AvroWriter(SchemaWriter):
    """Writes values of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._change = to_values(schema)
        self._is_checked = False

    def encode(self, rows: pa.RecordBatch, head: bytes) -> EncodedValues:
        write, schema, change = load_fastavro().schemaless_writer, self._schema, self._change
        self._check(rows.schema)
        columns = [values(_with_zone(column)) for column in rows.columns]
        names = rows.schema.names
        is_single = not is_record(schema)
        stream = io.BytesIO()
        ends = np.zeros(rows.num_rows + 1, np.int64)
        bad: dict[int, str] = {}
        for place, row in enumerate(zip(*columns, strict=True)):
            begin = stream.tell()
            value: Any = row[0] if is_single else dict(zip(names, row, strict=True))
            stream.write(head)
            try:
                write(stream, schema, value if change is None or value is None else change(value))
            except Exception as error:  # fastavro raises what the value leads it to
                bad[place] = f"cannot be written as Avro: {head_of(error)}"
                stream.seek(begin)
            ends[place + 1] = stream.tell()
        stream.truncate()
        return EncodedValues(stream.getvalue(), ends, bad)

    def _check(self, columns: pa.Schema) -> None:
        """Raise DefinitionError where a column is none of the schema, which fastavro would leave out."""
        if self._is_checked:
            return
        if is_record(self._schema):
            fields = {each["name"]: each for each in self._schema["fields"]}
            strange = [name for name in columns.names if name not in fields]
            missing = [name for name, each in fields.items() if name not in columns.names and "default" not in each]
            if strange or missing:
                what = (
                    f"no field for the column {strange[0]!r}" if strange else f"a field {missing[0]!r} without a column"
                )
                raise DefinitionError(
                    f"the Avro schema has {what}", next="select what the schema has, or change the schema"
                )
        elif len(columns) != 1:
            raise DefinitionError(
                f"the Avro schema is of a single value, and there are {len(columns)} columns", next="name one column"
            )
        self._is_checked = True


def _with_zone(column: pa.Array) -> pa.Array:
    """Return local times as those of UTC: what Python has without a zone is for fastavro a time of this machine's zone."""
    kind = _zoned(column.type)
    return column if kind == column.type else column.cast(kind, safe=False)


def _zoned(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC") if kind.tz is None else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_zoned(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_zoned(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_zoned(kind.item_type)))
    return kind
