"""CAST and TRY_CAST of whole columns between all types that Flink casts.

Integers wrap around in a narrower one, floating point numbers stop at its bounds, decimals are rounded half up. What does not parse, or does
not fit, makes the job fail, or is NULL for TRY_CAST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of, ends_in, numbers_in, valid_in
from poundlock.sql.coercion import BINARIES, FLOATS, INTEGERS, NESTED, TEXTS, TIMESTAMPS
from poundlock.sql.functions.function import CastFailed
from poundlock.sql.functions.kernels import parsing
from poundlock.sql.functions.kernels.columns import by_value, wrapped
from poundlock.sql.functions.kernels.decimals import exact, fitted, low_bits, of_reals
from poundlock.sql.functions.kernels.distinct import integers_in, python_column
from poundlock.sql.functions.kernels.rendering import text_of
from poundlock.sql.functions.kernels.time_values import instant_column, local_column
from poundlock.sql.types import LONGEST, SqlType

_DAY_MS, _MILLI_DIGITS = 86_400_000, 3
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_SHOWN = 40  # characters of a text that is no value


def cast(column: pa.Array, source: SqlType, target: SqlType, zone: tzinfo, *, is_try: bool) -> pa.Array:
    """Return values of one type as values of another.

    Raises:
        EvaluationError: a text is none of the type, unless `is_try`.
    """
    if source.root == "NULL":
        return pa.nulls(len(column), target.arrow)
    if source.with_null() == target.with_null():
        return column
    made = _cast(column, source, target, zone, is_try)
    if source.root in TEXTS and not is_try and made.null_count > column.null_count:
        failed = np.flatnonzero(_lost(column, made))
        text = str(column[int(failed[0])])
        raise CastFailed(
            f"CAST of the text {text[:_SHOWN]!r} to {target}: it is none",
            next="write TRY_CAST, which makes it NULL, or leave such rows out, and start the job again",
        )
    return made


def _lost(column: pa.Array, made: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    before, behind = valid_in(column), valid_in(made)
    missing = np.zeros(len(made), np.bool_) if behind is None else ~behind
    return missing if before is None else missing & before


def _cast(column: pa.Array, source: SqlType, target: SqlType, zone: tzinfo, is_try: bool) -> pa.Array:
    if target.root in TEXTS:
        return _sized_text(text_of(column, source, zone), source, target)
    if target.root in BINARIES:
        return _sized_bytes(pc.cast(column, pa.binary()), source, target)
    if source.root in TEXTS:
        return _parsed(column, target, zone)
    if target.root in NESTED:
        return _nested(column, source, target, zone, is_try)
    if target.root in INTEGERS:
        return _integers(column, source, target)
    if target.root in FLOATS:
        return _reals(column, target)
    if target.root == "DECIMAL":
        return _decimals(column, source, target)
    if target.root == "BOOLEAN":
        return pc.cast(column, pa.bool_())
    if target.root in TIMESTAMPS:
        return _timestamps(column, source, target, zone)
    local = local_column(column, zone) if source.root == "TIMESTAMP_LTZ" else column
    if target.root == "DATE":
        return pc.cast(pc.floor_temporal(local, 1, "day"), pa.date32())
    if target.root == "TIME":
        return _times(local, source, target)
    return column


def _parsed(column: pa.Array, target: SqlType, zone: tzinfo) -> pa.Array:
    if target.root in INTEGERS:
        return parsing.whole_numbers(column, target)
    if target.root in TIMESTAMPS:
        return parsing.timestamps(column, target, zone)
    by_root: Mapping[str, Callable[[], pa.Array]] = {
        "FLOAT": lambda: parsing.reals(column, target),
        "DOUBLE": lambda: parsing.reals(column, target),
        "DECIMAL": lambda: parsing.decimal_numbers(column, target),
        "BOOLEAN": lambda: parsing.truth_values(column),
        "DATE": lambda: parsing.dates(column),
        "TIME": lambda: parsing.times(column, target),
    }
    return by_root[target.root]()


def _sized_text(column: pa.Array, source: SqlType, target: SqlType) -> pa.Array:
    (length,) = target.sizes
    if length < LONGEST and not (source.root in TEXTS and source.sizes[0] <= length):
        column = pc.utf8_slice_codeunits(column, 0, length)
    return pc.utf8_rpad(column, length, " ") if target.root == "CHAR" and source != target else column


def _sized_bytes(column: pa.Array, source: SqlType, target: SqlType) -> pa.Array:
    (length,) = target.sizes
    if length == LONGEST or (source.root in BINARIES and source.sizes[0] <= length and target.root == "VARBINARY"):
        return column
    is_fixed = target.root == "BINARY"
    return by_value(
        column,
        lambda values: python_column(
            [v[:length].ljust(length, b"\0") if is_fixed else v[:length] for v in values], pa.binary()
        ),
    )


def _integers(column: pa.Array, source: SqlType, target: SqlType) -> pa.Array:
    valid = valid_in(column)
    if source.root == "DECIMAL":
        whole = pc.cast(pc.trunc(column), pa.decimal128(38, 0))
        values = low_bits(whole)
    elif source.root in FLOATS:
        # Java stops at the bounds of INT, or of BIGINT, and takes the bits of the narrower types from there.
        bounds = np.iinfo(np.int64 if target.root == "BIGINT" else np.int32)
        number = np.nan_to_num(numbers_in(column).astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        with np.errstate(invalid="ignore"):
            inside = np.clip(number, -(2.0**62), 2.0**62).astype(np.int64)
            far = np.where(
                number >= 2.0**63, bounds.max, np.where(number < -(2.0**63), bounds.min, number.astype(np.int64))
            )
        values = np.clip(np.where(np.abs(number) < 2.0**62, inside, far), bounds.min, bounds.max)
    else:
        values = integers_in(column)
    return column_of(wrapped(values, target.arrow), target.arrow, valid)


def _reals(column: pa.Array, target: SqlType) -> pa.Array:
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    return pc.cast(column, target.arrow, safe=False)


def _decimals(column: pa.Array, source: SqlType, target: SqlType) -> pa.Array:
    if source.root in FLOATS:
        return of_reals(column, target)
    if source.root == "BOOLEAN":
        column = pc.cast(column, pa.int8())
    return fitted(exact(column), target)


def _timestamps(column: pa.Array, source: SqlType, target: SqlType, zone: tzinfo) -> pa.Array:
    arrow = target.arrow
    plain = pa.timestamp(arrow.unit)
    if source.root == "TIME":
        day = column_of(integers_in(column), pa.timestamp("ms"), valid_in(column))
        column = pc.cast(day, plain)
    elif source.root == "DATE":
        column = pc.cast(column, plain)
    if source.root != "TIMESTAMP_LTZ" and target.root == "TIMESTAMP_LTZ":
        column = instant_column(pc.cast(column, plain), zone)
    elif source.root == "TIMESTAMP_LTZ" and target.root == "TIMESTAMP":
        column = local_column(column, zone)
    return _cut(pc.cast(column, arrow, safe=False), source, target.sizes[0])


def _cut(column: pa.Array, source: SqlType, precision: int) -> pa.Array:
    """Return timestamps without the digits of a second that their type has not."""
    if source.root in TIMESTAMPS and source.sizes[0] <= precision:
        return column
    unit = 10 ** max(_DIGITS[column.type.unit] - precision, 0)
    return column_of(integers_in(column) // unit * unit, column.type, valid_in(column)) if unit > 1 else column


def _times(column: pa.Array, source: SqlType, target: SqlType) -> pa.Array:
    unit = 10 ** max(_MILLI_DIGITS - target.sizes[0], 0)
    values = integers_in(column)
    if source.root in TIMESTAMPS:
        values = values // 10 ** (_DIGITS[column.type.unit] - _MILLI_DIGITS) % _DAY_MS
    return column_of((values // unit * unit).astype(np.int32), pa.time32("ms"), valid_in(column))


def _nested(column: pa.Array, source: SqlType, target: SqlType, zone: tzinfo, is_try: bool) -> pa.Array:
    valid = valid_in(column)
    missing = None if valid is None else column_of(~valid, pa.bool_())
    if target.root == "ROW":
        pairs = zip(column.flatten(), source.of, target.of, strict=True)
        fields = [cast(each, a, b, zone, is_try=is_try) for each, a, b in pairs]
        return pa.StructArray.from_arrays(fields, fields=list(target.arrow), mask=missing)
    ends = ends_in(column)
    begin, count = int(ends[0]), int(ends[-1] - ends[0])
    offsets = column_of((ends - begin).astype(np.int32), pa.int32())
    if target.root == "ARRAY":
        items = cast(column.values.slice(begin, count), source.of[0], target.of[0], zone, is_try=is_try)
        return pa.ListArray.from_arrays(offsets, items, type=target.arrow, mask=missing)
    keys = cast(column.keys.slice(begin, count), source.of[0], target.of[0], zone, is_try=is_try)
    values = column.items.slice(begin, count)
    if target.root == "MAP":
        values = cast(values, source.of[1], target.of[1], zone, is_try=is_try)
    return pc.cast(pa.MapArray.from_arrays(offsets, keys, values, mask=missing), target.arrow)
