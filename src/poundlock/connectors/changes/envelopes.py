"""Changes as Debezium's connectors write them: JSON without schemas, one message a change, whatever server they are of.

Nothing of the clock is in it: `ts_ms` is the time of the change, so that a second reading gives the same text.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema([("table", pa.string()), ("key", pa.string()), ("value", pa.string())])
"""The columns of the rows: which table, its primary key and the change, both as JSON; no key for a table that was emptied."""
EPOCH = datetime.datetime(1970, 1, 1)
_OPS = {"read": "r", "insert": "c", "update": "u", "delete": "d", "truncate": "t"}
_MICROSECOND = datetime.timedelta(microseconds=1)

Row = Mapping[str, Any]


def envelopes(
    changes: pa.RecordBatch,
    table: str,
    key: Sequence[str],
    image: Callable[[Row], dict[str, Any]],
    source: Callable[[Row], dict[str, Any]],
) -> pa.RecordBatch:
    """Return change rows of one table as Debezium's.

    Args:
        image: makes of a row what stands in `before` and `after`.
        source: makes of a change what stands in `source` beside `ts_ms` and `snapshot`; where it has those, their places.
    """
    keys, values = [], []
    for row in changes.to_pylist():
        before, after = (None if row[side] is None else image(row[side]) for side in ("before", "after"))
        shown = after if after is not None else before
        keys.append(None if shown is None or not key else _text({name: shown[name] for name in key}))
        time = row["commit_time"]
        moment = 0 if time is None else micros(time.replace(tzinfo=None)) // 1000
        known = {**source(row), "ts_ms": moment, "snapshot": "true" if row["op"] == "read" else "false"}
        values.append(
            _text({"before": before, "after": after, "source": known, "op": _OPS[row["op"]], "ts_ms": moment})
        )
    arrays = [pa.repeat(pa.scalar(table), len(values)), pa.array(keys, pa.string()), pa.array(values, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def micros(value: datetime.datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (value - EPOCH) // _MICROSECOND


def days(value: datetime.date) -> int:
    """Return a date as days since 1970."""
    return value.toordinal() - EPOCH.toordinal()


def zoned(value: datetime.datetime) -> str:
    """Return a moment as text in UTC."""
    return value.replace(tzinfo=None).isoformat(timespec="microseconds").rstrip("0").rstrip(".") + "Z"


def micros_of_time(text: str) -> int:
    """Return a time of the day, or a span, such as -01:00:01.5 as microseconds."""
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    count = ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
    return -count if text.startswith("-") else count


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
