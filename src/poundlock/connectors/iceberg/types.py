"""Iceberg's types as Arrow's, and between which of Arrow's no value changes in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

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


def plain_schema(schema: Schema) -> pa.Schema:
    """Return a schema as columns that rows of a source have: of Arrow's two widths of text, bytes and lists the common one."""
    return pa.schema([pa.field(f.name, _plain(f.type), f.nullable) for f in arrow_schema(schema)])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain_field(kind.item_field))
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain(field.type), field.nullable)


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
