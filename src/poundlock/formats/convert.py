"""Chunks from one form to another: lines, Arrow columns, Python dicts; some rows of a chunk; rows with text that is not UTF-8.

Whatever is done to a chunk, each row that is left still knows the place it came from; no value is changed in silence.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import column_from, flags_in, numbers_in
from poundlock.formats.chunk import Batch, Chunk, Lines, NoOrigin, Records, line_starts, origin_of, subset
from poundlock.formats.reject import Reject

FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999
US = {"s": 1_000_000, "ms": 1_000, "us": 1, "day": 86_400_000_000}
VALUE = "value"
_SAMPLE = 1024
_KEPT = 256  # lists of column names, of which a process keeps how a record is made
_FLOAT_US = -(
    1 << 52
)  # up to some 140 years from 1970 a float has the microsecond of a time, and makes a datetime in half the time
Mask = npt.NDArray[np.bool_] | Sequence[bool]
_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def lines_value(lines: Lines) -> pa.Array:
    """Return the rows of a buffer as one binary Arrow column, without line ends. Copies the bytes once."""
    n = len(lines.ends)
    size = int(lines.ends[-1]) + 1 if n else 0
    # There is no newline in a row, so taking all of them out leaves just the rows, back to back.
    data = pa.py_buffer(bytes(lines.data[:size]).replace(b"\n", b""))
    wide = size >= 1 << 31
    offsets = np.zeros(n + 1, np.int64 if wide else np.int32)
    offsets[1:] = lines.ends - np.arange(n)
    kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(offsets), data])


def select_lines(lines: Lines, keep: Mask) -> Lines:
    """Return the rows of a buffer for which `keep` (one flag a row) is true, in order."""
    mask = np.asarray(keep, np.bool_)
    if mask.all():
        return lines
    index = np.flatnonzero(mask)
    starts = line_starts(lines)
    bounds = np.append(starts, starts[-1:] if not len(lines) else lines.ends[-1:] + 1)
    data = pa.py_buffer(lines.data)
    whole = pa.Array.from_buffers(pa.large_binary(), len(lines), [None, pa.py_buffer(bounds), data])
    kept = whole.filter(pa.array(mask))
    ends = np.cumsum((lines.ends - starts + 1)[index], dtype=np.int64) - 1
    size = int(ends[-1]) + 1 if len(ends) else 0
    buffer = kept.buffers()[2]
    view = memoryview(buffer)[:size] if buffer is not None and size else memoryview(b"")
    return Lines(view.cast("B"), ends, subset(lines.origin, index))


def take(chunk: Chunk, keep: Mask) -> Chunk:
    """Return the rows of a chunk for which `keep` (one flag a row) is true, in order and with their places."""
    if isinstance(chunk, Lines):
        return select_lines(chunk, keep)
    mask = np.asarray(keep, np.bool_)
    if mask.all():
        return chunk
    index = np.flatnonzero(mask)
    if isinstance(chunk, Batch):
        return Batch(chunk.batch.filter(pa.array(mask)), subset(chunk.origin, index))
    rows = [chunk.rows[i] for i in index.tolist()]
    old = chunk.index
    return Records(rows, chunk.origin, index.tolist() if old is None else [old[i] for i in index.tolist()])


def column_values(column: pa.Array) -> list[Any]:
    """Return an Arrow column as Python values; maps become dicts. Raises TerminalError where Python has none, such as for the year 10000."""
    try:
        return python_values(column)
    except UnicodeDecodeError:
        raise
    except (OverflowError, ValueError) as error:
        what = f"a row has a value of the type {column.type} that Python has not: {error}"
        raise TerminalError(what, next="leave such rows out first: where(\"ts < timestamp'9999-01-01'\")") from error


def python_values(column: pa.Array) -> list[Any]:
    """Return an Arrow column as Python values; maps become dicts. Raises OverflowError or ValueError where Python has none."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_binary(kind):
        return list(column.to_pylist())
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return list(numbers_in(column).tolist())
    if column.null_count == 0 and pa.types.is_boolean(kind):
        return list(flags_in(column).tolist())
    quick = pa.types.is_timestamp(kind) and kind.unit != "ns" and kind.tz in (None, "UTC")
    return _times(column) if quick else list(column.to_pylist(maps_as_pydicts="lossy"))


def _times(column: pa.Array) -> list[Any]:
    """Return timestamps as datetimes, in a quarter of the time that pyarrow takes."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    known = numbers_in(micros.fill_null(0) if micros.null_count else micros)
    if len(known) and (known.min() < FIRST_US or known.max() > LAST_US):
        return list(column.to_pylist())  # which says that a datetime cannot be so
    # The bounds of windows are few, and one object does for many of them.
    few = len(np.unique(known[:_SAMPLE])) * 4 <= min(len(known), _SAMPLE)
    different, places = np.unique(known, return_inverse=True) if few else (known, known)
    values = _datetimes(different if few else known, zoned=column.type.tz is not None)
    if few:
        values = list(map(values.__getitem__, places.tolist()))
    if micros.null_count:
        values = [value if there else None for value, there in zip(values, micros.is_valid().to_pylist(), strict=True)]
    return list(values)


def _datetimes(micros: npt.NDArray[np.int64], *, zoned: bool) -> list[Any]:
    """Return microseconds since 1970 as datetimes, with the zone UTC or none."""
    if not zoned:
        return list(micros.view("datetime64[us]").astype(object).tolist())
    if len(micros) and micros.min() >= _FLOAT_US and micros.max() <= -_FLOAT_US:
        return [datetime.fromtimestamp(seconds, UTC) for seconds in (micros / 1e6).tolist()]
    return [moment.replace(tzinfo=UTC) for moment in micros.view("datetime64[us]").astype(object).tolist()]


def for_python(chunk: Chunk, reject: Callable[[Reject], None] | None, names: Container[str] | None = None) -> Chunk:
    """Return the rows whose dates and times Python has, and hand over the others; costs no look at each where it has all.

    Args:
        reject: None = all are returned, and whoever makes values of them says what Python has not.
        names: the columns that a function is to see; None = all.
    """
    if reject is None or not isinstance(chunk, Batch):
        return chunk
    bad: dict[int, str] = {}
    for name, column in zip(chunk.batch.schema.names, chunk.batch.columns, strict=True):
        if (names is None or name in names) and _may_be_beyond(column):
            what = f"column {name!r}: a value of the type {column.type} that Python has not"
            bad = {row: f"{what}: {why}" for row, why in _beyond(column).items()} | bad
    return _without(chunk, chunk.batch, bad, reject)


def _may_be_beyond(column: pa.Array) -> bool:
    """Return whether the least or the greatest date or time of a column is beyond the years 1 to 9999."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _may_be_beyond(column.dictionary)
    if pa.types.is_nested(kind):
        within = [column.keys, column.items] if pa.types.is_map(kind) else column.flatten()
        return any(map(_may_be_beyond, within if isinstance(within, list) else [within]))
    unit = kind.unit if pa.types.is_timestamp(kind) else {pa.date32(): "day", pa.date64(): "ms"}.get(kind)
    if unit not in US or len(column) == column.null_count:
        return False
    least, greatest = (each.as_py() * US[unit] for each in pc.min_max(column.view(_raw(kind))).values())
    zone = 0 if pa.types.is_date(kind) or kind.tz in (None, "UTC") else US["day"]  # it may be another year there
    return bool(least < FIRST_US + zone or greatest > LAST_US - zone)


def _beyond(column: pa.Array) -> dict[int, str]:
    """Return which rows of a column have a value that Python has not, and why."""
    return build_column(len(column), pa.null(), lambda part: pa.nulls(len(python_values(column[part]))))[1]


def to_records(chunk: Chunk) -> Records:
    """Return the rows as dicts, column name to value. Lines become {"value": bytes}."""
    if isinstance(chunk, Records):
        return chunk
    if isinstance(chunk, Lines):
        size = int(chunk.ends[-1]) + 1 if len(chunk) else 0
        return Records([{VALUE: v} for v in bytes(chunk.data[:size]).split(b"\n")[:-1]], chunk.origin)
    batch = chunk.batch
    names = batch.schema.names
    if not names:
        return Records([{} for _ in range(batch.num_rows)], chunk.origin)
    columns = [column_values(c) for c in batch.columns]
    return Records(list(map(dict_of_values(tuple(names)), *columns)), chunk.origin)


@lru_cache(_KEPT)
def dict_of_values(names: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """Return a function of a row's values to a dict of them by name; a display of a dict, in a third of the time that `zip` takes."""
    places = [f"v{i}" for i in range(len(names))]
    pairs = ", ".join(f"{name!r}: {place}" for name, place in zip(names, places, strict=True))
    made: Callable[..., dict[str, Any]] = eval(f"lambda {', '.join(places)}: {{{pairs}}}")
    return made


def to_batch(chunk: Chunk, schema: pa.Schema | None = None, reject: Callable[[Reject], None] | None = None) -> Batch:
    """Return the rows as Arrow columns.

    Args:
        chunk: the rows.
        schema: the columns wanted: matched by name, cast to their types; missing ones are null, others are left out.
            None = the columns as they are; for records, inferred from the values.
        reject: takes each row that does not fit the schema; the others are returned.

    Raises:
        TerminalError: a value does not fit and `reject` is None; names the column and the place of the row.
    """
    if not isinstance(chunk, Records):
        source = chunk.batch if isinstance(chunk, Batch) else pa.record_batch([lines_value(chunk)], names=[VALUE])
        if schema is None or source.schema.equals(schema):
            return chunk if isinstance(chunk, Batch) else Batch(source, chunk.origin)
        columns: dict[str, Any] = dict(zip(source.schema.names, source.columns, strict=True))
        return _build(chunk, schema, columns, _cast, reject)
    names = list(dict.fromkeys(k for row in chunk.rows for k in row)) if schema is None else schema.names
    return _build(chunk, schema, {name: [row.get(name) for row in chunk.rows] for name in names}, _array, reject)


def _build(
    chunk: Chunk,
    schema: pa.Schema | None,
    columns: Mapping[str, Any],
    make: Callable[[Any, pa.DataType | None], pa.Array],
    reject: Callable[[Reject], None] | None,
) -> Batch:
    n = len(chunk)
    arrays: list[pa.Array] = []
    bad: dict[int, str] = {}
    for field in schema if schema is not None else (pa.field(name, pa.null()) for name in columns):
        array, failed = _field(n, field, None if schema is None else field.type, columns.get(field.name), make)
        arrays.append(array)
        for row, why in failed.items():
            bad.setdefault(row, f"column {field.name!r}: {why}")
    batch = pa.RecordBatch.from_arrays(arrays, list(columns) if schema is None else None, schema)
    return _without(chunk, batch, bad, reject)


def misfits(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> dict[int, str]:
    """Return the records that do not fit a schema, by their place, and why."""
    bad: dict[int, str] = {}
    for field in schema:
        _, failed = _field(len(rows), field, field.type, [row.get(field.name) for row in rows], _array)
        for row, why in failed.items():
            bad.setdefault(row, f"column {field.name!r}: {why}")
    return bad


def declared_rows(operator: str, schema: pa.Schema, values: Sequence[Any]) -> pa.RecordBatch:
    """Return the records that a function of an operator gave as the columns that were declared.

    Raises:
        DefinitionError: one is no dict, or has another column.
        TerminalError: a value does not fit its column.
    """
    names = schema.names
    if tuple in set(map(type, values)):
        values = [
            dict(zip(names, value, strict=True)) if type(value) is tuple and len(value) == len(names) else value
            for value in values
        ]
    known = set(names)
    for value in values:
        if type(value) is not dict:
            what = f"a tuple of {len(value)} values" if type(value) is tuple else type(value).__name__
            raise DefinitionError(
                f"{operator} emitted {what}, not a dict", next="yield {column: value, …} with the declared schema"
            )
        if not value.keys() <= known:
            extra = min(value.keys() - known)
            raise DefinitionError(
                f"{operator} emitted the undeclared column {extra!r}",
                next=f"add it to schema=, or yield only {', '.join(schema.names)}",
            )
    bad: list[Reject] = []
    rows = to_batch(Records(values, NoOrigin(operator)), schema, bad.append).batch
    if bad:
        raise TerminalError(
            f"{operator} emitted a record that does not fit: {bad[0].reason}",
            next="make its values fit the declared schema, or change the schema",
        )
    return rows


def _field(
    n: int, field: pa.Field, kind: pa.DataType | None, values: Any, make: Callable[[Any, pa.DataType | None], pa.Array]
) -> tuple[pa.Array, dict[int, str]]:
    """Return one column, and why some of its rows do not fit."""
    if values is None:
        return required_column(n, field, kind, lambda part: pa.nulls(part.stop - part.start, kind))
    return required_column(n, field, kind, lambda part: make(values[part], kind))


def required_column(
    n: int, field: pa.Field, kind: pa.DataType | None, build: Callable[[slice], pa.Array]
) -> tuple[pa.Array, dict[int, str]]:
    """Return what `build_column` does; where the field must not be null, what is null is a reason too."""
    array, failed = build_column(n, kind, build)
    if not field.nullable:
        for row in np.flatnonzero(flags_in(array.is_null())).tolist():
            failed.setdefault(row, "is null, and must not be")
    return array, failed


def _without(
    chunk: Chunk, batch: pa.RecordBatch, bad: Mapping[int, str], reject: Callable[[Reject], None] | None
) -> Batch:
    """Hand over the bad rows and return the others."""
    origin = origin_of(chunk)
    if not bad:
        return Batch(batch, origin)
    if reject is None:
        row = min(bad)
        raise TerminalError(
            f"row {dict(origin.at(row)) or row}: {bad[row]}",
            next="make the values fit the declared schema, or change the schema",
        )
    for row in sorted(bad):
        reject(Reject(bad[row], row_bytes(chunk, row), origin.at(row)))
    keep = np.ones(len(chunk), np.bool_)
    keep[list(bad)] = False
    return Batch(batch.filter(pa.array(keep)), subset(origin, np.flatnonzero(keep)))


def build_column(
    n: int, kind: pa.DataType | None, build: Callable[[slice], pa.Array]
) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of n values of a type (None = inferred from the values), and why some could not be made: those are null in it.

    What makes the values of some rows, or raises, is asked for halves until the bad rows are known.
    """
    failed: dict[int, str] = {}

    def part(start: int, stop: int) -> Iterable[pa.Array]:
        try:
            return [build(slice(start, stop))]
        except _ARROW_ERRORS as error:
            if kind is None:
                raise TerminalError(
                    f"the values of a column are of several types: {error}", next="declare a schema"
                ) from None
            if stop - start == 1:
                failed[start] = str(error)
                return [pa.nulls(1, kind)]
        middle = (start + stop) // 2
        return [*part(start, middle), *part(middle, stop)]

    pieces = list(part(0, n))
    return (pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)), failed


def built_column(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Return Python values as a column of a type, and why some could not be made: those are null in it."""
    return build_column(len(values), kind, lambda part: _array(values[part], kind))


def _cast(column: pa.Array, kind: pa.DataType | None) -> pa.Array:
    if kind is None or column.type == kind:
        return column
    return pc.cast(column, options=pc.CastOptions(kind, allow_time_truncate=True))


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    if kind is not None:
        made = column_from(values, kind)
        if made is not None:
            return made
        _check(values, kind)
    array = pa.array(values, kind, from_pandas=False)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _check(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise TypeError where Arrow changes a value in silence: a float cut to an integer, a number as a time."""
    if pa.types.is_integer(kind):
        _forbid(values, (float, np.floating, decimal.Decimal), "an integer")
    elif pa.types.is_temporal(kind):
        _forbid(values, (int, float, np.integer, np.floating), "a date or time")
    elif pa.types.is_map(kind):
        maps = [dict(v) for v in values if v is not None]
        _check((k for m in maps for k in m), kind.key_type)
        _check((x for m in maps for x in m.values()), kind.item_type)
    elif pa.types.is_struct(kind):
        rows = [v for v in values if isinstance(v, dict)]
        for field in kind:
            _check([v.get(field.name) for v in rows], field.type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        held = [v for v in values if v is not None]
        _forbid(held, (str, bytes, dict), "a list")
        _check((x for v in held for x in v), kind.value_type)


def _forbid(values: Iterable[Any], kinds: tuple[type, ...], wanted: str) -> None:
    for kind in set(map(type, values)):
        if issubclass(kind, kinds):
            raise TypeError(f"expected {wanted}, got a {kind.__name__}")


def row_bytes(chunk: Chunk, row: int) -> bytes:
    """Return a row as bytes for a dead letter: the line itself, or JSON."""
    if isinstance(chunk, Lines):
        return chunk.row(row)
    record = chunk.rows[row] if isinstance(chunk, Records) else row_values(chunk.batch, row)
    if list(record) == [VALUE] and isinstance(record[VALUE], bytes):
        return bytes(record[VALUE])
    text = json.dumps(record, default=_text, ensure_ascii=False)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, for which JSON has an escape
        return text.encode("utf-8", "backslashreplace")


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def not_utf8(batch: pa.RecordBatch, *, nested_only: bool = False) -> dict[int, str]:
    """Return which rows have text that is not UTF-8, and in which column; where all is well this costs one look at the bytes.

    Spark hands on bytes that were cast to text as they are, so a column may hold what no Python string can. With `nested_only`, only text within structs, lists and maps is looked at.
    """
    bad: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not _has_text(column.type) or (nested_only and not pa.types.is_nested(column.type)):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row in range(len(column)):
                try:
                    column[row].as_py()
                except UnicodeDecodeError:
                    bad.setdefault(row, f"column {name!r}: text that is not UTF-8")
                except (ValueError, OverflowError):  # a time that Python does not have, which is another matter
                    continue
    return bad


def row_values(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """Return a row as Python values, column name to value; where Python has none, bytes stand for text and numbers for times."""
    return {
        name: _readable(column.slice(row, 1)) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _readable(column: pa.Array) -> Any:
    try:
        return column.to_pylist()[0]
    except (ValueError, OverflowError):
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return plain.cast(_raw(plain.type)).to_pylist()[0]


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _raw(kind: pa.DataType) -> pa.DataType:
    """Return the type with bytes wherever it has text, and numbers wherever it has dates and times."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        return pa.int64()
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_map(kind):
        return pa.map_(_raw(kind.key_type), _raw(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_raw(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_raw(kind.value_type))
    return pa.list_(_raw(kind.value_type)) if pa.types.is_list(kind) else kind
