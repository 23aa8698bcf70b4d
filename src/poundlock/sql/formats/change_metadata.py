"""What a record of a change has beside its rows, as columns of a table: METADATA of debezium-json, canal-json and maxwell-json, by Flink's keys.

Each is the same for all rows of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.sql.formats.format import FormatColumn
from poundlock.sql.formats.json_format import row_type
from poundlock.sql.types import STRING, SqlType

_MOMENT = SqlType("TIMESTAMP_LTZ", (3,))
_NUMBER = SqlType("BIGINT")
_TEXTS = SqlType("MAP", of=(STRING, STRING))
_NAMES = SqlType("ARRAY", of=(STRING,))
_SOURCE = "source"
_SOURCE_FIELDS: Mapping[str, SqlType] = {
    "ts_ms": _NUMBER, "db": STRING, "schema": STRING, "table": STRING, "collection": STRING,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChangeMetadata:
    """A key.

    Args:
        field: of the record that it shows; `type` is that of the column.
        read_as: the type of the field; None: `type`.
        shown: makes the column of the field.
        is_beside: whether the field stands beside the payload, where the record has its schema.
    """

    field: str
    type: SqlType
    read_as: SqlType | None = None
    shown: Callable[[pa.Array], pa.Array] = lambda column: column
    is_beside: bool = False


def _moments(column: pa.Array) -> pa.Array:
    """Return milliseconds since 1970 as times."""
    return column.cast(pa.timestamp("ms", "UTC")).cast(_MOMENT.arrow)


def _seconds(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("s", "UTC")).cast(_MOMENT.arrow)


def _of_source(*names: str, kind: SqlType = STRING) -> ChangeMetadata:
    """Return what shows a field of Debezium's source; of several the first one that is there."""

    def shown(source: pa.Array) -> pa.Array:
        if pa.types.is_map(source.type):
            fields = [pc.map_lookup(source, name, "last") for name in names]
        else:
            fields = [pc.struct_field(source, name) for name in names]
        column = fields[0] if len(fields) == 1 else pc.coalesce(*fields)
        return _moments(column.cast(pa.int64())) if kind == _MOMENT else column

    fields = tuple(FormatColumn(name, name, of) for name, of in _SOURCE_FIELDS.items())
    return ChangeMetadata(_SOURCE, kind, row_type(fields), shown)


def _moment(field: str, shown: Callable[[pa.Array], pa.Array] = _moments) -> ChangeMetadata:
    return ChangeMetadata(field, _MOMENT, _NUMBER, shown)


KEYS: Mapping[str, Mapping[str, ChangeMetadata]] = {
    "debezium-json": {
        "schema": ChangeMetadata("schema", STRING, is_beside=True),
        "ingestion-timestamp": _moment("ts_ms"),
        "source.timestamp": _of_source("ts_ms", kind=_MOMENT),
        "source.database": _of_source("db"),
        "source.schema": _of_source("schema"),
        "source.table": _of_source("table", "collection"),
        "source.properties": ChangeMetadata(_SOURCE, _TEXTS),
    },
    "canal-json": {
        "database": ChangeMetadata("database", STRING),
        "table": ChangeMetadata("table", STRING),
        "sql-type": ChangeMetadata("sqlType", SqlType("MAP", of=(STRING, SqlType("INT")))),
        "pk-names": ChangeMetadata("pkNames", _NAMES),
        "ingestion-timestamp": _moment("ts"),
        "event-timestamp": _moment("es"),
    },
    "maxwell-json": {
        "database": ChangeMetadata("database", STRING),
        "table": ChangeMetadata("table", STRING),
        "primary-key-columns": ChangeMetadata("primary_key_columns", _NAMES),
        "ingestion-timestamp": _moment("ts", _seconds),  # which Maxwell writes in seconds, the others in milliseconds
    },
}
"""By format. Debezium's `source` is read as an object of what all databases have there, or as a map of texts where a column shows all of it."""


def fields_of(
    metadata: Sequence[FormatColumn], format: str
) -> tuple[tuple[FormatColumn, ...], tuple[FormatColumn, ...]]:
    """Return the fields that columns of metadata show, each once: those of the change, and those beside it.

    Args:
        metadata: named by the keys.
    """
    inside: dict[str, FormatColumn] = {}
    beside: dict[str, FormatColumn] = {}
    for column in metadata:
        key = KEYS[format][column.name]
        where = beside if key.is_beside else inside
        if key.field not in where or key.read_as is None:  # all of the source, where one column shows it
            where[key.field] = FormatColumn(key.field, key.field, key.read_as or key.type)
    return tuple(inside.values()), tuple(beside.values())


def column_of_metadata(column: FormatColumn, format: str, fields: Mapping[str, pa.Array]) -> pa.Array:
    """Return a column of metadata.

    Args:
        fields: what was read, by name.
    """
    key = KEYS[format][column.name]
    return key.shown(fields[key.field])
