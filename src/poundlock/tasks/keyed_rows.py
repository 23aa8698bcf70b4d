"""Arrow rows into keyed operators and out of them: keys, elements and event times; records, results of windows, pairs of a join.

Rows keep their order. What comes out has its event times in a hidden column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import column_from, column_of, numbers_in
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import column_values, declared_rows
from poundlock.operators.chain import MAIN, Emit
from poundlock.operators.keyed.codec import normal
from poundlock.operators.keyed.output import GroupBatch, OutputChunk
from poundlock.operators.records import RecordMaker
from poundlock.tasks.columns import EVENT_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedInput:
    """How the rows of one input become an operator's batches.

    Args:
        time: the column of event time, None where there is none.
        elements: makes an element of the values of its columns.
        lazy: whether elements are made as they are gone through, once; else they are all there at the same time.
        whole: columns of a row as the user knows it, where rows may be sent on as they came.
    """

    keys: Sequence[str]
    time: str | None
    elements: RecordMaker
    lazy: bool = False
    whole: Sequence[str] = ()

    @property
    def columns(self) -> Sequence[str]:
        """The columns that elements are made of."""
        return self.elements.columns

    def batch(self, rows: pa.RecordBatch, side: int) -> GroupBatch:
        count = rows.num_rows
        values = {name: column_values(rows.column(name)) for name in dict.fromkeys((*self.keys, *self.columns))}
        kinds = {name: rows.column(name).type for name in self.keys}
        keys = [normal(values[name]) if pa.types.is_floating(kind) else values[name] for name, kind in kinds.items()]
        one: list[Any] = keys[0] if len(keys) == 1 else list(zip(*keys, strict=True)) if keys else [None] * count
        given = [values[name] for name in self.columns]
        elements: Sequence[Any] = Elements(self.elements, given, count)
        times = None if self.time is None else _ms(rows.column(self.time))
        return GroupBatch(one, elements if self.lazy else list(elements), times, range(count), side)


@dataclass(frozen=True, slots=True)
class Elements(Sequence[Any]):
    """Elements that are made of columns when they are asked for, and kept by nobody."""

    maker: RecordMaker
    values: Sequence[Sequence[Any]]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[Any]:
        return self.maker.of_columns(self.values, self.rows)

    @overload
    def __getitem__(self, place: int) -> Any: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return list(self)[place]
        return next(self.maker.of_columns([[column[place]] for column in self.values], 1))


def _ms(column: pa.Array) -> list[int | None]:
    """Return timestamps as ms, rounded down; the list holds None where there is no time."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if not micros.null_count:
        return (numbers_in(micros) // 1000).tolist()  # type: ignore[no-any-return]
    return [None if value is None else value // 1000 for value in micros.to_pylist()]


def check_keys(operator: str, texts: Sequence[Sequence[str]], sides: Sequence[pa.Schema]) -> None:
    """Raise unless keys can be distinguished, and those of several inputs can meet.

    Args:
        texts: per input with keys, the SQL text of each.

    Raises:
        DefinitionError: one is an array, a struct or a map, or the inputs' keys are of different types.
    """
    for keys, side in zip(texts, sides, strict=True):
        for text, result, first, meets in zip(keys, side, texts[0], sides[0], strict=True):
            if pa.types.is_nested(result.type):
                raise DefinitionError(
                    f"{operator}: the key {text} is of type {result.type}, which cannot be a key",
                    next=f"give its parts as several keys, or to_json({text})",
                )
            if not _meet(result.type, meets.type):
                raise DefinitionError(
                    f"{operator}: the keys {first} and {text} are of the types {meets.type} and {result.type}, which never meet",
                    next="CAST one of them to the type of the other",
                )


def _meet(one: pa.DataType, other: pa.DataType) -> bool:
    return one == other or any(alike(one) and alike(other) for alike in (pa.types.is_integer, pa.types.is_floating))


_EXACT = Context(prec=100)
_HIGHEST = (
    1 << 63
) // 1000 - 1  # the last ms of which Spark can hold the microseconds; windows without bounds end later


class KeyedOutput:
    """Makes Arrow rows of what an operator emitted under a tag. Picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, without the hidden one of event time."""
        raise NotImplementedError

    def columns(self, chunk: OutputChunk) -> Iterable[Sequence[Any]]:
        """Return the values of each column."""
        raise NotImplementedError

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        """Return the rows of a chunk. Raises TerminalError where a value, such as a sum, has become too large for its column."""
        schema = self.schema
        arrays = []
        for values, field in zip(self.columns(chunk), schema, strict=True):
            try:
                scaled = _scaled(values, field.type)
                made = column_from(scaled, field.type)
                arrays.append(pa.array(scaled, field.type) if made is None else made)
            except (pa.ArrowException, ArithmeticError) as error:
                raise TerminalError(
                    f"a value of column {field.name!r} does not fit its type, {field.type}: {error}",
                    next=f"let the job compute it of a wider type, such as sum(cast(n AS decimal(38, 0))) as {field.name}",
                ) from error
        return with_time(pa.RecordBatch.from_arrays(arrays, schema=schema), chunk.timestamps)


def _scaled(values: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """Return values with as many decimals as their column has; averages come with more. Spark rounds them so."""
    if not pa.types.is_decimal(kind):
        return list(values)
    unit = Decimal(1).scaleb(-kind.scale)
    return [None if v is None else v.quantize(unit, ROUND_HALF_UP, _EXACT) for v in values]


@dataclass(frozen=True)
class RecordRows(KeyedOutput):
    """Records (dicts) of a user's function, with the columns that were declared."""

    operator: str
    declared: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.declared

    def rows(self, chunk: OutputChunk) -> pa.RecordBatch:
        """Return the rows of a chunk. Raises DefinitionError for what is no record of the schema."""
        return with_time(declared_rows(self.operator, self.declared, chunk.values), chunk.timestamps)


@dataclass(frozen=True)
class WindowRows(KeyedOutput):
    """Results of windows: the columns of the key, `window_start` and `window_end`, and one column for each part of a result.

    Args:
        keys: name and type of each column of the key.
        results: the same of each part of a result, which is a tuple.

    Windows without bounds have null for them.
    """

    keys: Sequence[pa.Field]
    results: Sequence[pa.Field]

    @property
    def schema(self) -> pa.Schema:
        bound = pa.timestamp("us", "UTC")
        return pa.schema([*self.keys, ("window_start", bound), ("window_end", bound), *self.results])

    def columns(self, chunk: OutputChunk) -> Iterable[Sequence[Any]]:
        keys = [chunk.keys] if len(self.keys) == 1 else list(zip(*chunk.keys, strict=True)) if self.keys else []
        windows = chunk.windows or [None] * len(chunk)
        spans = [window if type(window) is tuple else (None, None) for window in windows]
        starts, ends = ([None if span[i] is None else span[i] * 1000 for span in spans] for i in (0, 1))
        return [*keys, starts, ends, *zip(*chunk.values, strict=True)]


@dataclass(frozen=True)
class PairRows(KeyedOutput):
    """Pairs of records as two structs, `left` and `right`."""

    left: pa.Schema
    right: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("left", pa.struct(list(self.left))), ("right", pa.struct(list(self.right)))])

    def columns(self, chunk: OutputChunk) -> Iterable[Sequence[Any]]:
        return list(zip(*chunk.values, strict=True))

    def needed(self, side: int) -> Sequence[str]:
        """Return the columns of a side's rows that it looks at."""
        return list((self.left, self.right)[side].names)

    def pairs(self, sides: Sequence[pa.RecordBatch], places: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return pairs as rows, see `operators.columns.joins.pairs.PairOutput`."""
        structs = []
        for field, rows, taken in zip(self.schema, sides, places, strict=True):
            columns = [
                column.take(taken).cast(part.type) for column, part in zip(rows.columns, field.type, strict=True)
            ]
            structs.append(pa.StructArray.from_arrays(columns, fields=list(field.type)))
        return pa.RecordBatch.from_arrays(structs, schema=self.schema)


@dataclass(frozen=True)
class PairColumns(KeyedOutput):
    """Pairs of records as columns of either; `parts` are (side, column there, field in the result)."""

    parts: Sequence[tuple[int, str, pa.Field]]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field for _, _, field in self.parts])

    def columns(self, chunk: OutputChunk) -> Iterable[Sequence[Any]]:
        for side, name, _ in self.parts:
            yield [None if pair[side] is None else pair[side][name] for pair in chunk.values]

    def needed(self, side: int) -> Sequence[str]:
        """Return the columns of a side's rows that it looks at."""
        return list(dict.fromkeys(name for of, name, _ in self.parts if of == side))

    def pairs(self, sides: Sequence[pa.RecordBatch], places: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return pairs as rows, see `operators.columns.joins.pairs.PairOutput`."""
        columns = [sides[side].column(name).take(places[side]).cast(field.type) for side, name, field in self.parts]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def with_time(rows: pa.RecordBatch, times: Sequence[int | None]) -> pa.RecordBatch:
    """Return rows with their event times, in ms, in the hidden column."""
    if None not in times:
        return with_times(rows, np.array(times, np.int64))
    known = np.array([0 if time is None else time for time in times], np.int64)
    return with_times(rows, known, np.fromiter((time is not None for time in times), np.bool_, len(times)))


def with_times(
    rows: pa.RecordBatch, times: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None = None
) -> pa.RecordBatch:
    """Return rows with their event times, in ms, in the hidden column; as `with_time`, by columns."""
    there = (times <= _HIGHEST) & (times >= -_HIGHEST)
    if valid is not None:
        there &= valid
    return rows.append_column(EVENT_TIME, column_of(np.where(there, times, 0) * 1000, pa.timestamp("us", "UTC"), there))


@dataclass(frozen=True)
class WithoutTime:
    """Takes the hidden event time off rows: a function of the user's never sees it."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        if isinstance(chunk, Batch) and EVENT_TIME in chunk.batch.schema.names:
            chunk = Batch(chunk.batch.drop_columns([EVENT_TIME]), chunk.origin)
        emit(MAIN, chunk)
