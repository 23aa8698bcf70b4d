"""The raw format: a record is the value of the one column, a text, bytes, or a number as it lies in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, column_of, numbers_in, valid_in
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatContext, RecordDecoder, RecordEncoder
from poundlock.sql.formats.value_texts import byte_strings
from poundlock.sql.functions.function import BadRecord
from poundlock.sql.functions.kernels.rendering import utf8
from poundlock.sql.types import SqlType

_TEXTS = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")
_NUMBERS = {
    "BOOLEAN": "?", "TINYINT": "i1", "SMALLINT": "i2", "INT": "i4", "BIGINT": "i8", "FLOAT": "f4", "DOUBLE": "f8",
}  # fmt: skip


@dataclass(frozen=True)
class RawFormat:
    """Bytes as a value.

    Args:
        order: of the bytes of numbers, ">" where the greatest comes first.
    """

    table: str
    column: str
    type: SqlType
    order: str = ">"
    is_updating: bool = False
    leaves_out: bool = True
    takes_updates: bool = False

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return each record as the column; what is no UTF-8 in a text becomes U+FFFD, as in Java."""
        if self.type.root in _NUMBERS:
            values = self._numbers(records)
        else:
            values = utf8(records) if pa.types.is_string(self.type.arrow) else records.cast(self.type.arrow)
        return pa.RecordBatch.from_arrays([values], [self.column]), None

    def _numbers(self, records: pa.Array) -> pa.Array:
        dtype = np.dtype(self.order + _NUMBERS[self.type.root])
        given = records.to_pylist()
        for record in given:
            if record is not None and len(record) != dtype.itemsize:
                raise BadRecord(
                    f"{self.table}: a record cannot be read: {record[:60]!r} is no {self.type} of {dtype.itemsize} bytes",
                    next="declare the type that was written, or a column of BYTES",
                )
        nothing = bytes(dtype.itemsize)
        values = np.frombuffer(b"".join(nothing if record is None else record for record in given), dtype)
        return column_of(values.astype(dtype.newbyteorder("=")), self.type.arrow, valid_in(records))

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the column as records; NULL as an empty one."""
        column = rows.column(self.column)
        if self.type.root in _NUMBERS:
            dtype = np.dtype(self.order + _NUMBERS[self.type.root])
            data = numbers_in(column).astype(dtype).tobytes()
            size = dtype.itemsize
            values = byte_strings([data[at : at + size] for at in range(0, len(data), size)])
            values = (
                values if not column.null_count else pc.if_else(pc.is_valid(column), values, byte_strings([b""])[0])
            )
            return values
        values = column.cast(pa.binary())
        return pc.if_else(values.is_valid(), values, byte_strings([b""])[0])


def raw_format(options: TableOptions, context: FormatContext) -> RawFormat:
    """Return the format of a table.

    Raises:
        OptionError: the table has not one column of texts, bytes, numbers or truth values, or an option cannot be.
    """
    if len(context.columns) != 1 or context.columns[0].type.root not in (*_TEXTS, *_NUMBERS):
        raise OptionError(
            f"{context.table}: raw is of one column of texts, bytes, numbers or truth values",
            next="declare one STRING or BYTES column",
            kind="type_mismatch",
        )
    options.one_of("raw.charset", ("utf-8", "utf8"), "utf-8")
    endianness = options.one_of("raw.endianness", ("big-endian", "little-endian"), "big-endian")
    (column,) = context.columns
    return RawFormat(context.table, column.column, column.type, ">" if endianness == "big-endian" else "<")


def raw_decoder(options: TableOptions, context: FormatContext) -> RecordDecoder:
    """Return what reads records; raises as `raw_format`."""
    return raw_format(options, context)


def raw_encoder(options: TableOptions, context: FormatContext) -> RecordEncoder:
    """Return what writes records; raises as `raw_format`."""
    return raw_format(options, context)
