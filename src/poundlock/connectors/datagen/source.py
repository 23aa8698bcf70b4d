"""A source that makes its rows up: for demos, tests and load, at a rate or as fast as they are read, bounded or not.

A position is a number of rows; which rows a checkpoint has is fixed by its two positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from poundlock.arguments import MAPPING, NUMBER, WHOLE, check_kind, refuse_without_effect
from poundlock.calls import check_function
from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.datagen.numbered import NumberedSource
from poundlock.connectors.datagen.rows import Columns, Events, FunctionRows, RowGenerator, Times
from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Chunk, Records
from poundlock.formats.convert import to_batch, to_records
from poundlock.operators.keyed.output import sampled_bytes
from poundlock.storage import Storage
from poundlock.values import Clock, SystemClock, duration

_CHUNK = 10_000
_CHUNK_BYTES = 16 << 20
_REFERENCE_MS = 1_545_184_226_432
_MOST_MS = 1 << 53


@dataclass(frozen=True, init=False)
class DatagenSource(NumberedSource):
    """Make rows up. Row i is a function of the seed and i, whoever makes it and however often.

    Args:
        rows: what to make: nothing = the reference events, JSON lines {"timestamp", "event", "uuid"} in a column `value`;
            DDL such as "user string, n int, ts timestamp" = random values by type; or a function row(i, rng) -> dict,
            `rng` being a random.Random seeded for that row.
        schema: DDL of what the function returns.
        fields: for columns given by DDL: (least, greatest), a list to choose from, or "sequence".
        rate: rows a second, by the clock since the job first started; None = as fast as they are read.
        count: how many rows there are; None = no end.
        seed: another seed gives other rows.
        start_ms: event time of row 0, ms since 1970; the rows that follow are 1/rate apart, 1 ms without a rate.
        out_of_orderness: how much earlier than its turn an event time may be, such as "1 s".
        rows_per_checkpoint: most rows in one checkpoint.
        rows_per_split: most rows in one piece of work.
        clock: where the time comes from.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    rows: RowGenerator
    rate: float | None
    count: int | None
    rows_per_checkpoint: int
    rows_per_split: int
    clock: Clock

    def __init__(
        self,
        rows: str | Callable[..., dict[str, Any]] | None = None,
        *,
        schema: str | None = None,
        fields: Mapping[str, Any] | None = None,
        rate: float | None = None,
        count: int | None = None,
        seed: int = 0,
        start_ms: int = _REFERENCE_MS,
        out_of_orderness: str | timedelta = "0 s",
        rows_per_checkpoint: int = 1_000_000,
        rows_per_split: int = 100_000,
        clock: Clock | None = None,
    ) -> None:
        check_kind("DatagenSource", NUMBER, {"rate": rate}, optional=True)
        check_kind("DatagenSource", WHOLE, {"count": count}, optional=True)
        limits = {"rows_per_checkpoint": rows_per_checkpoint, "rows_per_split": rows_per_split}
        check_kind("DatagenSource", WHOLE, {"seed": seed, "start_ms": start_ms, **limits})
        check_kind("DatagenSource", MAPPING, {"fields": fields}, optional=True)
        for name, number in (("rate", rate), ("count", count)):
            if number is not None and (number < 0 or (name == "rate" and number == 0)):
                raise DefinitionError(
                    f"{name}={number} is not possible", next=f"give a {name} above zero, or leave it out"
                )
        if abs(start_ms) > _MOST_MS:
            raise DefinitionError(f"start_ms={start_ms} is no time", next="give milliseconds since 1970")
        if callable(rows):
            times = {"start_ms": (start_ms, _REFERENCE_MS), "out_of_orderness": (out_of_orderness, "0 s")}
            refuse_without_effect("DatagenSource", times, because="a function makes its own times")
        if rows_per_checkpoint < 1 or rows_per_split < 1:
            raise DefinitionError("a limit of a generator is below one row", next="give one row or more")
        late_ms = duration(out_of_orderness) // timedelta(milliseconds=1)
        step_us = 1000 if rate is None else max(1, round(1e6 / rate))
        made = _rows(rows, schema, fields, seed, Times(seed, start_ms, step_us, late_ms))
        values = {"rows": made, "rate": rate, "count": count, "clock": clock or SystemClock(), **limits}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def row_count(self) -> int | None:
        """How many rows there are; None: there is no end."""
        return self.count

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        return self.rows.schema()

    def preflight(self) -> None:
        """Make one row, so that a function that cannot is refused before the job starts."""
        if self.count != 0:
            _shaped(self.rows.make(0, 1), self.schema(), None)

    def enumerator(self, workspace: Storage) -> DatagenEnumerator:
        """Return the driver's half; it remembers nothing."""
        return DatagenEnumerator(self)

    def reader(self, context: ReaderContext) -> DatagenReader:
        """Return the task's half."""
        return DatagenReader(self, context)


def _rows(rows: Any, schema: str | None, fields: Mapping[str, Any] | None, seed: int, times: Times) -> RowGenerator:
    if fields and not isinstance(rows, str):
        raise DefinitionError(
            "fields are for columns given by DDL", next='write DatagenSource("n int", fields={"n": (0, 9)})'
        )
    if callable(rows):
        if schema is None:
            raise DefinitionError(
                "a generator function needs a schema", next='give schema="…", the DDL of what it returns'
            )
        check_function(rows, "DatagenSource", "number", "random")
        made = FunctionRows(rows, schema, seed)
        made.schema()
        return made
    if schema is not None:
        raise DefinitionError("schema is for a generator function", next='write DatagenSource("user string, n int")')
    return Events(seed, times) if rows is None else Columns(rows, seed, times, dict(fields or {}))


def _shaped(chunk: Chunk, schema: pa.Schema, context: ReaderContext | None) -> Chunk:
    """Return what a function made with just the declared columns."""
    if not isinstance(chunk, Records):
        return chunk
    batch = to_batch(chunk, schema, context.reject if context else None)
    return to_records(batch) if context and context.want == "records" else batch


class RowPlan(Protocol):
    """What a source says of how many rows are due."""

    @property
    def rate(self) -> float | None:
        """Rows a second; None: as many as are read."""

    @property
    def count(self) -> int | None:
        """How many rows there are; None: there is no end."""

    @property
    def rows_per_checkpoint(self) -> int:
        """Most rows in one checkpoint."""

    @property
    def rows_per_split(self) -> int:
        """Most rows in one piece of work."""

    @property
    def clock(self) -> Clock:
        """Where the time comes from."""


@dataclass(frozen=True)
class DatagenEnumerator:
    """Driver's half: how many rows are due."""

    source: RowPlan

    def initial(self) -> dict[str, Any]:
        return {"row": 0, "from_ms": self.source.clock.now_ms()}

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        source, row = self.source, int(start["row"])
        end = row + source.rows_per_checkpoint
        if source.rate is not None:
            end = min(end, int((source.clock.now_ms() - int(start["from_ms"])) * source.rate / 1000))
        if source.count is not None:
            end = min(end, source.count)
        return {**start, "row": max(row, end)}

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        step, first, last = self.source.rows_per_split, int(start["row"]), int(end["row"])
        borders = [first, *range((first // step + 1) * step, last, step), last]
        pieces = [(a, b) for a, b in pairwise(borders) if a < b]
        return [Split(f"{a:020d}", {"start": a, "stop": b}, b - a, name=f"rows {a} to {b - 1}") for a, b in pieces]

    def finished(self, position: dict[str, Any]) -> bool:
        return self.source.count is not None and int(position["row"]) >= self.source.count

    def committed(self, position: dict[str, Any]) -> None:
        """Do nothing: any row can be made again."""


@dataclass(frozen=True)
class DatagenReader:
    """Task's half: makes the rows of a split."""

    source: DatagenSource
    context: ReaderContext

    def read(self, split: Split) -> Iterator[Chunk]:
        start, stop, schema = int(split.payload["start"]), int(split.payload["stop"]), self.source.schema()
        count = 64 if isinstance(self.source.rows, FunctionRows) else _CHUNK
        while start < stop:
            made = self.source.rows.make(start, min(start + count, stop))
            start += len(made)
            if isinstance(made, Records):  # rows of a function may be of any size
                mean = sampled_bytes(made.rows) // len(made)
                count = min(2 * count, _CHUNK, max(_CHUNK_BYTES // max(mean, 1), 1))
            yield _shaped(made, schema, self.context)
