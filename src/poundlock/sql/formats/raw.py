"""The raw format: a record is the value of the one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import Decoder, Encoder, FormatContext
from poundlock.sql.formats.value_texts import byte_strings
from poundlock.sql.functions.kernels.rendering import utf8
from poundlock.sql.types import SqlType

_ROOTS = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")


@dataclass(frozen=True)
class RawFormat:
    """Bytes as a text or as bytes."""

    column: str
    type: SqlType
    is_updating: bool = False
    leaves_out: bool = True
    takes_updates: bool = False

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return each record as the column; what is no UTF-8 in a text becomes U+FFFD, as in Java."""
        values = utf8(records) if pa.types.is_string(self.type.arrow) else records
        return pa.RecordBatch.from_arrays([values], [self.column]), None

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the column as records; NULL as an empty one."""
        values = rows.column(self.column).cast(pa.binary())
        return pc.if_else(values.is_valid(), values, byte_strings([b""])[0])


def raw_format(options: TableOptions, context: FormatContext) -> RawFormat:
    """Return the format of a table.

    Raises:
        OptionError: the table has not one column of texts or bytes.
    """
    if len(context.columns) != 1 or context.columns[0].type.root not in _ROOTS:
        raise OptionError(
            f"{context.table}: raw is of one column of texts or bytes",
            next="declare one STRING or BYTES column",
            kind="type_mismatch",
        )
    charset = options.text("raw.charset", "UTF-8")
    if str(charset).upper() not in ("UTF-8", "UTF8"):
        raise OptionError(
            f"{context.table}: raw.charset {charset!r}", next="write 'raw.charset' = 'UTF-8'", kind="bad_option_value"
        )
    (column,) = context.columns
    return RawFormat(column.column, column.type)


def raw_decoder(options: TableOptions, context: FormatContext) -> Decoder:
    """Return what reads records; raises as `raw_format`."""
    return raw_format(options, context)


def raw_encoder(options: TableOptions, context: FormatContext) -> Encoder:
    """Return what writes records; raises as `raw_format`."""
    return raw_format(options, context)
