"""Messages of Protobuf without a registry: a message a record, by a file of descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Numbers, valid_in
from poundlock.formats.encode import values
from poundlock.formats.protobuf.descriptors import message_in
from poundlock.formats.protobuf.encode import MessageBuilder
from poundlock.formats.protobuf.messages import given_message, parsed_messages
from poundlock.formats.protobuf.projection import Unfitting, declared_columns
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder, bad_record
from poundlock.sql.formats.schemas.registered import arrow_columns
from poundlock.sql.formats.value_texts import byte_strings
from poundlock.sql.functions.function import NullInColumn


@dataclass(frozen=True)
class ProtobufFormat:
    """Messages and rows, by the names of fields.

    Args:
        files: the descriptor set that has the message.
        option: that leaves records out that cannot be read.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    files: bytes = field(repr=False)
    message: str
    is_lenient: bool
    option: str
    is_updating: bool = False
    leaves_out: bool = True
    takes_updates: bool = False

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return rows, and of which record each is; raises EvaluationError where a record cannot be read."""
        needed = tuple(each for each in self.columns if each.column in wanted) or self.columns[:1]
        valid = valid_in(records)
        there = np.arange(len(records)) if valid is None else np.flatnonzero(valid)
        given = [record for record in records.to_pylist() if record is not None]
        of = message_in(self.files, self.message)
        messages, bad = parsed_messages(given, of)
        for place, why in sorted(bad.items())[: 0 if self.is_lenient else 1]:
            raise bad_record(self.table, f"{given[place][:60]!r}: {why}", self.option)
        there = np.delete(there, list(bad))
        rows = declared_columns(messages, of, arrow_columns(needed))
        renamed = pa.RecordBatch.from_arrays(rows.columns, [each.column for each in needed])
        return renamed, None if len(there) == len(records) else there

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a message for each row; raises EvaluationError where one cannot be written."""
        encode = MessageBuilder(message_in(self.files, self.message)).encode
        names = [each.name for each in self.columns]
        made = []
        for row in zip(*(values(rows.column(each.column)) for each in self.columns), strict=True):
            try:
                made.append(encode(dict(zip(names, row, strict=True))))
            except (TypeError, ValueError, OverflowError) as error:
                raise NullInColumn(
                    f"{self.table}: a row cannot be written as Protobuf: {error}",
                    next="leave such rows out, or declare the field optional",
                ) from None
        return byte_strings(made)


def _format(options: TableOptions, context: FormatContext) -> ProtobufFormat:
    """Return the format of a table.

    Raises:
        OptionError: an option is missing or cannot be, or a column is not that of a field.
    """
    name, path = options.text("protobuf.message-name"), options.required("protobuf.descriptor-file")
    lenient = options.flag("protobuf.ignore-parse-errors")
    try:
        files, message = given_message(context.table, name, path, None)
        of = message_in(files, message)
        for each in context.columns:
            if each.name not in of.fields_by_name:
                raise DefinitionError(
                    f"message {message} has no field {each.name!r}",
                    next=f"use of {', '.join(field.name for field in of.fields)}",
                )
        declared_columns([], of, arrow_columns(context.columns))
    except Unfitting as error:
        raise OptionError(f"{context.table}: {error}", next="declare that type", kind="type_mismatch") from None
    except DefinitionError as error:
        raise OptionError(f"{context.table}: {error.what}", next=str(error.next), kind="bad_option_value") from None
    option = f"{options.prefix}protobuf.ignore-parse-errors"
    return ProtobufFormat(context.table, context.columns, files, message, lenient, option)


def protobuf_decoder(options: TableOptions, context: FormatContext) -> RecordDecoder:
    """Return what reads records; raises OptionError where it cannot be."""
    return _format(options, context)


def protobuf_encoder(options: TableOptions, context: FormatContext) -> RecordEncoder:
    """Return what writes records; raises as `protobuf_decoder`."""
    return _format(options, context)
