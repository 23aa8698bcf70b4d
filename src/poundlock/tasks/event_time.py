"""Event time in the task that has the rows: how it is given, the column it is put into, rows that have none, and what is reported.

A column, `timestamp_seconds(column)` and its sisters, or a CAST is read here and means what Spark means by it; anything else is left
to Spark. A row whose time is null or not between the years 1 and 9999 goes to the dead letters; every other row keeps its place. A
report has for each split, at each assigner, the greatest event time and how many there were. A generator that looks at each record
is run here, in the order of the partition, from the snapshot the checkpoint before left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import convert
from poundlock.formats.chunk import Batch, Chunk, Records, origin_of, subset
from poundlock.formats.convert import FIRST_US, LAST_US, US
from poundlock.formats.ddl import render_type
from poundlock.formats.reject import Reject
from poundlock.operators.generators import RecordGenerator
from poundlock.operators.time_values import SourceTime, SplitTimes, TimeDirective
from poundlock.stream.watermarks import WatermarkStrategy
from poundlock.tasks.columns import bool_column, int_column, numbers_of

Form = Literal["timestamp", "millis", "micros", "seconds"]

_NAME = r"`(?:[^`]|``)+`|[^\W\d]\w*"
_BARE = re.compile(rf"\s*({_NAME})\s*")
_CALL = re.compile(rf"\s*timestamp_(seconds|millis|micros)\s*\(\s*({_NAME})\s*\)\s*", re.IGNORECASE)
_CAST = re.compile(r"\s*cast\s*\((.*)\s+as\s+timestamp\s*\)\s*", re.IGNORECASE | re.DOTALL)
_FORMS: dict[str, Form] = {"seconds": "seconds", "millis": "millis", "micros": "micros"}


@dataclass(frozen=True, slots=True)
class NeedsSpark:
    """Event time that only Spark can evaluate; `reason` says what of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """Event time that a column has.

    Args:
        form: what its values are: timestamps, or numbers of so many a second since 1970.
        zone: the time zone of the event time's column; None for a timestamp without one, which counts as UTC.
    """

    column: str
    form: Form
    zone: str | None = "UTC"


def reads_like_a_column(text: str) -> bool:
    """Return whether an expression has a form that is read here, as far as can be known without the columns' types."""
    cast = _CAST.fullmatch(text)
    inner = text if cast is None else cast[1]
    return any(pattern.fullmatch(inner) is not None for pattern in (_BARE, _CALL))


def time_column(step: str, text: str, schema: pa.Schema) -> TimeColumn | NeedsSpark:
    """Return how an expression's event time is read from a column.

    Raises:
        DefinitionError: it is a column of a type that is no time.
    """
    cast = _CAST.fullmatch(text)
    inner = text if cast is None else cast[1]
    call = _CALL.fullmatch(inner)
    name = inner if call is None else call[2]
    field = _field(name, schema)
    if field is None:
        return NeedsSpark(f"{name.strip()} is not one of the columns")
    kind = _plain(field.type)
    if call is not None:
        form = _FORMS[call[1].lower()]
        if pa.types.is_integer(kind) or (form == "seconds" and _is_double(kind)):
            return TimeColumn(field.name, form)
        return NeedsSpark(f"{inner.strip()} of a column of type {kind}")
    if cast is not None:
        if pa.types.is_timestamp(kind):
            return TimeColumn(field.name, "timestamp")
        if pa.types.is_integer(kind) or _is_double(kind):
            return TimeColumn(field.name, "seconds")
        return NeedsSpark(f"a CAST of a column of type {kind}")
    if kind in (pa.int64(), pa.int32()):
        return TimeColumn(field.name, "millis")
    if pa.types.is_timestamp(kind):
        return TimeColumn(field.name, "timestamp", kind.tz)
    raise DefinitionError(
        f"{step}: event time {text.strip()} is of type {_type_name(kind)}",
        next='give a timestamp, such as "timestamp_seconds(ts)", or a whole number of milliseconds since 1970',
    )


def _type_name(kind: pa.DataType) -> str:
    try:
        return render_type(kind)
    except DefinitionError:  # a type that Spark does not have
        return str(kind)


def _is_double(kind: pa.DataType) -> bool:
    return kind in (pa.float64(), pa.float32())


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _field(text: str, schema: pa.Schema) -> pa.Field | None:
    """Return the column of a name: the very one, or the only one that differs in case alone, as Spark has it."""
    match = _BARE.fullmatch(text)
    if match is None:
        return None
    name = match[1][1:-1].replace("``", "`") if match[1].startswith("`") else match[1]
    exact = [field for field in schema if field.name == name]
    alike = exact or [field for field in schema if field.name.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


TIMELESS = "it is null, or not between the years 1 and 9999"

_FACTOR = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_US, _MS = timedelta(microseconds=1), timedelta(milliseconds=1)
Microseconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TimedChunk:
    """Rows with their event time in its column, and the same as an array, ms since 1970."""

    chunk: Chunk
    times: npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventTimeAssigner:
    """Gives rows their event time. Picklable where the strategy's function is.

    Args:
        source: the column that has the time; None where a function or the clock gives it.
    """

    step: str
    strategy: WatermarkStrategy
    source: TimeColumn | None = None

    def schema(self, before: pa.Schema) -> pa.Schema:
        """Return the columns of the rows behind the step."""
        place = self._place(before.names)
        field = pa.field(self.strategy.column, pa.timestamp("us", tz=self._zone))
        return before.append(field) if place is None else before.set(place, field)

    def assign(self, chunk: Chunk, clock_ms: int, reject: Callable[[Reject], None]) -> TimedChunk:
        """Return the rows that have an event time.

        Args:
            chunk: the rows; lines become a column `value`.
            clock_ms: the checkpoint's clock, which the strategies of ingestion and processing time give.
            reject: takes each row that has none.

        Raises:
            DefinitionError: the strategy's function gave what is no time.
        """
        if isinstance(chunk, Records):
            return self._records(chunk, clock_ms, reject)
        if callable(self.strategy.timestamp) or self.strategy.per_record:
            chunk = convert.for_python(chunk, reject)
        batch = convert.to_batch(chunk)
        micros, usable = self._micros(batch, clock_ms)
        if usable is not None:
            origin = origin_of(batch)
            self._reject(batch, usable, reject)
            index = np.flatnonzero(usable)
            batch = Batch(batch.batch.filter(bool_column(usable)), subset(origin, index))
            micros = micros[index]
        column = int_column(micros, pa.timestamp("us", tz=self._zone))
        place = self._place(batch.batch.schema.names)
        rows = batch.batch
        if place is None:
            rows = rows.append_column(self.strategy.column, column)
        else:
            rows = rows.set_column(place, self.strategy.column, column)
        return TimedChunk(Batch(rows, batch.origin), micros // 1000)

    @property
    def _zone(self) -> str | None:
        return "UTC" if self.source is None else self.source.zone

    def _place(self, names: list[str]) -> int | None:
        """Return the number of the column that the event time takes the place of, as Spark's withColumn has it."""
        lower = [name.lower() for name in names]
        column = self.strategy.column.lower()
        return lower.index(column) if column in lower else None

    def _micros(self, batch: Batch, clock_ms: int) -> tuple[Microseconds, Mask | None]:
        """Return the event times and which can be used; None = all of them."""
        rows = len(batch)
        if self.strategy.clocked:
            return np.full(rows, clock_ms * 1000, np.int64), None
        if self.source is None:
            return self._of_function(convert.to_records(batch))
        array = batch.batch.column(self.source.column)
        values, valid = numbers_of(array)
        micros, usable = _seconds(values) if values.dtype.kind == "f" else _scaled(values, self._factor(array.type))
        if valid is not None:
            usable &= valid
        return micros, None if usable.all() else usable

    def _factor(self, kind: pa.DataType) -> int:
        """Return how many microseconds one is; -1000 stands for nanoseconds."""
        assert self.source is not None
        if self.source.form != "timestamp":
            return _FACTOR[self.source.form]
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        return -1000 if plain.unit == "ns" else US[plain.unit]

    # --- rows as Python values --------------------------------------------------------------------------------------------

    def _records(self, chunk: Records, clock_ms: int, reject: Callable[[Reject], None]) -> TimedChunk:
        if self.strategy.clocked:
            micros, usable = np.full(len(chunk), clock_ms * 1000, np.int64), None
        elif self.source is None:
            micros, usable = self._of_function(chunk)
        else:
            micros, usable = _of_values([_micros_of(row.get(self.source.column), self.source) for row in chunk.rows])
        if usable is not None:
            self._reject(chunk, usable, reject)
            kept = convert.take(chunk, usable)
            assert isinstance(kept, Records)
            chunk, micros = kept, micros[usable]
        epoch = _NAIVE_EPOCH if self._zone is None else _EPOCH
        column = self.strategy.column
        rows = [
            {**row, column: epoch + timedelta(microseconds=at)}
            for row, at in zip(chunk.rows, micros.tolist(), strict=True)
        ]
        return TimedChunk(Records(rows, chunk.origin, chunk.index), micros // 1000)

    def _of_function(self, chunk: Records) -> tuple[Microseconds, Mask | None]:
        function = self.strategy.timestamp
        assert callable(function)
        return _of_values([self._of_result(function(row)) for row in chunk.rows])

    def _of_result(self, value: Any) -> int | None:
        """Return what a user's function gave, in microseconds; it gives no more than milliseconds."""
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return value * 1000
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return (aware - _EPOCH) // _MS * 1000
        raise DefinitionError(
            f"{self.step}: the timestamp assigner gave {value!r}",
            next="return a whole number of milliseconds since 1970, or a datetime (UTC where it has no zone)",
        )

    def _reject(self, chunk: Chunk, usable: Mask, reject: Callable[[Reject], None]) -> None:
        reason = f"{self.step}: a row without a usable event time in {self.strategy.time_name}: {TIMELESS}"
        origin = origin_of(chunk)
        for row in np.flatnonzero(~usable).tolist():
            reject(Reject(reason, convert.row_bytes(chunk, row), {"source": self.step, **origin.at(row)}))


def assigner_for(step: str, strategy: WatermarkStrategy, schema: pa.Schema) -> EventTimeAssigner | NeedsSpark:
    """Return what gives the rows of a step their event time in a task, or why only Spark can.

    Raises:
        DefinitionError: there is no saying what a row's event time is.
    """
    strategy.check()
    if strategy.clocked or not isinstance(strategy.timestamp, str):
        return EventTimeAssigner(step, strategy)
    source = time_column(step, strategy.timestamp, schema)
    return source if isinstance(source, NeedsSpark) else EventTimeAssigner(step, strategy, source)


def _scaled(values: npt.NDArray[Any], factor: int) -> tuple[Microseconds, Mask]:
    """Return whole numbers in microseconds, rounded down, and which are within the years that can be used."""
    if values.dtype == np.uint64:
        beyond = values > np.uint64(LAST_US)
        micros, usable = _scaled(np.where(beyond, 0, values).astype(np.int64), factor)
        return micros, usable & ~beyond
    wide = values.astype(np.int64, copy=False)
    if factor < 0:
        wide, factor = wide // 1000, 1
    usable = (wide >= -(-FIRST_US // factor)) & (wide <= LAST_US // factor)
    return (wide if factor == 1 else np.where(usable, wide, 0) * factor), usable


def _seconds(values: npt.NDArray[Any]) -> tuple[Microseconds, Mask]:
    """Return seconds in microseconds, cut off towards zero as Spark does."""
    with np.errstate(over="ignore", invalid="ignore"):
        micros = values.astype(np.float64, copy=False) * 1e6
        usable = (micros >= FIRST_US) & (micros < LAST_US + 1)
        return np.where(usable, micros, 0.0).astype(np.int64), usable


def _of_values(values: list[int | None]) -> tuple[Microseconds, Mask | None]:
    usable = np.fromiter((v is not None and FIRST_US <= v <= LAST_US for v in values), np.bool_, len(values))
    if usable.all():
        return np.fromiter(values, np.int64, len(values)), None
    kept = (v if v is not None and ok else 0 for v, ok in zip(values, usable.tolist(), strict=True))
    return np.fromiter(kept, np.int64, len(values)), usable


def _micros_of(value: Any, source: TimeColumn) -> int | None:
    """Return a Python value in microseconds since 1970; None where it is no time."""
    if isinstance(value, datetime):
        if source.form != "timestamp":
            return None
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _US
    if isinstance(value, bool) or source.form == "timestamp":
        return None
    if isinstance(value, int):
        return value * _FACTOR[source.form]
    if isinstance(value, float) and source.form == "seconds" and np.isfinite(value):
        return int(value * 1e6)
    return None


class SplitPlace(NamedTuple):
    """Where rows were read, the same in every attempt: splits of a source are in order by their sequence.

    Behind steps that lose the place of a row, source and partition are UNKNOWN and the sequence is the number of the task.
    """

    source: str
    partition: str
    sequence: int


@dataclass(slots=True)
class _Split:
    greatest: int
    count: int = 0


class SplitTimesRecorder:
    """Takes the rows of one assigner in one task."""

    def __init__(self, assigner: str, strategy: WatermarkStrategy, directive: TimeDirective) -> None:
        self._assigner = assigner
        self._strategy = strategy
        self._clock = directive.clock
        self._before = directive.state.sources.get(assigner, {})
        self._splits: dict[SplitPlace, _Split] = {}
        self._generators: dict[tuple[str, str], RecordGenerator] = {}

    def rows(self, timed: TimedChunk, place: SplitPlace) -> None:
        """Take the rows of a chunk; chunks of a split come in its order, and splits of a partition in theirs."""
        if self._strategy.clocked or not len(timed.times):
            return
        if self._strategy.per_record:
            # One report for a partition: its splits are all read here.
            place = next((each for each in self._splits if each[:2] == place[:2]), place)
            self._each(timed, place)
        greatest = int(timed.times.max())
        split = self._splits.setdefault(place, _Split(greatest))
        split.greatest = max(split.greatest, greatest)
        split.count += len(timed.times)

    def reports(self) -> list[SplitTimes]:
        """Return the reports; called once, behind the last row."""
        generators = {key: each.report(self._clock) for key, each in self._generators.items()}
        return [
            SplitTimes(self._assigner, *place, each.greatest, each.count, generators.get(place[:2]))
            for place, each in self._splits.items()
        ]

    def _each(self, timed: TimedChunk, place: SplitPlace) -> None:
        key = place.source, place.partition
        if (generator := self._generators.get(key)) is None:
            partitions = self._before.get(place.source, SourceTime()).partitions
            snapshot = partitions[place.partition].generator if place.partition in partitions else None
            generator = self._generators[key] = RecordGenerator(self._strategy, snapshot)
        generator.on_records(convert.to_records(timed.chunk).rows, timed.times.tolist())
