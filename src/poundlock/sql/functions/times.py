"""Functions that read and write times, and those of the clock.

All take their arguments as they are written; CURRENT_TIMESTAMP, CURRENT_DATE, CURRENT_TIME, LOCALTIME, LOCALTIMESTAMP take none and are
written without parentheses. Patterns are Java's, see kernels/java_times.py. TIMESTAMP_LTZ is shown and read in the session's zone.

The clock stands still during a checkpoint: `Evaluation.now_us`.

A text that does not have its pattern gives NULL. As in Flink, TO_TIMESTAMP with a pattern also takes `yyyy-MM-dd[ HH:mm:ss[.f]]`, and
UNIX_TIMESTAMP gives the least BIGINT.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from functools import lru_cache

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import Flags, Numbers, column_of, is_float, is_text, numbers_in, valid_in
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.distinct import constant_in, integers_in, over_distinct, valid_of
from poundlock.sql.functions.kernels.java_times import Dialect, format_one, parse_one, pattern_of
from poundlock.sql.functions.kernels.sql_times import date_days, timestamp_micros
from poundlock.sql.functions.kernels.time_columns import formatted, parsed_by, parsed_times
from poundlock.sql.functions.kernels.time_values import DAY, SECOND, column_of_micros, to_instant, to_local
from poundlock.sql.functions.signatures import (
    BIGINT,
    DATE,
    TIMESTAMP_3,
    TIMESTAMP_LTZ_3,
    Nulls,
    Run,
    constant_text,
    defined,
)
from poundlock.sql.types import STRING, SqlType
from poundlock.values import time_zone

_PLAIN = "yyyy-MM-dd HH:mm:ss"
_DEFAULTS = ("yyyy-MM-dd", _PLAIN, *(f"{_PLAIN}.{'S' * digits}" for digits in range(1, 10)))
_MILLI = SECOND // 1_000
_LEAST, _MOST = -62_167_219_200 * SECOND, 253_402_300_800 * SECOND - 1
_LEAST_BIGINT = np.iinfo(np.int64).min

# --- formatting --------------------------------------------------------------------------------------------------------


def _date_format(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    column, pattern = columns
    if not is_text(column.type):
        zone = evaluation.zone if pa.types.is_timestamp(column.type) and column.type.tz is not None else None
        return formatted(column, pattern, zone)
    local, known = parsed_times(column, _PLAIN, "SimpleDateFormat")
    return formatted(column_of(local, pa.timestamp("us"), known), pattern, dialect="SimpleDateFormat")


def _from_unixtime(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    micros = integers_in(columns[0]) * SECOND
    times = column_of(micros, pa.timestamp("us"), valid_in(columns[0]))
    pattern = columns[1] if len(columns) > 1 else _PLAIN
    return formatted(times, pattern, evaluation.zone, "SimpleDateFormat")


def _convert_tz(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _converted, pa.string())


def _converted(text: str, old: str, new: str) -> str | None:
    pattern = pattern_of(_PLAIN, "SimpleDateFormat")
    local = parse_one(text, pattern)
    if local is None:
        return None
    instant = to_instant(np.array([local]), _zone_of(old), of_standard=True)
    return format_one(int(to_local(instant, _zone_of(new))[0]), 0, pattern)


@lru_cache(maxsize=256)
def _zone_of(name: str) -> tzinfo:
    try:
        return time_zone(name)
    except DefinitionError as error:
        raise TerminalError(f"there is no time zone {name}", next=error.next) from error


# --- parsing -----------------------------------------------------------------------------------------------------------


def _to_timestamp(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    local, known = _wall_times(columns)
    return column_of_micros(local // _MILLI * _MILLI, evaluation.returns.arrow, known)


def _wall_times(columns: Sequence[pa.Array]) -> tuple[Numbers, Flags]:
    """Return the wall times that texts are by a pattern, or by the default one, and which of them are some."""
    if len(columns) > 1:
        return parsed_times(columns[0], columns[1], "DateTimeFormatter", _as_sql)
    patterns = [pattern_of(each, "DateTimeFormatter") for each in _DEFAULTS]
    return parsed_by(patterns, columns[0], timestamp_micros)


def _as_sql(text: str) -> int | None:
    """Return what java.sql.Timestamp and java.sql.Date read: the day of a month may be too great for it."""
    return timestamp_micros(text.strip(), is_lenient=True)


def _to_timestamp_ltz(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    if is_text(columns[0].type):
        local, known = _wall_times(columns[:2])
        zone = columns[2] if len(columns) > 2 else None
        micros = local if zone is None else _instants(local, zone)
        valid = None if zone is None else valid_in(zone)
        known = known if valid is None else known & valid
        return column_of_micros(micros // _MILLI * _MILLI, evaluation.returns.arrow, known)
    precision = 3 if len(columns) == 1 else constant_in(columns[1])
    numbers = integers_in(columns[1]) if precision is None else np.full(len(columns[0]), precision)
    valid = valid_of(columns)
    if (numbers[slice(None) if valid is None else valid] % 3 != 0).any() or (numbers > 3).any():
        raise TerminalError("TO_TIMESTAMP_LTZ of a precision that is neither 0 nor 3", next="give 0 or 3")
    millis = _millis(columns[0], numbers == 0)
    is_time = (millis >= _LEAST // _MILLI) & (millis <= _MOST // _MILLI)
    micros = np.where(is_time, millis, 0) * _MILLI
    return column_of_micros(micros, evaluation.returns.arrow, is_time if valid is None else is_time & valid)


def _millis(column: pa.Array, is_seconds: Flags) -> Numbers:
    """Return numbers of seconds, or of milliseconds, as whole milliseconds."""
    factor = np.where(is_seconds, 1_000, 1)
    if is_float(column.type):
        values = numbers_in(column).astype(np.float64) * factor
        result: Numbers = np.where(np.abs(values) < 2**62, values, 2.0**62).astype(np.int64)
        return result
    if pa.types.is_decimal(column.type):
        column = over_distinct([column], int, pa.int64())
    numbers = np.clip(integers_in(column), -(2**52), 2**52)
    scaled: Numbers = numbers * factor
    return scaled


def _instants(local: Numbers, zones: pa.Array) -> Numbers:
    same = constant_in(zones)
    if same is not None:
        return to_instant(local, _zone_of(same))
    made = over_distinct(
        [column_of(local, pa.int64()), zones],
        lambda at, zone: int(to_instant(np.array([at]), _zone_of(zone))[0]),
        pa.int64(),
    )
    return integers_in(made)


def _ltz_type(given: Sequence[Given]) -> SqlType:
    if (
        len(given) == 2
        and given[1].is_literal
        and given[1].value not in (None, 0, 3)
        and constant_text(given, 1) is None
    ):
        raise DefinitionError(f"TO_TIMESTAMP_LTZ of precision {given[1].value}", next="give 0 or 3")
    return _checked_pattern(given, TIMESTAMP_LTZ_3, "DateTimeFormatter")


def _to_date(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    if len(columns) > 1:
        local, known = parsed_times(columns[0], columns[1], "SimpleDateFormat")
        return column_of_micros(local, pa.date32(), known)
    local, known = parsed_by([pattern_of("yyyy-MM-dd", "SimpleDateFormat")], columns[0], _date_micros)
    return column_of_micros(local, pa.date32(), known)


def _date_micros(text: str) -> int | None:
    days = date_days(text)
    return None if days is None else days * DAY


def _unix_timestamp(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    if not columns:
        return _repeated(evaluation.now_us // SECOND, pa.int64(), evaluation.rows)
    pattern = columns[1] if len(columns) > 1 else _PLAIN
    local, known = parsed_times(columns[0], pattern, "SimpleDateFormat")
    seconds = to_instant(local, evaluation.zone, of_standard=True) // SECOND
    return column_of(np.where(known, seconds, _LEAST_BIGINT), pa.int64(), valid_of(columns))


# --- the clock ---------------------------------------------------------------------------------------------------------


def _repeated(value: int, kind: pa.DataType, rows: int) -> pa.Array:
    return column_of(np.full(rows, value, np.dtype(f"<i{kind.bit_width // 8}")), kind)


def _now(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the time of the checkpoint as the type of the call: an instant, or the wall time, date or time of the session's zone."""
    now = np.array([evaluation.now_us // _MILLI * _MILLI])
    if evaluation.returns.root != "TIMESTAMP_LTZ":
        now = to_local(now, evaluation.zone)
    if evaluation.returns.root == "TIME":
        now = now % DAY // SECOND * SECOND
    return column_of_micros(np.repeat(now, evaluation.rows), evaluation.returns.arrow, None)


# --- the table ---------------------------------------------------------------------------------------------------------


def _checked_pattern(given: Sequence[Given], result: SqlType, dialect: Dialect) -> SqlType:
    pattern = constant_text(given, 1)
    if pattern is not None:
        pattern_of(pattern, dialect)
    return result


def _with_pattern(
    name: str, forms: str | tuple[str, ...], result: SqlType, run: Run, dialect: Dialect, nulls: Nulls = "always"
) -> SqlFunction:
    """Return a function whose second argument is a pattern: one that is written in the script is looked at."""

    def rule(given: Sequence[Given]) -> SqlType:
        of_text = name == "DATE_FORMAT" and given[0].type.root in ("CHAR", "VARCHAR")
        return _checked_pattern(given, result, "SimpleDateFormat" if of_text else dialect)

    return defined(name, forms, rule, run, nulls=nulls)


def _clock(name: str, result: SqlType) -> SqlFunction:
    return defined(name, "", result, _now, nulls="never", is_deterministic=False)


_TEXT_FORMS = ("text", "text, text")
_JAVA_TIME: Dialect = "DateTimeFormatter"
_JAVA_TEXT: Dialect = "SimpleDateFormat"
_DATE_FORMAT_FORMS = ("date or timestamp, text", "text, text")
_LTZ_FORMS = ("number", "number, integer", "text", "text, text", "text, text, text")
_TIME = SqlType("TIME", (0,))

FUNCTIONS: Sequence[SqlFunction] = (
    _with_pattern("DATE_FORMAT", _DATE_FORMAT_FORMS, STRING, _date_format, _JAVA_TIME),
    _with_pattern("FROM_UNIXTIME", ("integer", "integer, text"), STRING, _from_unixtime, _JAVA_TEXT),
    _with_pattern("TO_TIMESTAMP", _TEXT_FORMS, TIMESTAMP_3, _to_timestamp, _JAVA_TIME),
    _with_pattern("TO_DATE", _TEXT_FORMS, DATE, _to_date, _JAVA_TEXT),
    _with_pattern("UNIX_TIMESTAMP", ("", *_TEXT_FORMS), BIGINT, _unix_timestamp, _JAVA_TEXT, "with arguments"),
    defined("TO_TIMESTAMP_LTZ", _LTZ_FORMS, _ltz_type, _to_timestamp_ltz, nulls="always"),
    defined("CONVERT_TZ", "text, text, text", STRING, _convert_tz, nulls="always"),
    _clock("CURRENT_TIMESTAMP", TIMESTAMP_LTZ_3),
    _clock("NOW", TIMESTAMP_LTZ_3),
    _clock("CURRENT_ROW_TIMESTAMP", TIMESTAMP_LTZ_3),
    _clock("LOCALTIMESTAMP", TIMESTAMP_3),
    _clock("CURRENT_DATE", DATE),
    _clock("CURRENT_TIME", _TIME),
    _clock("LOCALTIME", _TIME),
)
