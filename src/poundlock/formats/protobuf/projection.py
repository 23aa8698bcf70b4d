"""Columns of messages as the columns that are declared: by name, with wider types; what a message has not is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from poundlock.formats.arrays import flags_in
from poundlock.formats.protobuf.decode import column_of_messages


class Unfitting(Exception):
    """A field has another type than the column."""


def declared_columns(messages: Sequence[Any], of: Descriptor, columns: pa.Schema) -> pa.RecordBatch:
    """Return the declared columns of messages.

    Raises:
        Unfitting: a field is of another type, or a column that must not be null is of no field.
    """
    arrays = []
    for column in columns:
        field = of.fields_by_name.get(column.name)
        if field is None:
            if not column.nullable:
                raise Unfitting(f"message {of.full_name} has no field {column.name!r}")
            arrays.append(pa.nulls(len(messages), column.type))
        else:
            arrays.append(_as(column_of_messages(messages, field), column.type, column.name))
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _as(column: pa.Array, kind: pa.DataType, place: str) -> pa.Array:
    """Return a column as another type; fields of structs by name."""
    given = column.type
    if given == kind:
        return column
    valid = None if not column.null_count else pa.array(~flags_in(column.is_valid()))
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        names = {given.field(number).name: number for number in range(given.num_fields)}
        parts = []
        for field in kind:
            number = names.get(field.name)
            whole = pa.nulls(len(column), field.type) if number is None else column.field(number)
            parts.append(_as(whole, field.type, f"{place}.{field.name}"))
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=valid)
    if pa.types.is_list(given) and pa.types.is_list(kind):
        items = _as(column.values, kind.value_type, place)
        return pa.ListArray.from_arrays(column.offsets, items).cast(kind)
    if pa.types.is_map(given) and pa.types.is_map(kind):
        keys, items = _as(column.keys, kind.key_type, place), _as(column.items, kind.item_type, place)
        return pa.MapArray.from_arrays(column.offsets, keys, items).cast(kind)
    if pa.types.is_nested(given) or pa.types.is_nested(kind):
        raise Unfitting(f"{place} is {given} there, and {kind} is declared")
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unfitting(f"{place} is {given} there, and {kind} is declared: {str(error)[:100]}") from None
