"""Arrow columns as parts of Kafka messages: keys, headers, partitions, timestamps.

A type that has no plain meaning as such a part is refused; no value is changed in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from poundlock.errors import DefinitionError

Headers = list[tuple[str, bytes | None]]


def as_bytes(column: pa.Array) -> list[bytes | None]:
    """Return a column's values as bytes: binary as it is, text as UTF-8, numbers, booleans and dates as their text.

    Raises:
        DefinitionError: the type has no text.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        if pa.types.is_nested(kind) or (pa.types.is_temporal(kind) and not pa.types.is_date(kind)):
            raise DefinitionError(
                f"a column of type {kind} cannot be a Kafka key or raw value",
                next='cast it to text before the sink, or write the value with format="json"',
            )
        column = column.cast(pa.large_string()).cast(pa.large_binary())
    return column.to_pylist()  # type: ignore[no-any-return]


def as_integers(column: pa.Array) -> list[int | None]:
    """Return a column of whole numbers. Raises DefinitionError for another type."""
    if not pa.types.is_integer(column.type):
        raise DefinitionError(f"a partition column of type {column.type}", next="cast it to int before the sink")
    return column.to_pylist()  # type: ignore[no-any-return]


def as_times(column: pa.Array) -> list[int | None]:
    """Return a column of timestamps, or of milliseconds, as ms since the epoch. Raises DefinitionError for another type."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise DefinitionError(
            f"a timestamp column of type {column.type}", next="cast it to timestamp, or to bigint milliseconds"
        )
    return column.to_pylist()  # type: ignore[no-any-return]


def as_headers(batch: pa.RecordBatch, headers: str | Mapping[str, str]) -> Sequence[Headers | None]:
    """Return the headers of each row: of one column of arrays or maps, or of several columns by header name."""
    if not isinstance(headers, str):
        named = [(name, as_bytes(column_of(batch, column, " for headers"))) for name, column in headers.items()]
        return [[(name, values[i]) for name, values in named] for i in range(batch.num_rows)]
    column = column_of(batch, headers, " for headers")
    kind = column.type
    if pa.types.is_map(kind):
        return [None if row is None else [(str(k), _bytes(v)) for k, v in row] for row in column.to_pylist()]
    inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    if inner is None or not pa.types.is_struct(inner) or {f.name for f in inner} != {"key", "value"}:
        raise DefinitionError(
            f"a headers column of type {kind}",
            next="make it an array of struct<key, value> or a map, or name columns: headers={'trace': 'trace_id'}",
        )
    return [
        None if row is None else [(str(h["key"]), _bytes(h["value"])) for h in row if h is not None]
        for row in column.to_pylist()
    ]


def json_bytes(row: Mapping[str, Any]) -> bytes:
    """Return a row as a person can read it, for dead letters."""
    try:
        return msgspec.json.encode(row, enc_hook=repr)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return repr(row).encode("utf-8", "backslashreplace")


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def column_of(batch: pa.RecordBatch, name: str, use: str = "") -> pa.Array:
    """Return a column. Raises DefinitionError, which says what it is for, if there is none of that name."""
    if name not in batch.schema.names:
        raise DefinitionError(
            f"the Kafka sink needs a column {name!r}{use}, and the rows have {', '.join(batch.schema.names)}",
            next="select it before the sink, or name another",
        )
    return batch.column(name)
