"""What keyed operators emit, as Arrow rows: records of a user's function, results of windows, pairs of a join.

Rows keep their order, and their event times in a hidden column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Protocol

import pyarrow as pa

from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import declared_rows
from poundlock.operators.chain import MAIN, Emit
from poundlock.operators.keyed.output import OutputChunk
from poundlock.plan.hidden import EVENT_TIME

__all__ = [
    "EVENT_TIME",
    "KeyedOutput",
    "PairColumns",
    "PairRows",
    "RecordRows",
    "WindowRows",
    "WithoutTime",
    "with_time",
]

_EXACT = Context(prec=100)


class KeyedOutput(Protocol):
    """Makes Arrow rows of what an operator emitted under a tag. Picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, without the hidden one of event time."""
        ...

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        """Return the rows of a chunk."""
        ...


@dataclass(frozen=True)
class RecordRows:
    """Records (dicts) of a user's function.

    Args:
        operator: its id, for errors.
        schema: the columns that were declared.
    """

    operator: str
    schema: pa.Schema

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        """Return the rows of a chunk. Raises DefinitionError for what is no record of the schema."""
        return with_time(declared_rows(self.operator, self.schema, chunk.values), chunk.timestamps)


@dataclass(frozen=True)
class WindowRows:
    """Results of windows: the columns of the key, `window_start` and `window_end`, and one column for each part of a result.

    Args:
        keys: name and type of each column of the key.
        results: the same of each part of a result, which is a tuple.
        bounds: whether windows have bounds; where they have none, those columns are null.
    """

    keys: Sequence[pa.Field]
    results: Sequence[pa.Field]

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        bound = pa.timestamp("us", "UTC")
        return pa.schema([*self.keys, ("window_start", bound), ("window_end", bound), *self.results])

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        """Return the rows of a chunk."""
        keys = [chunk.keys] if len(self.keys) == 1 else list(zip(*chunk.keys, strict=True)) if self.keys else []
        windows = chunk.windows or [None] * len(chunk)
        spans = [window if type(window) is tuple else (None, None) for window in windows]
        starts, ends = ([None if span[i] is None else span[i] * 1000 for span in spans] for i in (0, 1))
        results = list(zip(*chunk.values, strict=True))
        columns = [*keys, starts, ends, *results]
        arrays = [pa.array(_scaled(values, f.type), f.type) for values, f in zip(columns, self.schema, strict=True)]
        return with_time(pa.RecordBatch.from_arrays(arrays, schema=self.schema), chunk.timestamps)


def _scaled(values: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """Return values with as many decimals as their column has; averages come with more. Spark rounds them so."""
    if not pa.types.is_decimal(kind):
        return list(values)
    unit = Decimal(1).scaleb(-kind.scale)
    return [None if v is None else v.quantize(unit, ROUND_HALF_UP, _EXACT) for v in values]


@dataclass(frozen=True)
class PairRows:
    """Pairs of records as two structs, `left` and `right`.

    Args:
        left, right: the columns of the records.
    """

    left: pa.Schema
    right: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema([("left", pa.struct(list(self.left))), ("right", pa.struct(list(self.right)))])

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        """Return the rows of a chunk."""
        arrays = [pa.array([pair[i] for pair in chunk.values], field.type) for i, field in enumerate(self.schema)]
        return with_time(pa.RecordBatch.from_arrays(arrays, schema=self.schema), chunk.timestamps)


@dataclass(frozen=True)
class PairColumns:
    """Pairs of records as columns of either.

    Args:
        columns: (side, column there, field in the result).
    """

    columns: Sequence[tuple[int, str, pa.Field]]

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema([field for _, _, field in self.columns])

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        """Return the rows of a chunk."""
        arrays = [
            pa.array([None if pair[side] is None else pair[side][name] for pair in chunk.values], field.type)
            for side, name, field in self.columns
        ]
        return with_time(pa.RecordBatch.from_arrays(arrays, schema=self.schema), chunk.timestamps)


def with_time(rows: pa.RecordBatch, times: Sequence[int | None]) -> pa.RecordBatch:
    """Return rows with their event times, in ms, in the hidden column."""
    highest = (
        1 << 63
    ) // 1000 - 1  # the last ms of which Spark can hold the microseconds; windows without bounds end later
    micros = [None if time is None or abs(time) > highest else time * 1000 for time in times]
    return rows.append_column(EVENT_TIME, pa.array(micros, pa.timestamp("us", "UTC")))


@dataclass(frozen=True)
class WithoutTime:
    """Takes the hidden event time off rows: a function of the user's never sees it."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Hand the rows on."""
        if isinstance(chunk, Batch) and EVENT_TIME in chunk.batch.schema.names:
            chunk = Batch(chunk.batch.drop_columns([EVENT_TIME]), chunk.origin)
        emit(MAIN, chunk)
