"""Messages to columns: each is parsed once, and its fields are read column by column."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from poundlock.formats.arrays import column_of, lists_of
from poundlock.formats.protobuf.fields import TIMESTAMP, column_type, columns_of, is_map, is_repeated, is_wrapper

_US, _NS = 1_000_000, 1_000  # microseconds of a second, nanoseconds of a microsecond


def columns_of_messages(messages: Sequence[Any], of: Descriptor) -> pa.RecordBatch:
    """Return messages as columns.

    Raises:
        ValueError: a time is beyond what a column holds.
    """
    schema = columns_of(of)
    return pa.RecordBatch.from_arrays([column_of_messages(messages, field) for field in of.fields], schema=schema)


def column_of_messages(messages: Sequence[Any], field: FieldDescriptor) -> pa.Array:
    """Return one field of messages as a column."""
    read = attrgetter(field.name)
    if is_map(field):
        return _maps(list(map(read, messages)), field)
    if is_repeated(field):
        lists = list(map(read, messages))
        items = _values(list(chain.from_iterable(lists)), field)
        return lists_of(items, np.fromiter(map(len, lists), np.int64, len(lists))).cast(column_type(field))
    if not field.has_presence:
        return _values(list(map(read, messages)), field)
    name = field.name
    there = np.fromiter((each.HasField(name) for each in messages), np.bool_, len(messages))
    if there.all():
        return _values(list(map(read, messages)), field)
    present = _values([read(each) for each, is_there in zip(messages, there.tolist(), strict=True) if is_there], field)
    places = np.cumsum(there) - 1
    return present.take(column_of(np.maximum(places, 0), pa.int64(), there))


def _values(values: list[Any], field: FieldDescriptor) -> pa.Array:
    """Return single values as a column."""
    message = field.message_type
    if message is not None and message.full_name == TIMESTAMP:
        micros = [each.seconds * _US + each.nanos // _NS for each in values]
        return column_of(np.fromiter(micros, np.int64, len(micros)), pa.timestamp("us", tz="UTC"))
    if message is not None and is_wrapper(field):
        return _values([each.value for each in values], message.fields_by_name["value"])
    if message is not None:
        columns = [column_of_messages(values, each) for each in message.fields]
        return pa.StructArray.from_arrays(columns, fields=list(columns_of(message)))
    if field.enum_type is not None:
        return _enums(values, field.enum_type)
    kind = column_type(field).value_type if is_repeated(field) and not is_map(field) else column_type(field)
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(each) for each in values], kind)
    return pa.array(values, kind)


def _enums(numbers: list[int], of: EnumDescriptor) -> pa.Array:
    """Return the names of an enum's numbers; one that has no name is its digits."""
    names = {number: of.values_by_number[number].name if number in of.values_by_number else str(number) for number in set(numbers)}  # fmt: skip
    return pa.array([names[number] for number in numbers], pa.string())


def _maps(maps: list[Any], field: FieldDescriptor) -> pa.Array:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    # A map has no order of its own, and a replay must give the same rows: entries stand in the order of their keys.
    sorted_keys = [sorted(each) for each in maps]
    keys = list(chain.from_iterable(sorted_keys))
    values = [each[name] for each, names in zip(maps, sorted_keys, strict=True) for name in names]
    ends = np.zeros(len(maps) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, maps), np.int64, len(maps)), out=ends[1:])
    made = pa.MapArray.from_arrays(column_of(ends, pa.int32()), _values(keys, key), _values(values, value))
    return made.cast(column_type(field))
