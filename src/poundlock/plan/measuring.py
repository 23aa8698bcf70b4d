"""What stands for a sink in a replay: rows are encoded, counted and digested as the sink does it, and reach nobody.

A sink that cannot be measured has its rows counted only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from poundlock.checkpoint.capabilities import check_rows, takes_columns
from poundlock.checkpoint.participant import JSON, Participant, Writer, WriterContext
from poundlock.formats.chunk import Batch, Chunk, Lines

SHOWN = "shown"


@dataclass(frozen=True)
class MeasuredSink:
    """Stands for a sink in the tasks of a replay.

    Args:
        measuring: what writes instead; None = rows are only counted.
        show: so many rows of each task are handed back as JSON texts, under "shown" of its first payload.
    """

    sink: Any
    measuring: Participant | None
    show: int = 0

    @property
    def bulk(self) -> bool:
        """Whether rows have to come as columns."""
        return takes_columns(self.sink)

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        check_rows(self.sink, sink, schema)

    def open_writer(self, context: WriterContext) -> Writer:
        inner: Writer = _Counting() if self.measuring is None else self.measuring.open_writer(context)
        return _Showing(inner, self.show) if self.show else inner


@dataclass(slots=True)
class _Counting:
    """Counts rows."""

    rows: int = 0

    def write(self, chunk: Chunk) -> int:
        self.rows += len(chunk)
        return len(chunk)

    def prepare(self) -> Sequence[JSON]:
        return [{"v": 1, "rows": self.rows}]

    def abandon(self) -> None:
        """Nothing was written."""


@dataclass(slots=True)
class _Showing:
    """Keeps the first rows that come."""

    inner: Writer
    most: int
    shown: list[str] = field(default_factory=list)

    def write(self, chunk: Chunk) -> int:
        left = self.most - len(self.shown)
        if left > 0:
            self.shown += _texts(chunk, min(left, len(chunk)))
        return self.inner.write(chunk)

    def prepare(self) -> Sequence[JSON]:
        payloads = [dict(payload) for payload in self.inner.prepare()]
        if payloads:
            payloads[0][SHOWN] = self.shown
        return payloads

    def abandon(self) -> None:
        self.inner.abandon()


def _texts(chunk: Chunk, count: int) -> list[str]:
    if isinstance(chunk, Lines):
        return [_text(chunk.row(i)) for i in range(count)]
    rows: Sequence[Any] = chunk.batch.slice(0, count).to_pylist() if isinstance(chunk, Batch) else chunk.rows[:count]
    return [json.dumps(_visible(row), default=_text, ensure_ascii=False) for row in rows]


def _visible(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("__")}


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
