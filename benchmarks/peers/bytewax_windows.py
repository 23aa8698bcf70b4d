"""Counts and sums by key and ten seconds on Bytewax: `python -m bytewax.run "bytewax_windows.py:flow(SERVERS, TOPIC, OUT)"`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.files import DirSink
from bytewax.connectors.kafka import KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing as win

_ALIGN = datetime(2018, 12, 19, tzinfo=UTC)
_LENGTH = timedelta(seconds=10)


def _row(message: KafkaSourceMessage[bytes, bytes]) -> tuple[str, dict[str, Any]]:
    row = json.loads(message.value)
    return row["key"], row


def _time(row: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(row["timestamp"], UTC)


def _add(sums: tuple[int, float], row: dict[str, Any]) -> tuple[int, float]:
    return sums[0] + 1, sums[1] + row["value"]


def _merge(a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
    return a[0] + b[0], a[1] + b[1]


def _line(item: tuple[str, tuple[int, tuple[int, float]]]) -> tuple[str, str]:
    key, (window, (n, total)) = item
    start = _ALIGN + window * _LENGTH
    return key, json.dumps({"key": key, "window_start": start.isoformat(), "n": n, "total": total})


def flow(servers: str, topic: str, out: str) -> Dataflow:
    """Return the dataflow."""
    counts = Dataflow("windows")
    messages = op.input("rows", counts, KafkaSource([servers], [topic], tail=False))
    rows = op.map("row", messages, _row)
    # The watermark of a key also moves with the system's clock, and a topic that is read more slowly than it was written has rows
    # late by it: 37 % of them. Here that clock stands still, and windows are closed by rows and by the end.
    clock = win.EventClock(
        _time, wait_for_system_duration=timedelta(seconds=5), now_getter=lambda: _ALIGN, to_system_utc=lambda _: None
    )
    windower = win.TumblingWindower(length=_LENGTH, align_to=_ALIGN)
    sums = win.fold_window("sums", rows, clock, windower, lambda: (0, 0.0), _add, _merge, ordered=False)
    op.output("out", op.map("line", sums.down, _line), DirSink(Path(out), file_count=2))
    return counts
