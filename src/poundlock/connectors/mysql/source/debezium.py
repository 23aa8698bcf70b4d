"""Changes as Debezium's connector for MySQL writes them: JSON without schemas, decimals as texts, times as it has them by default.

Nothing of the clock is in it: `ts_ms` is the time of the change, so that a second reading gives the same text.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from poundlock.connectors.mysql.source.catalog import LoggedTable
from poundlock.connectors.mysql.types import MySqlColumn

SCHEMA = pa.schema([("table", pa.string()), ("key", pa.string()), ("value", pa.string())])
"""The columns of the rows: which table, its primary key and the change, both as JSON; no key for a table that was emptied."""
_OPS = {"read": "r", "insert": "c", "update": "u", "delete": "d", "truncate": "t"}
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


def as_envelopes(changes: pa.RecordBatch, table: LoggedTable, server: int) -> pa.RecordBatch:
    """Return change rows of one table as Debezium's.

    Args:
        server: the number of the server, which stands in each.
    """
    keys, values = [], []
    for row in changes.to_pylist():
        before, after = (_image(row[side], table.columns) for side in ("before", "after"))
        image = after if after is not None else before
        keys.append(None if image is None else _text({name: image[name] for name in table.key}))
        time = row["commit_time"]
        moment = 0 if time is None else _since_epoch(time.replace(tzinfo=None)) // 1000
        source = {
            "connector": "mysql", "ts_ms": moment, "snapshot": "true" if row["op"] == "read" else "false", "db": table.database,
            "table": table.table, "server_id": server, "gtid": row["gtid"], "file": row["file"], "pos": row["pos"],
            "row": row["number"] or 0,
        }  # fmt: skip
        values.append(
            _text({"before": before, "after": after, "source": source, "op": _OPS[row["op"]], "ts_ms": moment})
        )
    arrays = [pa.repeat(pa.scalar(table.name), len(values)), pa.array(keys, pa.string()), pa.array(values, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _image(row: Mapping[str, Any] | None, columns: Sequence[MySqlColumn]) -> dict[str, Any] | None:
    if row is None:
        return None
    return {c.name: None if row[c.name] is None else _MADE.get(c.kind, _same)(row[c.name], c) for c in columns}


def _same(value: Any, _: MySqlColumn) -> Any:
    return value


def _since_epoch(value: datetime.datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


def _datetime(value: datetime.datetime, column: MySqlColumn) -> int:
    micros = _since_epoch(value)
    return micros // 1000 if column.scale <= 3 else micros


def _timestamp(value: datetime.datetime, _: MySqlColumn) -> str:
    return value.replace(tzinfo=None).isoformat(timespec="microseconds").rstrip("0").rstrip(".") + "Z"


def _time(value: str, _: MySqlColumn) -> int:
    hours, minutes, seconds = (int(part) for part in value.lstrip("-").split(":"))
    return (-1 if value.startswith("-") else 1) * ((hours * 60 + minutes) * 60 + seconds) * 1_000_000


def _bytes(value: Any, _: MySqlColumn) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _whole(value: Any, column: MySqlColumn) -> Any:
    return int(value) if column.unsigned else value


_MADE: Mapping[str, Callable[[Any, MySqlColumn], Any]] = {
    "date": lambda value, _: value.toordinal() - _EPOCH.toordinal(), "datetime": _datetime, "timestamp": _timestamp, "time": _time,
    "decimal": lambda value, _: f"{value:f}" if not isinstance(value, str) else value, "bigint": _whole, "bit": _bytes,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
}  # fmt: skip
