"""Event times out of JSON lines, out of values and out of Arrow columns, with a reason for each row that has none.

A time is taken only from a whole, valid record: what the fast path cannot vouch for, line by line, is read again alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError

Floats = npt.NDArray[np.float64]
_BROKEN = (ValueError, msgspec.MsgspecError, RecursionError)
_SPAN, _FEW = 1024, 16


@dataclass(frozen=True, slots=True)
class Stamps:
    """Times in the assigner's unit, NaN where there is none, and why."""

    times: Floats
    reasons: dict[int, str]

    def put(self, row: int, time: float | str) -> None:
        """Note the time of a row, or the reason why it has none."""
        if isinstance(time, str):
            self.reasons[row] = time
        else:
            self.times[row] = time


@dataclass(frozen=True, slots=True)
class ValueStamps:
    """The time in a decoded record."""

    path: tuple[str, ...]  # names that lead to it
    label: str  # the field, for people
    unit: str  # "s", "ms" or "iso"; what comes out is s, or ms for "ms"
    zone: ZoneInfo  # of texts and times without an offset

    def of_record(self, record: Any) -> float | str:
        """Return the time of a record, or the reason why there is none."""
        if not isinstance(record, dict):
            return "not a JSON object"
        value: Any = record
        for name in self.path:
            if not isinstance(value, dict) or name not in value:
                return f"no {self.label}"
            value = value[name]
        return self.of_value(value)

    def of_value(self, value: Any) -> float | str:
        """Return the time that a value says, or the reason why it says none."""
        if value is None:
            return f"{self.label} is null"
        if isinstance(value, datetime):
            return self._of_moment(value)
        if isinstance(value, date):
            return self._of_moment(datetime(value.year, value.month, value.day))
        if self.unit == "iso":
            return self.of_text(value) if isinstance(value, str) else f"{self.label} is not ISO text"
        if isinstance(value, str):
            return f"{self.label} is {'text, not a number' if _is_number(value) else 'not a number'}"
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            return f"{self.label} is not a number"
        try:
            number = float(value)
        except OverflowError:
            return self.out_of_range
        return f"{self.label} is not a number" if math.isnan(number) else number

    def of_text(self, text: str) -> float | str:
        """Return the time of ISO 8601 text with date and time."""
        try:
            if len(text) < 16 or text[4] != "-" or text[10] not in "T ":
                raise ValueError
            return self._of_moment(datetime.fromisoformat(text))
        except ValueError:
            return f"{self.label} is not an ISO date and time"

    def _of_moment(self, moment: datetime) -> float | str:
        try:
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=self.zone)).timestamp()
        except (OverflowError, ValueError, OSError):
            return self.out_of_range
        return seconds * 1000 if self.unit == "ms" else seconds

    @property
    def out_of_range(self) -> str:
        """The reason for a time beyond the bounds."""
        return f"{self.label} is out of range"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


class JsonStamps:
    """Times of JSON lines. Only the field is built; the rest of each line is checked and skipped."""

    def __init__(self, path: tuple[str, ...], values: ValueStamps, *, text: bool) -> None:
        self._values = values
        self._text = text
        kind: Any = str if text else float
        for name in reversed(path):
            kind = msgspec.defstruct("Found", [("v", kind)], rename={"v": name}, gc=False)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._get = operator.attrgetter(".".join("v" for _ in path))
        self._any = msgspec.json.Decoder()

    def read(self, data: memoryview, ends: npt.NDArray[np.int64]) -> Stamps:
        """Return the time of each line of a buffer; `ends` are the positions of the line ends."""
        n = len(ends)
        bytes_ = np.frombuffer(data, np.uint8)
        starts = np.concatenate(([0], ends[:-1] + 1))
        # Every line begins with { and ends with }: then no value can span two lines (a raw line end is illegal within a
        # string, and }\n{ within a value), every line holds at least one value, and n values mean one on each line.
        last = bytes_[ends - 1]
        closed = last == 125
        if not closed.all():
            closed |= (last == 13) & (bytes_[ends - 2] == 125)
        sound = closed & (bytes_[starts] == 123)  # of an empty line the first byte is its line end
        size = int(ends[-1]) + 1
        ascii_ = bool(bytes_[:size].max() < 128)
        if sound.all():
            times = self._fast(data[:size], n, ascii_)
            if times is not None:
                return Stamps(times, {})
        return self._pieces(data, starts, ends, sound, ascii_)

    def _fast(self, data: memoryview, n: int, ascii_: bool) -> Floats | None:
        """Return the times of whole lines if all are good, else None."""
        try:
            if not ascii_:
                str(data, "utf-8")  # the parser does not look into texts it skips
            decoded = self._decoder.decode_lines(data)
        except _BROKEN:
            return None
        if len(decoded) != n:
            return None
        if not self._text:
            return np.fromiter(map(self._get, decoded), np.float64, n)
        texts = map(self._values.of_text, map(self._get, decoded))
        times = [t if isinstance(t, float) else None for t in texts]
        return None if None in times else np.array(times, np.float64)

    def _pieces(
        self,
        data: memoryview,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        sound: npt.NDArray[np.bool_],
        ascii_: bool,
    ) -> Stamps:
        """As `_fast`, for a block with bad lines: those are cut out, what is between them is tried in halves."""
        stamps = Stamps(np.full(len(ends), np.nan), {})

        def line(i: int) -> None:
            stamps.put(i, self._line(data[int(starts[i]) : int(ends[i])]))

        def span(first: int, after: int) -> None:
            if after - first > _FEW:
                parsed = self._fast(data[int(starts[first]) : int(ends[after - 1]) + 1], after - first, ascii_)
                if parsed is not None:
                    stamps.times[first:after] = parsed
                    return
                middle = (first + after) // 2
                span(first, middle)
                span(middle, after)
                return
            for i in range(first, after):
                line(i)

        begin = 0
        for bad in (*np.flatnonzero(~sound).tolist(), len(ends)):
            for first in range(begin, bad, _SPAN):
                span(first, min(first + _SPAN, bad))
            if bad < len(ends):
                line(bad)
            begin = bad + 1
        return stamps

    def _line(self, line: memoryview) -> float | str:
        try:
            str(line, "utf-8")
            value = self._get(self._decoder.decode(line))
        except _BROKEN:
            return self._diagnose(bytes(line))
        return self._values.of_text(value) if self._text else float(value)

    def _diagnose(self, line: bytes) -> float | str:
        try:
            line.decode()
        except UnicodeDecodeError:
            return "not UTF-8"
        if not line.strip():
            return "empty line"
        try:
            return self._values.of_record(self._any.decode(line))
        except _BROKEN as error:
            return self._values.out_of_range if "out of range" in str(error) else "not JSON"

    def valid(self, value: bytes) -> bool:
        """Return whether bytes are JSON as they stand."""
        try:
            self._any.decode(value)
        except _BROKEN:
            return False
        return True


def column_stamps(batch: pa.RecordBatch, values: ValueStamps) -> Stamps:
    """Return the time of each row. Raises DefinitionError where there is no such column, or its type holds no times of the unit."""
    column, t = _column(batch, values), pa.types
    kind = column.type
    if t.is_timestamp(kind) and kind.tz:
        micros = pc.cast(column, pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
        return _numbers(micros, 1e3 if values.unit == "ms" else 1e6, values.label)
    if t.is_timestamp(kind) or t.is_date(kind):
        return stamps_of(column.cast(pa.timestamp("us"), safe=False).to_pylist(), values.of_value)
    if values.unit == "iso" and (t.is_string(kind) or t.is_large_string(kind)):
        return stamps_of(column.to_pylist(), values.of_value)
    if values.unit != "iso" and any(fits(kind) for fits in (t.is_integer, t.is_float64, t.is_decimal, t.is_null)):
        return _numbers(column, 1.0, values.label)
    if t.is_floating(kind):
        raise DefinitionError(
            f"column {values.label} is {kind}: 32-bit floats are wrong by up to 129 s here",
            next='declare it as double, or as bigint with unit="ms"',
        )
    raise DefinitionError(
        f"column {values.label} is {kind}, which is no time in unit {values.unit!r}",
        next='cast it to timestamp or double, or set unit="iso" for text',
    )


def _column(batch: pa.RecordBatch, values: ValueStamps) -> pa.Array:
    name, *rest = values.path
    if name not in batch.schema.names:
        raise DefinitionError(
            f"the rows have no column {name!r} for the buckets, only {batch.schema.names}",
            next="name a column, or select it before the sink",
        )
    column = batch.column(name)
    for inner in rest:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(inner) < 0:
            raise DefinitionError(
                f"column {values.label} does not exist: no {inner!r} within {column.type}", next="correct field="
            )
        column = pc.struct_field(column, inner)
    return column


def _numbers(column: pa.Array, divisor: float, label: str) -> Stamps:
    reasons = {}
    if column.null_count:
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        reasons = dict.fromkeys(nulls.tolist(), f"{label} is null")
    floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    times = floats if divisor == 1.0 else floats / divisor
    for row in np.flatnonzero(np.isnan(times)).tolist():
        reasons.setdefault(row, f"{label} is not a number")
    return Stamps(times, reasons)


def stamps_of(values: Sequence[Any], read: Callable[[Any], float | str]) -> Stamps:
    """Return the times of values, read one by one."""
    given = [read(value) for value in values]
    reasons = {row: time for row, time in enumerate(given) if isinstance(time, str)}
    return Stamps(np.array([math.nan if isinstance(time, str) else time for time in given], np.float64), reasons)
