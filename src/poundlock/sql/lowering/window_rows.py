"""Rows with the windows that they are in, and the first rows of each window in an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, ends_in, indices_of, numbers_in
from poundlock.formats.arrays import lists_of as lists_of_counts
from poundlock.operators.columns.sql.ordinals import order_keys
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.functions.casts import cast
from poundlock.sql.functions.function import NullRowtime
from poundlock.sql.relations.tree import OrderKey, SqlWindow
from poundlock.sql.types import SqlType
from poundlock.stream.functions.arrow import ArrowAggregateFunction

_LOCAL, _INSTANT = SqlType("TIMESTAMP", (3,)), SqlType("TIMESTAMP_LTZ", (3,))
_MICROS = pa.timestamp("us")


@dataclass(frozen=True)
class WindowTableProgram:
    """Each row once for each window that it is in, the bounds behind its columns.

    Args:
        names: the columns that stay.
        bounds: what window_start, window_end and window_time are called.
        time: the type of the time attribute.
    """

    window: SqlWindow
    names: tuple[str, ...]
    bounds: tuple[str, str, str]
    time: SqlType
    context: EvaluationContext
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows with their windows, earlier windows of a row first."""
        local = self._local(rows)
        places, starts, ends = self._windows(local)
        kept = rows.select([*self.names, *([ROW_KIND] if ROW_KIND in rows.schema.names else [])])
        taken = kept.take(indices_of(places)) if places is not None else kept
        start, end = (column_of(each * 1_000, _MICROS) for each in (starts, ends))
        moments = column_of((ends - 1) * 1_000, _MICROS)
        if self.time.root == "TIMESTAMP_LTZ":
            moments = cast(moments, _LOCAL, _INSTANT, self.context.zone, is_try=False)
        columns = [*taken.columns[: len(self.names)], start, end, moments, *taken.columns[len(self.names) :]]
        names = [*self.names, *self.bounds, *taken.schema.names[len(self.names) :]]
        return pa.RecordBatch.from_arrays(columns, names), places

    def _local(self, rows: pa.RecordBatch) -> Numbers:
        """Return the time of each row, ms, on the clock that borders follow."""
        column = rows.column(self.window.time)
        if column.null_count:
            raise NullRowtime(
                "a row has NULL for its event time",
                next="leave such rows out: … WHERE time IS NOT NULL",
            )
        if self.window.is_local:
            column = cast(column, _INSTANT, _LOCAL, self.context.zone, is_try=False)
        return numbers_in(column.cast(_MICROS)) // 1_000

    def _windows(self, times: Numbers) -> tuple[Numbers | None, Numbers, Numbers]:
        """Return the place of the row of each window, and the bounds of the windows, ms."""
        window = self.window
        if window.kind == "tumble":
            starts = times - (times - window.offset) % window.size
            return None, starts, starts + window.size
        rows = np.arange(len(times))
        if window.kind == "hop":
            last = times - (times - window.offset) % window.step
            count = -(-window.size // window.step)
            back = np.arange(count - 1, -1, -1) * window.step
            starts = (last[:, None] - back[None, :]).ravel()
            places = np.repeat(rows, count)
            covers = starts + window.size > times[places]
            return places[covers], starts[covers], starts[covers] + window.size
        starts = times - (times - window.offset) % window.size
        first = (times - starts) // window.step + 1
        most = window.size // window.step
        counts = most - first + 1
        places = np.repeat(rows, counts)
        steps = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        return places, starts[places], starts[places] + steps * window.step

    def describe(self) -> str:
        """Return it in words."""
        return f"{self.window.kind} windows of rows"


class FirstRows(ArrowAggregateFunction):
    """The rows of a window that come first in an order, as one list; of rows that are equal in it the one that came first.

    Args:
        schema: of the rows.
        n: how many.
    """

    def __init__(self, schema: pa.Schema, order: Sequence[OrderKey], n: int) -> None:
        from poundlock.formats import ddl

        self.columns = tuple(schema.names)
        self.accumulator = f"`{ROWS}` array<struct<{ddl.render(schema)}>>"
        self._fields = list(schema)
        self._order, self._n = tuple(order), n

    def accumulate(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return the first rows of each group."""
        return {ROWS: self._first(list(rows.columns), groups, count)}

    def merge(self, accumulators: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return the first rows of the lists of each group."""
        lists = accumulators.column(0)
        lengths: Numbers = np.diff(ends_in(lists))
        values = lists.flatten()
        return {ROWS: self._first(list(values.flatten()), np.repeat(groups, lengths), count)}

    def result(self, accumulators: pa.RecordBatch) -> Any:
        """Return the lists."""
        return {ROWS: accumulators.column(0)}

    def _first(self, columns: list[pa.Array], groups: npt.NDArray[np.int64], count: int) -> pa.Array:
        names = [field.name for field in self._fields]
        keys: list[Numbers] = []
        for key in reversed(self._order):
            column = columns[names.index(key.column)]
            keys += order_keys(column, descending=key.is_descending, nulls_first=key.nulls_first)
        order = np.lexsort((np.arange(len(groups)), *keys, groups))
        sorted_groups = groups[order]
        firsts = np.searchsorted(sorted_groups, np.arange(count))
        rank = np.arange(len(order)) - firsts[sorted_groups]
        kept = order[rank < self._n]
        lengths = np.bincount(groups[kept], minlength=count).astype(np.int64)
        taken = [column.take(indices_of(kept)) for column in columns]
        return lists_of_counts(pa.StructArray.from_arrays(taken, fields=self._fields), lengths)


ROWS = "$rows"


@dataclass(frozen=True)
class RankedRowsProgram:
    """A row for each of a window's first rows, with its place.

    Args:
        names: the columns of the rows.
        first: the first place that is wanted.
        rank: the column of the place; None where it is not wanted.
    """

    names: tuple[str, ...]
    first: int
    rank: str | None
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, window after window."""
        lists = rows.column(ROWS)
        lengths: Numbers = np.diff(ends_in(lists))
        places = np.repeat(np.arange(rows.num_rows), lengths)
        rank = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        values = lists.flatten()
        columns, names = list(values.flatten()), list(self.names)
        if self.rank is not None:
            columns.append(column_of(rank, pa.int64()))
            names.append(self.rank)
        made = pa.RecordBatch.from_arrays(columns, names)
        if self.first > 1:
            kept = np.flatnonzero(rank >= self.first)
            return made.take(indices_of(kept)), places[kept]
        return made, places

    def describe(self) -> str:
        """Return it in words."""
        return "the first rows of windows"
