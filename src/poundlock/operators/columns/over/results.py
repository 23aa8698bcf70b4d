"""The results of aggregates for rows that stand in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, joined, numbers_in
from poundlock.operators.columns.changelog.signed import canonical, taken
from poundlock.operators.columns.changelog.values import encode_columns
from poundlock.operators.columns.over.functions import RangeFunction, function_of, shown_rows
from poundlock.operators.columns.over.order import PlacedRows
from poundlock.operators.columns.over.own import OwnOfFrames, run_on
from poundlock.operators.columns.over.ranges import written_out
from poundlock.stream.changelog_nodes import GroupFunction
from poundlock.stream.over_nodes import OF_PLACES, RANKS, OverCall

_NUMBERED = pa.int64()


def _function(call: OverCall, schema: pa.Schema) -> RangeFunction:
    kind = kind_of(call, schema)
    return function_of(call, kind) if call.own is None else OwnOfFrames(kind, call.own)


def is_running(call: OverCall) -> bool:
    """Return whether a result follows from the row itself and what all rows before it come to."""
    if call.function in RANKS:
        return True
    framed = call.function not in (*OF_PLACES, "lag", "lead")
    return framed and call.frame.preceding is None and call.frame.following == 0


def argument_of(call: OverCall, rows: pa.RecordBatch) -> pa.Array:
    """Return the values that an aggregate is of; truth values where it is of rows."""
    if call.column is not None:
        return rows.column(call.column)
    return column_of(np.ones(rows.num_rows, np.int64), _NUMBERED)


def kind_of(call: OverCall, schema: pa.Schema) -> pa.DataType:
    """Return the type of the values that an aggregate is of."""
    return _NUMBERED if call.column is None else schema.field(call.column).type


class RunningResult:
    """An aggregate of all rows of a key up to the current one, of which what is kept stands for those before."""

    def __init__(self, call: OverCall, schema: pa.Schema) -> None:
        self.call = call
        self.function: RangeFunction = _function(call, schema)
        self.types = self.function.types

    def shown(self, rows: pa.RecordBatch, placed: PlacedRows) -> Flags:
        """Return which rows count."""
        if self.call.function == "dense_rank":
            return placed.firsts_of_equals
        chosen = None if self.call.filter is None else rows.column(self.call.filter)
        return shown_rows(argument_of(self.call, rows), chosen, keeps_nulls=self.function.keeps_nulls)

    def results(
        self, rows: pa.RecordBatch, shown: Flags, placed: PlacedRows, held: Sequence[pa.Array]
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Return the result of each row, and what is kept of each key.

        Args:
            shown: which rows count.
            held: what was kept of some keys, as `placed` has it.
        """
        call = self.call
        if call.own is not None:
            return self._of_own(call.own, rows, shown, placed, held)
        own = self.function.kept(argument_of(call, rows), shown)
        columns = [placed.column(before, column) for before, column in zip(held, own, strict=True)]
        stretches = self.function.stretches(columns)
        first = placed.starts[placed.of]
        if call.function == "rank":
            stop = placed.firsts
        elif call.function in RANKS or call.frame.unit == "rows":
            stop = placed.at + 1
        else:
            stop = placed.lasts + 1
        kept = stretches(first, stop)
        if call.function == "rank":
            kept = [pc.add(kept[0], 1)]
        return self.function.result(kept, call.type), stretches(placed.starts, placed.ends)

    def _of_own(
        self, own: GroupFunction, rows: pa.RecordBatch, shown: Flags, placed: PlacedRows, held: Sequence[pa.Array]
    ) -> tuple[pa.Array, list[pa.Array]]:
        results, kept = run_on(own, argument_of(self.call, rows), shown, placed, held)
        if self.call.frame.unit == "range":  # equal rows see each other
            results = results.take(indices_of(np.searchsorted(placed.at, placed.lasts)))
        return results if results.type == self.call.type else results.cast(self.call.type), kept


class FramedResult:
    """An aggregate of the rows of a frame, or what follows from the place of a row among all of its key.

    Args:
        from_last: whether LAG and LEAD count from the last row that is equal to a row, and not from the row itself.
    """

    def __init__(self, call: OverCall, schema: pa.Schema, *, from_last: bool) -> None:
        self.call, self._from_last = call, from_last
        of_places = call.function in (*OF_PLACES, "lag", "lead")
        self.function = None if of_places else _function(call, schema)
        self._running = None if call.own is None or not is_running(call) else RunningResult(call, schema)

    def results(
        self, rows: pa.RecordBatch, placed: PlacedRows, held: pa.RecordBatch | None, spans: Numbers | None
    ) -> pa.Array:
        """Return the result of each row.

        Args:
            rows: those that results are wanted of, in order.
            held: rows before them.
            spans: see `PlacedRows.frames`.
        """
        call = self.call
        if call.function in ("lag", "lead"):
            return self._shifted(rows, placed, held)
        if self.function is None:
            return _placed(call, placed)
        own = self._columns(rows)
        columns = [
            placed.column(before, column) for before, column in zip(self._held(held, len(own)), own, strict=True)
        ]
        values, chosen = columns[0], None if len(columns) == 1 else columns[1]
        shown = shown_rows(values, chosen, keeps_nulls=self.function.keeps_nulls)
        first, stop = placed.frames(call.frame, spans)
        if self._running is not None and held is None:  # no frame has to be gone through again
            if call.distinct:
                shown &= _places_before(values, shown) < first
            return self._running.results(rows, shown, placed, ())[0]
        if call.distinct and call.function not in ("min", "max"):
            kept = self._distinct(self.function, values, shown, first, stop)
        else:
            kept = self.function.stretches(self.function.kept(values, shown))(first, stop)
        return self.function.result(kept, call.type)

    def _columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        columns = [argument_of(self.call, rows)]
        return columns if self.call.filter is None else [*columns, rows.column(self.call.filter)]

    def _held(self, held: pa.RecordBatch | None, count: int) -> list[pa.Array | None]:
        return [None] * count if held is None else list(self._columns(held))

    def _shifted(self, rows: pa.RecordBatch, placed: PlacedRows, held: pa.RecordBatch | None) -> pa.Array:
        call = self.call
        values = placed.column(None if held is None else argument_of(call, held), argument_of(call, rows))
        at = placed.lasts if self._from_last else placed.at
        wanted = at + (call.offset if call.function == "lead" else -call.offset)
        there = (wanted >= placed.starts[placed.of]) & (wanted < placed.ends[placed.of])
        result = taken(values, np.where(there, wanted, -1)).cast(call.type)
        if call.default is None or there.all():
            return result
        default = rows.column(call.default).cast(call.type)
        places = np.where(there, np.arange(len(there)), len(there) + np.arange(len(there)))
        return joined([result, default]).take(indices_of(places))

    def _distinct(
        self, function: RangeFunction, values: pa.Array, shown: Flags, first: Numbers, stop: Numbers
    ) -> list[pa.Array]:
        before = _places_before(values, shown)
        kept = function.distinct(values, shown, before, first, stop)
        if kept is not None:
            return kept
        parts: list[list[pa.Array]] = []
        for some, of, places in written_out(first, stop):
            new = shown[places] & (before[places] < first[of])
            places, of = places[new], of[new]
            wanted = np.arange(some.start, some.stop)
            bounds = [np.searchsorted(of, wanted, side) for side in ("left", "right")]
            own = function.kept(values.take(indices_of(places)), np.ones(len(places), np.bool_))
            parts.append(function.stretches(own)(bounds[0], bounds[1]))
        if not parts:
            return [pa.nulls(0, kind) for kind in function.types]
        return [joined(list(each)) for each in zip(*parts, strict=True)]


def _places_before(values: pa.Array, shown: Flags) -> Numbers:
    """Return the place of the row before each that counts and has an equal value, -1 where there is none."""
    encoded = encode_columns(canonical(values)).dictionary_encode()
    codes = numbers_in(encoded.indices).astype(np.int64)
    places = np.flatnonzero(shown)
    order = places[np.argsort(codes[places], kind="stable")]
    before = np.full(len(shown), -1)
    same = codes[order[1:]] == codes[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def _placed(call: OverCall, placed: PlacedRows) -> pa.Array:
    start, count = placed.starts[placed.of], (placed.ends - placed.starts)[placed.of]
    place = placed.at - start
    made: Any
    if call.function == "row_number":
        made = place + 1
    elif call.function == "rank":
        made = placed.firsts - start + 1
    elif call.function == "dense_rank":
        dense = np.cumsum(placed.firsts_of_equals)
        made = dense - dense[np.searchsorted(placed.of, placed.of)] + 1
    elif call.function == "percent_rank":
        made = np.where(count > 1, (placed.firsts - start) / np.maximum(count - 1, 1), 0.0)
    elif call.function == "cume_dist":
        made = (placed.lasts + 1 - start) / count
    else:
        # The first parts have one row more where parts are not equal.
        width, more = count // call.offset, count % call.offset
        wide = more * (width + 1)
        made = np.where(place < wide, place // (width + 1), more + (place - wide) // np.maximum(width, 1)) + 1
    return column_of(made, pa.float64() if made.dtype.kind == "f" else _NUMBERED).cast(call.type)
