"""Bucket assigners at work in a task: for each chunk, the bucket of every row or the reason why it has none.

A row without a valid bucket is never given another one; names that readers could not see are reasons too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.connectors.files.buckets.assigners import DatePattern
from poundlock.connectors.files.buckets.time_buckets import SlotTable
from poundlock.connectors.files.buckets.timestamps import JsonStamps, Stamps, ValueStamps, column_stamps, stamps_of
from poundlock.connectors.files.sink.names import bucket_fault
from poundlock.errors import DefinitionError
from poundlock.formats.arrays import numbers_in, valid_in
from poundlock.formats.chunk import Batch, Lines, Records

if TYPE_CHECKING:
    from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner


REJECTED = -1


@dataclass(frozen=True, slots=True)
class BucketRows:
    """What an assigner may look at."""

    lines: Lines | None  # the rows as bytes, in raw mode
    # the rows as columns or dicts, where they came so; in raw mode without those that were rejected before
    columns: Batch | Records | None

    def __len__(self) -> int:
        rows = self.lines if self.lines is not None else self.columns
        return len(rows) if rows is not None else 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where rows go."""

    names: Sequence[str]  # buckets by number
    codes: npt.NDArray[np.int32] | int  # the number of each row's bucket, REJECTED = none; or one number for all rows
    # event time of each row, NaN where it has none; None where the assigner knows no times
    times: npt.NDArray[np.float64] | None = None
    ms: float = 1.0  # ms in one unit of `times`
    reasons: Mapping[int, str] = field(default_factory=dict)  # of the rejected rows


class OpenAssigner(ABC):
    """An assigner in one task; may remember what it has looked up."""

    @abstractmethod
    def assign(self, rows: BucketRows) -> Assignment:
        """Return where the rows (at least one) go."""

    def valid_json(self, value: bytes) -> bool | None:
        """Return whether a raw value is JSON as it stands; None if this assigner does not take rows for JSON."""
        return None


class OneBucket(OpenAssigner):
    """All rows into one bucket."""

    def __init__(self, name: str) -> None:
        self._assignment = Assignment([name], 0)

    def assign(self, rows: BucketRows) -> Assignment:
        return self._assignment


class EventTimeAssignment(OpenAssigner):
    """Rows by the time in them."""

    def __init__(self, config: EventTimeBucketAssigner, started_ms: int, *, json: bool) -> None:
        self._ms = 1.0 if config.unit == "ms" else 1000.0
        self._low, self._high = (bound * 1000 / self._ms for bound in config.bounds_s(started_ms))
        self._values = ValueStamps(config.path, config.label, config.unit, ZoneInfo(config.zone))
        self._json = JsonStamps(config.path, self._values, text=config.unit == "iso") if json else None
        self._table = SlotTable(DatePattern.parse(config.pattern), config.zone, 1000 / self._ms)

    def valid_json(self, value: bytes) -> bool | None:
        return None if self._json is None else self._json.valid(value)

    def assign(self, rows: BucketRows) -> Assignment:
        stamps = self._stamps(rows)
        times = stamps.times
        low, high = float(times.min()), float(times.max())
        if low >= self._low and high < self._high:  # False where any is NaN
            return Assignment(self._table.names, self._table.lookup(times, low, high), times, self._ms)
        with np.errstate(invalid="ignore"):
            good = np.flatnonzero((times >= self._low) & (times < self._high))
        codes = np.full(len(times), REJECTED, np.int32)
        if len(good):
            kept = times[good]
            codes[good] = self._table.lookup(kept, float(kept.min()), float(kept.max()))
        absurd = self._values.out_of_range
        reasons = {i: stamps.reasons.get(i, absurd) for i in np.flatnonzero(codes == REJECTED).tolist()}
        return Assignment(self._table.names, codes, times, self._ms, reasons)

    def _stamps(self, rows: BucketRows) -> Stamps:
        if self._json is not None and rows.lines is not None:
            return self._json.read(rows.lines.data, rows.lines.ends)
        if isinstance(rows.columns, Batch):
            return column_stamps(rows.columns.batch, self._values)
        if isinstance(rows.columns, Records):
            return stamps_of(rows.columns.rows, self._values.of_record)
        raise DefinitionError(
            "the buckets need a column, but the rows are lines of bytes", next='use source="json", or decode the rows'
        )


class _Named(OpenAssigner):
    """Numbers for names that come out of the data."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._known: dict[Any, int | str] = {}

    def number(self, value: Any) -> int | str:
        """Return the number of a bucket, or the reason why the value cannot be one."""
        if not isinstance(value, str):
            return "bucket is null" if value is None else f"bucket is {type(value).__name__}, not text"
        known = self._known.get(value)
        if known is None:
            known = bucket_fault(value)
            if known is None:
                known = len(self._names)
                self._names.append(value)
            self._known[value] = known
        return known

    def numbers(self, values: Sequence[Any]) -> list[int | str]:
        """Return `number` of each value. Rows are many and names few: texts are looked up once a chunk."""
        if set(map(type, values)) != {str}:
            return [self.number(value) for value in values]
        known = {name: self.number(name) for name in dict.fromkeys(values)}
        return [known[value] for value in values]

    def assignment(self, values: Sequence[int | str]) -> Assignment:
        """Return the assignment of numbers and reasons, one a row."""
        first = values[0]
        if isinstance(first, int) and len(set(values)) == 1:
            return Assignment(self._names, first)
        reasons = {i: f for i, f in enumerate(values) if isinstance(f, str)}
        codes = np.array([REJECTED if isinstance(f, str) else f for f in values], np.int32)
        return Assignment(self._names, codes, reasons=reasons)


class ColumnBuckets(_Named):
    """Buckets that stand in a column, as the plan computed them."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self._column = column

    def assign(self, rows: BucketRows) -> Assignment:
        columns = rows.columns
        if isinstance(columns, Batch) and self._column in columns.batch.schema.names:
            coded = columns.batch.column(self._column)
            if not pa.types.is_dictionary(coded.type):
                coded = coded.dictionary_encode()
            return self._of_places(coded)
        if isinstance(columns, Records):
            return self.assignment(self.numbers([row.get(self._column) for row in columns.rows]))
        raise DefinitionError(
            f"the rows have no column {self._column} with their bucket",
            next="use an expression over columns of the stream",
        )

    def _of_places(self, coded: pa.DictionaryArray) -> Assignment:
        """Return the assignment of names and their places."""
        known = [self.number(value) for value in [*coded.dictionary.to_pylist(), None]]
        valid, places = valid_in(coded), numbers_in(coded.indices)
        if valid is not None:
            places = np.where(valid, places, len(known) - 1)
        codes = np.array([each if isinstance(each, int) else REJECTED for each in known], np.int32)[places]
        first = int(codes[0])
        if first != REJECTED and bool((codes == first).all()):
            return Assignment(self._names, first)
        reasons = {row: str(known[places[row]]) for row in np.flatnonzero(codes == REJECTED).tolist()}
        return Assignment(self._names, codes, reasons=reasons)


class PythonBuckets(_Named):
    """Buckets from a user's function."""

    def __init__(self, function: Callable[[Any], str], *, raw: bool) -> None:
        super().__init__()
        self._function = function
        self._raw = raw

    def assign(self, rows: BucketRows) -> Assignment:
        values: list[Any] = []
        raised: dict[int, str] = {}
        for record in self._records(rows):
            try:
                values.append(self._function(record))
            except Exception as error:  # a user's function: whatever it raises is about this record
                raised[len(values)] = f"bucket function: {type(error).__name__}: {error}"
                values.append(None)
        numbers = self.numbers(values)
        for i, reason in raised.items():
            numbers[i] = reason
        return self.assignment(numbers)

    def _records(self, rows: BucketRows) -> Sequence[Any]:
        if self._raw and rows.lines is not None:
            return bytes(rows.lines.data).split(b"\n")[: len(rows.lines)]
        if isinstance(rows.columns, Batch):
            return rows.columns.batch.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
        return rows.columns.rows if rows.columns is not None else []
