"""What tasks compute of a batch for a relation that needs no state: each a `RowProgram`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, column_of, ends_in, flags_in, indices_of, numbers_in, ranges, valid_in
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, Expression, columns_of


@dataclass(frozen=True)
class CalcStep:
    """A condition, or an expression for each column that comes out."""

    names: tuple[str, ...] = ()
    expressions: tuple[Expression, ...] = ()
    condition: Expression | None = None


@dataclass(frozen=True)
class CalcProgram:
    """Filters and projections, one behind the other.

    Args:
        keeps_kind: whether the kinds of change that rows have are passed on.
        watermark_of: the step whose watermark CURRENT_WATERMARK is; None where nothing asks for it.
    """

    steps: tuple[CalcStep, ...]
    context: EvaluationContext
    keeps_kind: bool = True
    watermark_of: str | None = None

    @property
    def leaves_out(self) -> bool:
        """Whether a condition leaves rows out."""
        return any(step.condition is not None for step in self.steps)

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows that come out, and their places."""
        places: Numbers | None = None
        for step in self.steps:
            if step.condition is None:
                rows = self._projected(rows, step)
                continue
            passed = _true(evaluate(step.condition, rows, self.context))
            if not passed.all():
                kept = np.flatnonzero(passed)
                rows = rows.take(indices_of(kept))
                places = kept if places is None else places[kept]
        return rows, places

    def _projected(self, rows: pa.RecordBatch, step: CalcStep) -> pa.RecordBatch:
        columns = [evaluate(each, rows, self.context) for each in step.expressions]
        made = pa.RecordBatch.from_arrays(columns, list(step.names)) if columns else rows.select([])
        return with_kind(made, rows) if self.keeps_kind else made

    def at(self, clock_ms: int) -> CalcProgram:
        """Return the program of a checkpoint that began at a time, ms since 1970."""
        return replace(self, context=replace(self.context, now_us=clock_ms * 1_000))

    def behind(self, watermark_ms: int | None) -> CalcProgram:
        """Return the program of a checkpoint whose rows are judged by a watermark, ms since 1970; None before the first one."""
        return replace(self, context=replace(self.context, watermark_ms=watermark_ms))

    def describe(self) -> str:
        """Return it in words."""
        parts = []
        for step in self.steps:
            if step.condition is not None:
                parts.append("a condition")
            elif any(not isinstance(each, ColumnRef) for each in step.expressions):
                parts.append(f"computes {', '.join(step.names)}")
        return "calc: " + (", then ".join(parts) or "names columns")


@dataclass(frozen=True)
class InsertionsProgram:
    """Rows of which none is taken back, without the kind of change."""

    names: tuple[str, ...]
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows."""
        return rows.select(list(self.names)), None

    def describe(self) -> str:
        """Return it in words."""
        return "calc: leaves out the kind of change"


def with_kind(rows: pa.RecordBatch, given: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the kinds of change that the given ones have, if they have any."""
    if ROW_KIND not in given.schema.names or ROW_KIND in rows.schema.names:
        return rows
    return rows.append_column(ROW_KIND, given.column(ROW_KIND))


def needed_steps(steps: Sequence[CalcStep]) -> tuple[CalcStep, ...]:
    """Return the same steps, in which nothing is computed that no later one reads."""
    wanted: set[str] | None = None
    made: list[CalcStep] = []
    for step in reversed(steps):
        if step.condition is not None:
            if wanted is not None:
                wanted |= set(columns_of(step.condition))
            made.append(step)
            continue
        kept = [
            (name, each)
            for name, each in zip(step.names, step.expressions, strict=True)
            if wanted is None or name in wanted
        ]
        wanted = {column for _, each in kept for column in columns_of(each)}
        made.append(CalcStep(tuple(name for name, _ in kept), tuple(each for _, each in kept)))
    return tuple(reversed(made))


def _true(column: pa.Array) -> Any:
    valid = valid_in(column)
    flags = flags_in(column)
    return flags if valid is None else flags & valid


@dataclass(frozen=True)
class ValuesProgram:
    """Rows that are written in the script: a row of the input says by its number which of them it is."""

    names: tuple[str, ...]
    rows: tuple[tuple[Expression, ...], ...]
    context: EvaluationContext
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return a written row for each number."""
        one = pa.RecordBatch.from_arrays([pa.nulls(1)], ["one"])
        wanted = numbers_in(rows.column(0)).tolist()
        columns = [
            pa.concat_arrays([evaluate(self.rows[number][place], one, self.context) for number in wanted])
            for place in range(len(self.names))
        ]
        return pa.RecordBatch.from_arrays(columns, list(self.names)) if columns else rows, None

    def describe(self) -> str:
        """Return it in words."""
        return f"{len(self.rows)} written row{'s' if len(self.rows) != 1 else ''}"


@dataclass(frozen=True)
class UnnestProgram:
    """A row for each element of a collection."""

    collection: str
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    elements: tuple[str, ...]
    is_outer: bool
    ordinality: str | None
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, each with one element."""
        column = rows.column(self.collection)
        ends = ends_in(column)
        starts, counts = ends[:-1], np.diff(ends)
        valid = valid_in(column)
        if valid is not None:
            counts = np.where(valid, counts, 0)
        shown = np.maximum(counts, 1) if self.is_outer else counts
        places = np.repeat(np.arange(rows.num_rows), shown)
        items = ranges(starts, shown)
        there = np.repeat(counts > 0, shown) if self.is_outer else None
        taken = column_of(items, pa.int64(), there)
        kept = [rows.column(name).take(indices_of(places)) for name in self.names]
        parts = [each.take(taken) for each in self._parts(column)]
        if self.ordinality is not None:
            firsts = np.repeat(np.cumsum(shown) - shown, shown)
            parts.append(column_of((np.arange(len(places)) - firsts + 1).astype(np.int32), pa.int32(), there))
        whole = pa.RecordBatch.from_arrays([*kept, *parts], [*self.names, *self.elements])
        if ROW_KIND in rows.schema.names:
            whole = whole.append_column(ROW_KIND, rows.column(ROW_KIND).take(indices_of(places)))
        return whole, places

    def _parts(self, column: pa.Array) -> list[pa.Array]:
        if pa.types.is_map(column.type):
            return [column.keys, column.items]
        values = column.values
        if pa.types.is_struct(values.type):
            return list(values.flatten())
        return [values]

    def describe(self) -> str:
        """Return it in words."""
        return f"unnests {self.collection}"


@dataclass(frozen=True)
class ExpandProgram:
    """Each row once for each set of keys, those that are not in it being null."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    number: str
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return all rows for the first set, then all for the second, and so on."""
        n = rows.num_rows
        places = np.tile(np.arange(n), len(self.sets))
        columns = []
        for name in self.names:
            column = rows.column(name)
            if name in self.keys:
                parts = [column if name in some else pa.nulls(n, column.type) for some in self.sets]
                columns.append(pa.concat_arrays(parts))
            else:
                columns.append(column.take(indices_of(places)))
        bits = [
            sum(1 << (len(self.keys) - 1 - place) for place, key in enumerate(self.keys) if key not in some)
            for some in self.sets
        ]
        columns.append(column_of(np.repeat(np.array(bits, np.int64), n), pa.int64()))
        whole = pa.RecordBatch.from_arrays(columns, [*self.names, self.number])
        if ROW_KIND in rows.schema.names:
            whole = whole.append_column(ROW_KIND, rows.column(ROW_KIND).take(indices_of(places)))
        return whole, places

    def describe(self) -> str:
        """Return it in words."""
        return f"{len(self.sets)} sets of keys"


@dataclass(frozen=True)
class RepeatProgram:
    """Each row as often as a column says."""

    names: tuple[str, ...]
    times: str
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows."""
        places = np.repeat(np.arange(rows.num_rows), np.maximum(numbers_in(rows.column(self.times)), 0))
        names = [*self.names, *([ROW_KIND] if ROW_KIND in rows.schema.names else [])]
        return rows.select(names).take(indices_of(places)), places

    def describe(self) -> str:
        """Return it in words."""
        return f"repeats rows by {self.times}"
