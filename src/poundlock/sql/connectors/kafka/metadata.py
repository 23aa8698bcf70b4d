"""What a record of Kafka has beside key and value, as columns of a table: METADATA of the connectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import column_of, ends_in, indices_of, numbers_in, valid_in
from poundlock.sql.connectors.messages.fields import MessageField, fields_shown, read_as
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import cast_to
from poundlock.sql.formats.change_metadata import KEYS
from poundlock.sql.formats.format import FormatColumn
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import BYTES, STRING, SqlType

HEADERS = SqlType("MAP", of=(STRING, BYTES))


FIELDS: Mapping[str, MessageField] = {
    "topic": MessageField("topic", STRING),
    "partition": MessageField("partition", SqlType("INT")),
    "offset": MessageField("offset", SqlType("BIGINT")),
    "timestamp": MessageField("timestamp", SqlType("TIMESTAMP_LTZ", (3,)), is_writable=True),
    "timestamp-type": MessageField("timestamp_type", STRING),
    "headers": MessageField("headers", HEADERS, is_writable=True),
}
"""By Flink's names."""


@dataclass(frozen=True, slots=True)
class KafkaMetadataColumn:
    """A column of a table that shows a field of the record, or what the format of its value has beside the rows.

    Args:
        key: of the format; "": a field of the record.
    """

    shows: MessageField
    field: Field
    key: str = ""

    @property
    def of_format(self) -> FormatColumn:
        """The column as the format is asked for it."""
        return FormatColumn(self.key, self.field.column, self.shows.type)

    def read(self, records: pa.RecordBatch, context: EvaluationContext) -> pa.Array:
        """Return the column of some records."""
        given = records.column(self.shows.column)
        given = as_map(given) if self.shows.type == HEADERS else given
        return read_as(given, self.shows.type, self.field, context)

    def written(self, rows: pa.RecordBatch, context: EvaluationContext) -> pa.Array:
        """Return the field of the records that rows become."""
        return evaluate(cast_to(self.field.ref, self.shows.type), rows, context)


def metadata_of(table: TableContext, *, written: bool) -> tuple[KafkaMetadataColumn, ...]:
    """Return the columns of a table that are fields of the record.

    Args:
        written: whether the table is written to.

    Raises:
        OptionError: there is no such field, it is of another type, or cannot be written.
    """
    of_format = _of_format(table)
    made = []
    for shows, field in fields_shown(table, {**FIELDS, **of_format}, "a record", "Kafka", written=written):
        key = shows.column.removeprefix(_OF_VALUE) if shows.column in of_format else ""
        made.append(KafkaMetadataColumn(MessageField(field.column, shows.type) if key else shows, field, key))
    return tuple(made)


def _of_format(table: TableContext) -> Mapping[str, MessageField]:
    """Return what the format of values has beside the rows, by the key of a column."""
    options = table.definition.options
    format = options.get("value.format") or options.get("format") or ""
    names = {f"{_OF_VALUE}{key}": each.type for key, each in KEYS.get(format, {}).items()}
    return {name: MessageField(name, type) for name, type in names.items()}


_OF_VALUE = "value."  # before what is of the format, as in Flink's connector


def as_map(headers: pa.Array) -> pa.Array:
    """Return headers, lists of key and value, as maps; of headers of one name the last one counts."""
    ends, valid = ends_in(headers), valid_in(headers)
    counts = np.diff(ends) if len(headers) else np.zeros(0, np.int64)
    counts = counts if valid is None else np.where(valid, counts, 0)
    items = headers.flatten()
    names, values = items.field("key"), items.field("value")
    of = np.repeat(np.arange(len(headers)), counts)
    codes = numbers_in(names.dictionary_encode().indices).astype(np.int64)
    words = of * (len(names) + 1) + codes
    _, last = np.unique(words[::-1], return_index=True)
    kept = np.sort(len(words) - 1 - last)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(of[kept], minlength=len(headers)))])
    offsets = column_of(bounds.astype(np.int32), pa.int32())
    taken = indices_of(kept)
    return pa.MapArray.from_arrays(offsets, names.take(taken), values.take(taken))
