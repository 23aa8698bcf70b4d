"""What windows by columns ask of whatever adds rows up, and the aggregates of a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.arrays import Numbers, column_of, indices_of, numbers_in
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.records import LAYOUT, decode_records, encode_records
from poundlock.stream.functions.arrow import ArrowAggregateFunction


class Aggregation(Protocol):
    """Adds up rows; what the rows of a group come to is one row of columns, its accumulator. Picklable."""

    @property
    def types(self) -> list[pa.DataType]:
        """The types of an accumulator's columns."""

    @property
    def places(self) -> Sequence[int]:
        """Which of the columns say at which place a value came: `partial` is then given those of rows, behind the other columns."""

    @property
    def described(self) -> tuple[str, ...]:
        """What state holds, as its manifest says it."""

    def partial(self, columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return what the rows of each group add up to."""

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return one accumulator for each group of them, each in the order of its rows."""

    def results(self, held: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return the results, of some types."""

    def encode(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return accumulators as the bytes that state keeps, large_binary."""

    def decode(self, values: pa.Array) -> list[pa.Array]:
        """Return accumulators that were encoded."""


@dataclass(frozen=True)
class SpansAndSums:
    """Accumulators of sessions: when each begins and ends, ms, then what its rows add up to."""

    own: Aggregation

    @property
    def types(self) -> list[pa.DataType]:
        """The types of the columns."""
        return [pa.int64(), pa.int64(), *self.own.types]

    @property
    def places(self) -> Sequence[int]:
        """Which of the columns say at which place a value came."""
        return [2 + place for place in self.own.places]

    def partial(self, times: Numbers, gap: int, own: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return the accumulators of groups of rows, of which it is known what they add up to.

        Args:
            times: of each row, ms.
            gap: of the sessions, ms.
        """
        return [*_spans(times, times + gap, groups), *own]

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return one accumulator for each group of them."""
        return [*self.bounds(held, groups), *self.own.merge(held[2:], groups)]

    def bounds(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return when the accumulator of each group begins and ends."""
        return _spans(numbers_in(held[0]), numbers_in(held[1]), groups)


def _spans(starts: Numbers, ends: Numbers, groups: Groups) -> list[pa.Array]:
    if not len(groups):
        return [pa.nulls(0, pa.int64())] * 2
    least = np.minimum.reduceat(starts[groups.order], groups.starts)
    return [column_of(each, pa.int64()) for each in (least, np.maximum.reduceat(ends[groups.order], groups.starts))]


@dataclass(frozen=True)
class FunctionAggregation:
    """An aggregate of the user's own.

    Args:
        operator: id of the step, for errors.
        names: the columns that rows are given with.
        result: DDL of the results.
    """

    operator: str
    function: ArrowAggregateFunction
    names: tuple[str, ...]
    result: str

    @cached_property
    def _accumulator(self) -> pa.Schema:
        return ddl.parse(self.function.accumulator)

    @property
    def types(self) -> list[pa.DataType]:
        """The types of an accumulator's columns."""
        return list(self._accumulator.types)

    @property
    def places(self) -> Sequence[int]:
        """None: accumulators of windows that overlap are merged in any order."""
        return ()

    @property
    def described(self) -> tuple[str, ...]:
        """The columns of an accumulator: runs keep them beside each other, since a merge of runs does not know the function."""
        return (LAYOUT + ddl.render(self._accumulator),)

    def partial(self, columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return what the rows of each group add up to.

        Raises:
            DefinitionError: the function returns something else than accumulators.
        """
        rows = pa.RecordBatch.from_arrays(list(columns), list(self.names))
        return self._of_groups("accumulate", rows, groups)

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return one accumulator for each group of them; raises as `partial`."""
        if groups.are_single:
            rows = indices_of(groups.order)
            return [column.take(rows) for column in held]
        return self._of_groups("merge", self._batch(held), groups)

    def _of_groups(self, method: str, rows: pa.RecordBatch, groups: Groups) -> list[pa.Array]:
        if not len(groups):
            return [pa.nulls(0, kind) for kind in self.types]
        count = len(groups)
        if len(groups.order) != rows.num_rows or (groups.order[1:] <= groups.order[:-1]).any():
            rows = rows.take(indices_of(groups.order))
        call = self.function.accumulate if method == "accumulate" else self.function.merge
        returned = call(rows, np.repeat(np.arange(count), groups.counts), count)
        return self._checked(method, returned, self._accumulator, count, "groups")

    def results(self, held: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return the results; raises as `partial`."""
        schema = ddl.parse(self.result)
        if not len(held[0]):
            return [pa.nulls(0, kind) for kind in schema.types]
        returned = self.function.result(self._batch(held))
        return self._checked("result", returned, schema, len(held[0]), "accumulators")

    def encode(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return accumulators as the bytes that state keeps, large_binary."""
        return encode_records(self._batch(held))

    def decode(self, values: pa.Array) -> list[pa.Array]:
        """Return accumulators that were encoded."""
        return list(decode_records(values, self._accumulator).columns)

    def _batch(self, held: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(list(held), schema=self._accumulator)

    def _checked(self, method: str, returned: Any, schema: pa.Schema, count: int, of: str) -> list[pa.Array]:
        """Return the columns that a method returned, of the types that were declared."""
        who = f"{self.operator}: {type(self.function).__name__}.{method}"
        columns = _columns_in(returned, who)
        if missing := [name for name in schema.names if name not in columns]:
            raise DefinitionError(
                f"{who} returned no column {', '.join(missing)}",
                next=f"return the columns that are declared: {ddl.render(schema)}",
            )
        if unknown := [name for name in columns if name not in schema.names]:
            raise DefinitionError(
                f"{who} returned the column {', '.join(unknown)}, which is not declared",
                next=f"leave it out, or declare it beside: {ddl.render(schema)}",
            )
        for name, column in columns.items():
            if len(column) != count:
                raise DefinitionError(
                    f"{who} returned {len(column)} values of {name!r} for {count} {of}",
                    next=f"return one for each of the {of}, in their order",
                )
        return [_cast(columns[field.name], field, who) for field in schema]


def _columns_in(returned: Any, who: str) -> Mapping[str, pa.Array]:
    """Return what a method returned as columns by name.

    Raises:
        DefinitionError: it is nothing of the kind.
    """
    if isinstance(returned, pa.Table):
        returned = returned.combine_chunks()
        names, columns = returned.schema.names, [column.combine_chunks() for column in returned.columns]
    elif isinstance(returned, pa.RecordBatch):
        names, columns = returned.schema.names, returned.columns
    elif isinstance(returned, Mapping):
        names = list(returned)
        columns = [_array(column, name, who) for name, column in returned.items()]
    else:
        raise DefinitionError(
            f"{who} returned {type(returned).__name__}, not columns",
            next="return a pyarrow.RecordBatch, a Table, or a dict of names to arrays",
        )
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise DefinitionError(
            f"{who} returned the column {twice[0]} more than once", next="return each of the columns once"
        )
    return dict(zip(names, columns, strict=True))


def _array(values: Any, name: str, who: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DefinitionError(
            f"{who} returned for {name!r} what is no column: {error}", next="return an array of pyarrow or numpy"
        ) from error


def _cast(column: pa.Array, field: pa.Field, who: str) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise DefinitionError(
            f"{who} returned {field.name!r} of type {column.type}, and {ddl.render_type(field.type)} is declared: {error}",
            next="declare the type that it returns, or cast it there",
        ) from error
