"""Changes as Debezium's connector for PostgreSQL writes them: decimals as texts, times as it has them by default."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from poundlock.connectors.changes.envelopes import Row, days, envelopes, micros, micros_of_time, zoned
from poundlock.connectors.postgres.source.tables import PublishedTable
from poundlock.connectors.postgres.types import Column

_MILLISECONDS = 3  # digits of a second, up to which a timestamp is a number of milliseconds


def as_envelopes(changes: pa.RecordBatch, table: PublishedTable, database: str) -> pa.RecordBatch:
    """Return change rows of one table as Debezium's.

    Args:
        database: its name, which stands in each.
    """

    def source(row: Row) -> dict[str, Any]:
        return {
            "connector": "postgresql", "ts_ms": 0, "snapshot": "", "db": database, "schema": table.schema_name, "table": table.table_name,
            "txId": row["xid"], "lsn": row["lsn"], "row": row["number"] or 0,
        }  # fmt: skip

    return envelopes(changes, table.name, table.key, lambda row: _image(row, table.columns), source)


def _image(row: Row, columns: Sequence[Column]) -> dict[str, Any]:
    return {c.name: None if row[c.name] is None else _MADE.get(c.oid, _same)(row[c.name], c) for c in columns}


def _same(value: Any, _: Column) -> Any:
    return value


def _timestamp(value: datetime.datetime, column: Column) -> int:
    made = micros(value)
    return made // 1000 if 0 <= column.modifier <= _MILLISECONDS else made


def _real(value: float, _: Column) -> Any:
    return value if math.isfinite(value) else str(value)  # JSON has no such number


def _reals(values: list[float | None], _: Column) -> list[Any]:
    return [value if value is None or math.isfinite(value) else str(value) for value in values]


_MADE: Mapping[int, Callable[[Any, Column], Any]] = {
    1082: lambda value, _: days(value), 1114: _timestamp, 1184: lambda value, _: zoned(value), 1083: lambda value, _: micros_of_time(value),
    1700: lambda value, _: value if isinstance(value, str) else f"{value:f}", 17: lambda value, _: base64.b64encode(value).decode(),
    700: _real, 701: _real, 1021: _reals, 1022: _reals,
}  # fmt: skip
