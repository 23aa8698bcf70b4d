"""Changes as Debezium's connector for MySQL writes them: decimals as texts, times as it has them by default."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from poundlock.connectors.changes.envelopes import Row, days, envelopes, micros, micros_of_time, zoned
from poundlock.connectors.mysql.source.catalog import LoggedTable
from poundlock.connectors.mysql.types import MySqlColumn


def as_envelopes(changes: pa.RecordBatch, table: LoggedTable, server: int) -> pa.RecordBatch:
    """Return change rows of one table as Debezium's.

    Args:
        server: the number of the server, which stands in each.
    """

    def source(row: Row) -> dict[str, Any]:
        return {
            "connector": "mysql", "ts_ms": 0, "snapshot": "", "db": table.database, "table": table.table, "server_id": server,
            "gtid": row["gtid"], "file": row["file"], "pos": row["pos"], "row": row["number"] or 0,
        }  # fmt: skip

    return envelopes(changes, table.name, table.key, lambda row: _image(row, table.columns), source)


def _image(row: Row, columns: Sequence[MySqlColumn]) -> dict[str, Any]:
    return {c.name: None if row[c.name] is None else _MADE.get(c.kind, _same)(row[c.name], c) for c in columns}


def _same(value: Any, _: MySqlColumn) -> Any:
    return value


def _datetime(value: datetime.datetime, column: MySqlColumn) -> int:
    made = micros(value)
    return made // 1000 if column.scale <= 3 else made


def _bytes(value: Any, _: MySqlColumn) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _whole(value: Any, column: MySqlColumn) -> Any:
    return int(value) if column.unsigned else value


_MADE: Mapping[str, Callable[[Any, MySqlColumn], Any]] = {
    "date": lambda value, _: days(value), "datetime": _datetime, "timestamp": lambda value, _: zoned(value),
    "time": lambda value, _: micros_of_time(value),
    "decimal": lambda value, _: f"{value:f}" if not isinstance(value, str) else value, "bigint": _whole, "bit": _bytes,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
}  # fmt: skip
