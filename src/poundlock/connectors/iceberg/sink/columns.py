"""Which rows go into a table: by name, and by types between which no value changes in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.errors import DefinitionError, did_you_mean

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def file_schema(schema: Schema) -> Schema:
    """Return a table's schema as its Parquet files have it: names that Avro has no letters for are written otherwise."""
    from pyiceberg.schema import sanitize_column_names

    return sanitize_column_names(schema)


def arrow_schema(schema: Schema, *, ids: bool = False) -> pa.Schema:
    """Return a schema as columns of Arrow, with Iceberg's field ids where they are asked for."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(schema, include_field_ids=ids)


def check_rows(sink: str, table: str, wanted: pa.Schema, rows: pa.Schema, columns: Sequence[str] | None) -> None:
    """Raise DefinitionError unless rows with these columns can be written.

    Args:
        sink: its name in the job.
        table: the table's, for people.
        wanted: the table's columns.
        rows: the columns that come.
        columns: those that are written; None = all.
    """
    for name in columns if columns is not None else rows.names:
        if name not in rows.names:
            raise DefinitionError(
                f"sink {sink!r} needs a column {name!r}, and the rows have {', '.join(rows.names)}",
                next=did_you_mean(name, rows.names, "name one of them", show=repr),
                participant=sink,
            )
        if name not in wanted.names:
            raise DefinitionError(
                f"sink {sink!r}: the rows have a column {name!r}, and {table} has {', '.join(wanted.names)}",
                next="leave it out with columns=[…], or have it added: create=pa.schema([…]) with add_columns=True",
                participant=sink,
            )
        source, target = rows.field(name).type, wanted.field(name).type
        if not goes_into(source, target):
            raise DefinitionError(
                f"sink {sink!r}: column {name!r} is {source}, and in {table} it is {target}",
                next=f'cast it before the sink: .select("cast({name} as …) as {name}", …)',
                participant=sink,
            )
    for field in wanted:
        if not field.nullable and field.name not in (columns if columns is not None else rows.names):
            raise DefinitionError(
                f"sink {sink!r}: column {field.name!r} of {table} is required, and the rows do not have it",
                next="add it to the rows: .with_column(…)",
                participant=sink,
            )


def goes_into(source: Any, target: Any) -> bool:
    """Return whether values of a type can be written as another: what does not fit is then a bad row, and nothing is rounded."""
    kinds = pa.types
    if kinds.is_dictionary(source):
        return goes_into(source.value_type, target)
    if source == target or kinds.is_null(source):
        return True
    if kinds.is_integer(source):
        return bool(kinds.is_integer(target) or kinds.is_decimal(target) or kinds.is_float64(target))
    if kinds.is_floating(source):
        return bool(kinds.is_float64(target))
    if kinds.is_timestamp(source):
        return bool(kinds.is_timestamp(target) and (source.tz is None) == (target.tz is None))
    if kinds.is_struct(source) and kinds.is_struct(target):
        names = [field.name for field in source]
        return names == [field.name for field in target] and all(
            goes_into(source.field(n).type, target.field(n).type) for n in range(len(names))
        )
    if kinds.is_map(source) and kinds.is_map(target):
        return goes_into(source.key_type, target.key_type) and goes_into(source.item_type, target.item_type)
    for same in (_is_text, _is_bytes, kinds.is_date, kinds.is_time, kinds.is_decimal):
        if same(source):
            return bool(same(target))
    if _is_list(source) and _is_list(target):
        return goes_into(source.value_type, target.value_type)
    return False


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
