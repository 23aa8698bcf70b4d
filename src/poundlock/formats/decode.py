"""Bytes of one record to columns or dicts: which decoder there is for a format, and what all of them do alike.

Every row that comes in goes out or to `reject`, once, with its raw bytes and its place; the others keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from poundlock.arguments import refuse_without_effect
from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.arrays import flags_in
from poundlock.formats.chunk import (
    Batch,
    Chunk,
    Lines,
    Records,
    Values,
    line_starts,
    origin_of,
    subset,
    values_in,
)
from poundlock.formats.convert import VALUE, column_values, for_python, take, to_batch, to_records
from poundlock.formats.object_rows import ObjectRows
from poundlock.formats.reject import Reject

Want = Literal["batch", "records", "objects"]
Nulls = Literal["reject", "keep"]
Rejector = Callable[[Reject], None]
NO_VALUE = "no value"
_OPTIONS: dict[str, tuple[str, ...]] = {
    "raw": (),
    "text": (),
    "json": ("timestamp_unit",),
    "csv": ("delimiter", "quote", "null", "timestamp_unit"),
    "avro": ("avro_schema", "confluent", "schema_id"),
    "protobuf": ("message", "descriptor_set", "message_class"),
}

_COLUMNS = {
    "raw": "values stay as they are",
    "text": "values stay as they are",
    "avro": "its columns are those of avro_schema",
    "protobuf": "its columns are those of the message",
}
"""The formats that say their columns themselves, and how."""


class Decoder(Protocol):
    """Turns the column `value` of a chunk into the columns of a format. Picklable; used by one thread."""

    def schema(self) -> pa.Schema:
        """Return the columns it makes, without those that are carried along."""

    def decode(self, chunk: Chunk, reject: Rejector, want: Want = "batch") -> Chunk:
        """Return the rows of a chunk decoded.

        Args:
            chunk: Lines, or rows with a binary column `value`. Other columns are carried along; where a decoded column
                has the same name, the decoded one stays.
            reject: takes each record that cannot be decoded, with the reason, its bytes and its place.
            want: "batch" for Arrow columns, "records" for dicts, "objects" for dicts that are made when somebody asks for one,
                see ObjectRows.
        """


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a codec made of some values."""

    # the good rows, in order: Arrow columns, or dicts with every field of the schema
    rows: pa.RecordBatch | list[dict[str, Any]]
    bad: Mapping[int, str]  # for each value that is not among `rows`, why; by its number


class Codec(Protocol):
    """One format's own part: bytes to fields. `parse_lines` and `parse` agree on every input both accept."""

    def schema(self) -> pa.Schema:
        """Return the columns of the format."""

    def parse_lines(self, lines: Lines, want: Want) -> Parsed | None:
        """Return all rows of a buffer at once, or None where the short way is not safe; `parse` is asked then."""

    def parse(self, values: Sequence[bytes], want: Want) -> Parsed:
        """Return the rows that can be read, and why the others cannot."""


@runtime_checkable
class ColumnCodec(Codec, Protocol):
    """A codec that can make columns of many values at once."""

    def parse_values(self, values: Values) -> Parsed | None:
        """Return the rows of some values as Arrow columns, as `parse` does; None where that is not worth while, or not safe."""


@runtime_checkable
class ObjectCodec(Codec, Protocol):
    """A codec that can make objects of the rows of a buffer."""

    def parse_objects(self, lines: Lines) -> ObjectRows | None:
        """Return all rows of a buffer, or None where one of them cannot be read so, or is bad."""


@runtime_checkable
class ValuesDecoder(Decoder, Protocol):
    """A decoder that may take values from where they lie, before they are rows."""

    def decode_values(self, values: Values, reject: Rejector) -> Chunk | None:
        """Return the rows of values as `decode` does with want="batch"; None where it cannot."""


@dataclass(frozen=True)
class RawDecoder:
    """Leaves rows as they are, in the form they are in, whatever is wanted."""

    nulls: Nulls = "reject"

    def schema(self) -> pa.Schema:
        return pa.schema([(VALUE, pa.binary())])

    def decode(self, chunk: Chunk, reject: Rejector, want: Want = "batch") -> Chunk:
        if self.nulls == "keep" or isinstance(chunk, Lines) or not len(chunk):
            return chunk
        if isinstance(chunk, Batch):
            if chunk.batch.schema.get_field_index(VALUE) < 0 or not chunk.batch.column(VALUE).null_count:
                return chunk
            keep = flags_in(chunk.batch.column(VALUE).is_valid())
        else:
            keep = np.array([row.get(VALUE) is not None for row in chunk.rows], np.bool_)
        origin = origin_of(chunk)
        for row in np.flatnonzero(~keep).tolist():
            reject(Reject(NO_VALUE, b"", origin.at(row)))
        return take(chunk, keep)


@dataclass(frozen=True)
class RowDecoder:
    """What all formats do alike around their codec: records without a value, rejects, places, carried columns."""

    codec: Codec
    nulls: Nulls = "reject"

    def schema(self) -> pa.Schema:
        return self.codec.schema()

    def decode_values(self, values: Values, reject: Rejector) -> Chunk | None:
        parsed = self._columns_of(values)
        if parsed is None:
            return None
        return self._assemble(values, parsed.rows, self._rejected(values, parsed.bad, values.row, reject))

    @cached_property
    def _column_codec(self) -> ColumnCodec | None:
        return self.codec if isinstance(self.codec, ColumnCodec) else None

    def _objects_of(self, lines: Lines) -> ObjectRows | None:
        return self.codec.parse_objects(lines) if isinstance(self.codec, ObjectCodec) else None

    def _columns_of(self, values: Values) -> Parsed | None:
        return None if self._column_codec is None else self._column_codec.parse_values(values)

    def decode(self, chunk: Chunk, reject: Rejector, want: Want = "batch") -> Chunk:
        if want == "objects":
            rows = self._objects_of(chunk) if isinstance(chunk, Lines) and len(chunk) else None
            return self.decode(chunk, reject, "records") if rows is None else Records(rows, chunk.origin)
        if isinstance(chunk, Lines):
            if want == "batch" and len(chunk):
                data = np.frombuffer(chunk.data, np.uint8)
                decoded = self.decode_values(Values(data, line_starts(chunk), chunk.ends, chunk.origin), reject)
                if decoded is not None:
                    return decoded
            parsed = self.codec.parse_lines(chunk, want) if len(chunk) else None
            if parsed is not None and not parsed.bad:
                return self._assemble(chunk, parsed.rows, None)
            lines = [row[VALUE] for row in to_records(chunk).rows]
            parsed = parsed or self.codec.parse(lines, want)
            return self._assemble(chunk, parsed.rows, self._rejected(chunk, parsed.bad, lines.__getitem__, reject))
        batch = chunk if isinstance(chunk, Batch) else to_batch(chunk)
        if batch.batch.schema.get_field_index(VALUE) < 0:
            raise DefinitionError(
                f'no column "value" to decode among {batch.batch.schema.names}',
                next='read the source with format="raw"',
            )
        batch = to_batch(for_python(batch, reject if want == "records" else None))
        column = batch.batch.column(VALUE)
        if want == "batch" and not column.null_count:
            lying = values_in(column, batch.origin)
            parsed = None if lying is None else self._columns_of(lying)
            if lying is not None and parsed is not None:
                return self._assemble(batch, parsed.rows, self._rejected(batch, parsed.bad, lying.row, reject))
        values = column_values(column if not pa.types.is_string(column.type) else column.cast(pa.binary()))
        if not column.null_count:
            parsed = self.codec.parse(values, want)
            return self._assemble(batch, parsed.rows, self._rejected(batch, parsed.bad, values.__getitem__, reject))
        return self._with_nulls(batch, values, reject, want)

    def _with_nulls(self, batch: Batch, values: list[Any], reject: Rejector, want: Want) -> Chunk:
        present = [i for i, value in enumerate(values) if value is not None]
        parsed = self.codec.parse([values[i] for i in present], want)
        bad = {present[i]: why for i, why in parsed.bad.items()}
        required = [f.name for f in self.schema() if not f.nullable]
        if self.nulls == "reject" or required:
            missing = NO_VALUE if not required else f"{NO_VALUE}, and {required[0]} must not be null"
            bad |= {i: missing for i, value in enumerate(values) if value is None}
            return self._assemble(batch, parsed.rows, self._rejected(batch, bad, values.__getitem__, reject))
        keep = self._rejected(batch, bad, values.__getitem__, reject)
        places: list[int | None] = []
        good = 0
        for i, value in enumerate(values):
            if i not in bad:
                places.append(None if value is None else good)
                good += value is not None
        rows = parsed.rows
        if isinstance(rows, list):
            names = self.schema().names
            rows = [dict.fromkeys(names) if at is None else rows[at] for at in places]
        else:
            rows = rows.take(pa.array(places, pa.int64()))
        return self._assemble(batch, rows, keep)

    def _rejected(
        self,
        chunk: Values | Lines | Batch,
        bad: Mapping[int, str],
        value: Callable[[int], bytes | None],
        reject: Rejector,
    ) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Hand over the bad rows; return which rows are left, None for all."""
        if not bad:
            return None
        keep = np.ones(len(chunk), np.bool_)
        for row in sorted(bad):
            keep[row] = False
            reject(Reject(bad[row], value(row) or b"", chunk.origin.at(row)))
        return keep

    def _assemble(
        self,
        chunk: Values | Lines | Batch,
        rows: pa.RecordBatch | list[dict[str, Any]],
        keep: np.ndarray[Any, np.dtype[np.bool_]] | None,
    ) -> Chunk:
        index = None if keep is None else np.flatnonzero(keep)
        carried: list[tuple[str, pa.Array]] = []
        if isinstance(chunk, Batch):
            names = self.schema().names
            rest = chunk.batch if keep is None else chunk.batch.filter(pa.array(keep))
            carried = [(f.name, c) for f, c in zip(rest.schema, rest.columns, strict=True) if f.name not in names]
            carried = [(name, column) for name, column in carried if name != VALUE]
        if isinstance(rows, list):
            for name, column in carried:
                for row, value in zip(rows, column_values(column), strict=True):
                    row[name] = value
            return Records(rows, chunk.origin, None if index is None else index.tolist())
        if carried:
            fields = [*rows.schema, *(pa.field(name, column.type) for name, column in carried)]
            rows = pa.RecordBatch.from_arrays([*rows.columns, *(c for _, c in carried)], schema=pa.schema(fields))
        return Batch(rows, chunk.origin if index is None else subset(chunk.origin, index))


def decoder(format: str, schema_ddl: str | None = None, **options: Any) -> Decoder:
    """Return the decoder of a format.

    Args:
        format: "raw" (or "text"), "json", "csv", "avro", "protobuf".
        schema_ddl: the columns, such as "ts timestamp, user string"; needed for json and csv, refused for the others.
        options: nulls="reject"|"keep" (all); timestamp_unit="s"|"ms"|"us" for times given as numbers (json, csv);
            delimiter, quote, null (csv); avro_schema (JSON text or dict), confluent=True|False with schema_id (avro);
            message, and descriptor_set or message_class (protobuf).

    Raises:
        DefinitionError: the format or an option is not known or has no effect, or something it needs is missing.
    """
    nulls = options.pop("nulls", "reject")
    if nulls not in ("reject", "keep"):
        raise DefinitionError(f"nulls={nulls!r} is not known", next='use "reject" or "keep"')
    if format in _COLUMNS and schema_ddl is not None:
        because = _COLUMNS[format]
        refuse_without_effect(f"format {format!r}", {"schema": (schema_ddl, None)}, because=because)
    if format not in _OPTIONS:
        raise DefinitionError(f"format {format!r} is not known", next=f"use one of {', '.join(_OPTIONS)}")
    names = _OPTIONS[format]
    for name in options:
        if name not in names:
            raise DefinitionError(
                f"format {format!r} has no option {name!r}", next=f"use one of: {', '.join(('nulls', *names))}"
            )
    return RawDecoder(nulls) if format in ("raw", "text") else RowDecoder(_codec(format, schema_ddl, options), nulls)


def _codec(format: str, schema_ddl: str | None, options: Mapping[str, Any]) -> Codec:
    """Return the codec of a format; each is imported when it is asked for: msgspec, pyarrow.csv and fastavro cost start-up time."""
    if format == "avro":
        from poundlock.formats.decode_avro import AvroCodec

        return AvroCodec(**options)
    if format == "protobuf":
        from poundlock.formats.protobuf.messages import ProtobufCodec

        return ProtobufCodec(**options)
    if schema_ddl is None:
        raise DefinitionError(
            f"format {format!r} needs a schema", next='give schema="…", such as "ts timestamp, user string"'
        )
    if format == "json":
        from poundlock.formats.decode_json import JsonCodec

        return JsonCodec(ddl.parse(schema_ddl), **options)
    from poundlock.formats.decode_csv import CsvCodec

    return CsvCodec(ddl.parse(schema_ddl), **options)
