"""Rows of recorded SQL cases as Arrow columns, and columns as the values that the cases are written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.sql.types import SqlType


def batch_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, SqlType]) -> pa.RecordBatch:
    """Return rows as JSON has them as a batch."""
    made = [pa.array([_value(row.get(name), kind) for row in rows], kind.arrow) for name, kind in columns.items()]
    return pa.RecordBatch.from_arrays(made, names=list(columns))


def _value(value: Any, kind: SqlType) -> Any:
    if value is None:
        return None
    if kind.root == "DECIMAL":
        made = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.sizes[1]))
        return made if made.adjusted() < kind.sizes[0] - kind.sizes[1] else None
    if kind.root == "DATE":
        return date.fromisoformat(value)
    if kind.root == "TIME":
        return time.fromisoformat(value)
    if kind.root == "TIMESTAMP":
        return datetime.fromisoformat(value)
    if kind.root == "ROW":
        return {name: _value(value.get(name), of) for name, of in zip(kind.names, kind.of, strict=True)}
    if kind.root == "ARRAY":
        return [_value(each, kind.of[0]) for each in value]
    if kind.root == "MAP":
        return [(key, _value(each, kind.of[1])) for key, each in value.items()]
    return value


def written_column(column: pa.Array, kind: SqlType) -> list[Any]:
    """Return the values of a column as a case writes them."""
    if kind.root == "DATE":  # Python has no year 0
        days = column.cast(pa.int32()).to_pylist()
        return [None if day is None else str(np.datetime64(day, "D")) for day in days]
    return [written(value, kind) for value in column.to_pylist()]


def written(value: Any, kind: SqlType) -> Any:
    """Return a value as a case writes it."""
    if value is None:
        return None
    if kind.root == "DECIMAL":
        return f"{value:f}"
    if kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if kind.root == "TIMESTAMP_LTZ" else text
    if kind.root == "TIME":
        return value.isoformat(timespec="milliseconds")
    if kind.root == "DATE":
        return str(value)
    if kind.root in ("BINARY", "VARBINARY"):
        return value.hex()
    if kind.root in ("FLOAT", "DOUBLE") and value != value:
        return "NaN"
    if kind.root == "ROW":
        return [written(value[name], of) for name, of in zip(kind.names, kind.of, strict=True)]
    if kind.root == "ARRAY":
        return [written(each, kind.of[0]) for each in value]
    if kind.root == "MAP":
        return {str(written(key, kind.of[0])): written(each, kind.of[1]) for key, each in value}
    return value
