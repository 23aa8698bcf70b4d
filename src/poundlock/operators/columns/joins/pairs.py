"""What becomes of pairs of rows: columns of both, or what a user's function makes of each pair.

A function is given records, one object a row and chunk; only rows that are of a pair become records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from poundlock.arguments import function_name
from poundlock.formats.arrays import Numbers, indices_of
from poundlock.formats.convert import column_values
from poundlock.operators.columns.joins.held_rows import PairedRows
from poundlock.operators.columns.operator import ColumnChunk
from poundlock.operators.keyed.codec import canonical_key, decode
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.output import MAIN, Collector, OutputChunk, RowCollector
from poundlock.operators.keyed.state import StateStore
from poundlock.operators.process.contexts import NO_KEY
from poundlock.operators.process.joins import JoinedSides, PairContext
from poundlock.stream.functions.base import Function
from poundlock.stream.functions.process import JoinFunction, ProcessJoinFunction


class PairOutput(Protocol):
    """Columns of pairs of rows. Picklable."""

    def needed(self, side: int) -> Sequence[str]:
        """Return the columns of a side's rows that it looks at."""

    def pairs(self, sides: Sequence[pa.RecordBatch], places: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return pairs as rows.

        Args:
            sides: rows of left and right, with the columns that are needed.
            places: of each pair the place of its row in each.
        """


@dataclass(frozen=True)
class PairFunction:
    """A user's function of pairs. Picklable.

    Args:
        function: called with left and right, and by an interval join with a context.
        tags: of its side outputs.
    """

    function: ProcessJoinFunction | JoinFunction | Callable[[Any, Any], Any]
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SomePairs:
    """Pairs of rows.

    Args:
        left: the rows of left, with the columns that are needed; `right` likewise.
        result_times: event time of what comes of each pair, ms.
    """

    left: PairedRows
    right: PairedRows
    result_times: Numbers

    @property
    def sides(self) -> tuple[PairedRows, PairedRows]:
        """Left and right."""
        return self.left, self.right


class PairEmitter(Protocol):
    """Makes output of pairs."""

    def open(self) -> None:
        """Open the user's function."""

    def close(self) -> None:
        """Close it."""

    def needed(self, side: int, schema: pa.Schema) -> Sequence[str]:
        """Return the columns of a side's rows that it looks at, of those there are."""

    def emit(self, group: KeyGroup, pairs: SomePairs) -> Iterator[ColumnChunk | OutputChunk]:
        """Yield what comes of pairs."""


def emitter_of(output: PairOutput | PairFunction, out: Collector) -> PairEmitter:
    """Return what makes output of pairs; `out` gathers what a function gives."""
    return _Calls(output, out) if isinstance(output, PairFunction) else _Columns(output)


@dataclass
class _Columns:
    """Columns of both rows."""

    output: PairOutput

    def open(self) -> None:
        """Nothing is to be opened."""

    def close(self) -> None:
        """Nothing is to be closed."""

    def needed(self, side: int, schema: pa.Schema) -> Sequence[str]:
        return self.output.needed(side)

    def emit(self, group: KeyGroup, pairs: SomePairs) -> Iterator[ColumnChunk | OutputChunk]:
        rows = self.output.pairs(
            [side.records for side in pairs.sides], [indices_of(side.places) for side in pairs.sides]
        )
        yield ColumnChunk(MAIN, rows, pairs.result_times)


class _Calls:
    """What a function makes of each pair."""

    def __init__(self, of: PairFunction, out: Collector) -> None:
        function = self._function = of.function
        self._opened = function if isinstance(function, Function) else None
        self._stateful = self._opened is not None and type(self._opened).open is not Function.open
        self._store = StateStore("state:")
        self._out = out
        self._context = PairContext()
        self._call = self._call_with(function)
        self._rows = RowCollector(out, function_name(function), of.tags)

    def _call_with(self, function: Any) -> Callable[[Any, Any], Iterable[Any] | None]:
        if isinstance(function, ProcessJoinFunction):
            process, context = function.process_element, self._context
            return lambda left, right: process(left, right, context)
        join = function.join if isinstance(function, JoinFunction) else function
        return lambda left, right: JoinedSides.one_or_several(join(left, right))

    def open(self) -> None:
        if self._opened is not None:
            self._store.entry = NO_KEY
            self._opened.open(self._store)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def needed(self, side: int, schema: pa.Schema) -> Sequence[str]:
        return list(schema.names)

    def emit(self, group: KeyGroup, pairs: SomePairs) -> Iterator[ColumnChunk | OutputChunk]:
        left, right = (_records(side.records, side.places) for side in pairs.sides)
        keys: Sequence[Any] = [None] * len(left)
        if self._stateful:
            encoded = pairs.left.keys.take(indices_of(pairs.left.places)).to_pylist()
            values = {data: canonical_key(decode(data)) for data in encoded}
            keys = list(map(values.__getitem__, encoded))
            group.prefetch(values.values())
        self._store.use(group)
        times = [side.times.tolist() for side in pairs.sides]
        context, collect, out = self._context, self._rows.collect, self._out
        for one, other, key, context.left, context.right, time in zip(
            left, right, keys, *times, pairs.result_times.tolist(), strict=True
        ):
            self._store.entry = key
            rows = self._call(one, other)
            if rows is not None:
                collect(rows, key, time)
            if out.full:
                yield from out.drain()
        yield from out.drain()


def _records(rows: pa.RecordBatch, places: Numbers) -> list[dict[str, Any]]:
    """Return the record of each place; one object for each row."""
    used, which = np.unique(places, return_inverse=True)
    some, names = rows.take(indices_of(used)), rows.schema.names
    records = [dict(zip(names, row, strict=True)) for row in zip(*map(column_values, some.columns), strict=True)]
    return list(map(records.__getitem__, which.tolist()))
