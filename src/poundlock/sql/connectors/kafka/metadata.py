"""What a record of Kafka has beside key and value, as columns of a table: METADATA of the connectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.errors import did_you_mean
from poundlock.formats.arrays import column_of, ends_in, indices_of, numbers_in, valid_in
from poundlock.sql.coercion import can_cast
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.formats.change_metadata import KEYS
from poundlock.sql.formats.format import FormatColumn
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn
from poundlock.sql.types import BYTES, STRING, SqlType

HEADERS = SqlType("MAP", of=(STRING, BYTES))


@dataclass(frozen=True, slots=True)
class KafkaMetadata:
    """A field of a record.

    Args:
        column: what source and sink call it.
        is_writable: whether a table's rows may say it.
    """

    column: str
    type: SqlType
    is_writable: bool = False


FIELDS: Mapping[str, KafkaMetadata] = {
    "topic": KafkaMetadata("topic", STRING),
    "partition": KafkaMetadata("partition", SqlType("INT")),
    "offset": KafkaMetadata("offset", SqlType("BIGINT")),
    "timestamp": KafkaMetadata("timestamp", SqlType("TIMESTAMP_LTZ", (3,)), is_writable=True),
    "timestamp-type": KafkaMetadata("timestamp_type", STRING),
    "headers": KafkaMetadata("headers", HEADERS, is_writable=True),
}
"""By Flink's names."""


@dataclass(frozen=True, slots=True)
class KafkaMetadataColumn:
    """A column of a table that shows a field of the record, or what the format of its value has beside the rows.

    Args:
        key: of the format; "": a field of the record.
    """

    shows: KafkaMetadata
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
        one = pa.RecordBatch.from_arrays([given], ["given"])
        return evaluate(cast_to(ColumnRef("given", self.shows.type), self.field.type), one, context)

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
    fields = {field.name: field for field in table.fields}
    of_format = _of_format(table)
    made = []
    for column in table.definition.columns:
        if not isinstance(column, ConnectorColumn) or column.name not in fields:
            continue
        what, field = f"{table.name.name}.{column.name}", fields[column.name]
        shows, key = FIELDS.get(column.key), ""
        if column.key in of_format:
            key = column.key.removeprefix(_OF_VALUE)
            shows = KafkaMetadata(field.column, of_format[column.key])
        if shows is None:
            known = [*FIELDS, *of_format]
            raise OptionError(
                f"{what}: a record of Kafka has no metadata {column.key!r}",
                next=did_you_mean(column.key, known, f"use one of {', '.join(known)}"),
                kind="unknown_column",
            )
        if written and not shows.is_writable:
            raise OptionError(f"{what}: {column.key} of a record cannot be written", next="declare it METADATA VIRTUAL")
        given, wanted = (shows.type, column.type) if not written else (column.type, shows.type)
        if not can_cast(given, wanted):
            raise OptionError(
                f"{what} is {column.type}, and {column.key} of a record {shows.type}",
                next=f"declare it {shows.type}",
                kind="type_mismatch",
            )
        made.append(KafkaMetadataColumn(shows, field, key))
    return tuple(made)


def _of_format(table: TableContext) -> Mapping[str, SqlType]:
    """Return what the format of values has beside the rows, by the key of a column."""
    options = table.definition.options
    format = options.get("value.format") or options.get("format") or ""
    return {f"{_OF_VALUE}{key}": each.type for key, each in KEYS.get(format, {}).items()}


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
