"""Columns of times that are formatted and parsed by Java's patterns.

Patterns whose fields have fixed widths (yyyyMMdd, yyyy-MM-dd HH:mm:ss.SSS) are computed by numpy; others by Python, once for each distinct
time down to what the pattern shows, or each distinct text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, indices_of, valid_in
from poundlock.sql.functions.kernels.characters import bytes_in, text_column
from poundlock.sql.functions.kernels.distinct import constant_in, integers_in, over_distinct, valid_of
from poundlock.sql.functions.kernels.java_times import (
    Dialect,
    PatternPiece,
    TimePattern,
    digits_of,
    fixed_layout,
    format_one,
    parse_one,
    pattern_of,
)
from poundlock.sql.functions.kernels.time_values import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    civil_of,
    days_of,
    micros_in,
    month_lengths,
    nanos_in,
    to_local,
)


def formatted(
    column: pa.Array, pattern: pa.Array | str, zone: tzinfo | None = None, dialect: Dialect = "DateTimeFormatter"
) -> pa.Array:
    """Return times as texts.

    Args:
        column: dates or timestamps.
        pattern: one for all, or one a row.
        zone: whose wall time is shown; None = the times are wall times.
    """
    micros, nanos = micros_in(column), nanos_in(column)
    local = micros if zone is None else to_local(micros, zone)
    same = pattern if isinstance(pattern, str) else constant_in(pattern)
    valid = valid_in(column)
    if same is None:
        patterns = [column_of(local, pa.int64(), valid), column_of(_or_zeros(nanos, local), pa.int64()), pattern]
        return over_distinct(
            patterns, lambda at, rest, text: format_one(at, rest, pattern_of(text, dialect)), pa.string()
        )
    known = pattern_of(same, dialect)
    slots = local // known.resolution
    low, high = (int(slots.min()), int(slots.max())) if len(slots) else (0, 0)
    year, _, _ = civil_of(np.array([low, high]) * known.resolution // DAY)
    is_fixed = fixed_layout(known) is not None and int(year[0]) >= 0 and int(year[1]) <= 9999
    if is_fixed and high - low < len(slots) // 4:
        texts = _by_digits(
            np.arange(low, high + 1) * known.resolution, _or_zeros(None, slots[: high - low + 1]), known, None
        )
        return texts.take(column_of(slots - low, pa.int64(), valid))
    if is_fixed and len(local):
        return _by_digits(local, _or_zeros(nanos, local), known, valid)
    rest = _or_zeros(nanos if known.resolution == 1 else None, local)
    columns = [column_of(slots * known.resolution, pa.int64(), valid), column_of(rest, pa.int64())]
    return over_distinct(columns, lambda at, rest: format_one(at, rest, known), pa.string())


def _or_zeros(nanos: Numbers | None, like: Numbers) -> Numbers:
    return np.zeros(len(like), np.int64) if nanos is None else nanos


def _by_digits(local: Numbers, nanos: Numbers, pattern: TimePattern, valid: Flags | None) -> pa.Array:
    layout = fixed_layout(pattern) or ()
    width = sum(each for _, each, _ in layout)
    year, month, day = civil_of(local // DAY)
    within = local % DAY
    second_nanos = within % SECOND * 1_000 + nanos
    fields = {
        "y": year, "u": year, "M": month, "L": month, "d": day, "H": within // HOUR, "m": within // MINUTE % 60,
        "s": within // SECOND % 60,
    }  # fmt: skip
    letters = np.empty((len(local), width), np.uint8)
    for at, size, piece in layout:
        if not piece.letter:
            letters[:, at : at + size] = np.frombuffer(piece.text.encode(), np.uint8)
        elif piece.letter == "S":
            letters[:, at : at + size] = ord("0")
            shown = min(size, 9)
            letters[:, at : at + shown] += digits_of(second_nanos // 10 ** (9 - shown), shown).astype(np.uint8)
        else:
            letters[:, at : at + size] = digits_of(fields[piece.letter], size) + ord("0")
    starts = np.arange(len(local), dtype=np.int64) * width
    return text_column(letters.ravel(), starts, starts + width, valid)


def _nothing(text: str) -> int | None:
    return None


def parsed_times(
    texts: pa.Array, pattern: pa.Array | str, dialect: Dialect, otherwise: Callable[[str], int | None] = _nothing
) -> tuple[Numbers, Flags]:
    """Return the wall times that texts are, microseconds since 1970, and which of them are some.

    Args:
        pattern: one for all, or one a row.
        otherwise: reads a text that does not have the pattern.
    """

    def parse(text: str, by: TimePattern) -> int | None:
        made = parse_one(text, by)
        return otherwise(text) if made is None else made

    same = pattern if isinstance(pattern, str) else constant_in(pattern)
    if same is None:
        made = over_distinct([texts, pattern], lambda text, by: parse(text, pattern_of(by, dialect)), pa.int64())
        return _numbers_and_flags(made)
    known = pattern_of(same, dialect)
    return parsed_by([known], texts, lambda text: parse(text, known))


def parsed_by(
    patterns: Sequence[TimePattern], texts: pa.Array, parse: Callable[[str], int | None]
) -> tuple[Numbers, Flags]:
    """Return the wall times of texts that have one of some patterns of fixed widths, or that a function reads, and which of them are some."""
    micros, known = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    if not len(texts):
        return micros, known
    lengths, valid = np.diff(ends_in(texts)), valid_in(texts)
    is_asked = np.ones(len(texts), np.bool_) if valid is None else valid.copy()
    present = set(np.unique(lengths).tolist())
    for pattern in patterns:
        layout = fixed_layout(pattern)
        width = sum(each for _, each, _ in layout or ())
        if layout is None or width not in present:
            continue
        rows = np.flatnonzero(is_asked & (lengths == width))
        if len(rows):
            times, fits = _from_digits(texts, rows, layout, is_lenient=pattern.dialect == "SimpleDateFormat")
            micros[rows[fits]], known[rows[fits]] = times[fits], True
            is_asked[rows[fits]] = False
    rest = np.flatnonzero(is_asked)
    if len(rest):
        others = over_distinct([texts.take(indices_of(rest))], parse, pa.int64())
        micros[rest], known[rest] = _numbers_and_flags(others)
    return micros, known


def _from_digits(
    texts: pa.Array, rows: Numbers, layout: tuple[tuple[int, int, PatternPiece], ...], *, is_lenient: bool
) -> tuple[Numbers, Flags]:
    """Return the times of texts that are as long as a layout, and which of them are digits where it has some."""
    width = layout[-1][0] + layout[-1][1]
    starts = ends_in(texts)[:-1][rows]
    letters = bytes_in(texts)[starts[:, None] + np.arange(width)]
    fits = np.ones(len(rows), np.bool_)
    fields = {"y": np.full(len(rows), 1970), "M": np.ones(len(rows), np.int64), "d": np.ones(len(rows), np.int64)}
    fields |= {letter: np.zeros(len(rows), np.int64) for letter in "HmsS"}
    for at, size, piece in layout:
        part = letters[:, at : at + size]
        if not piece.letter:
            fits &= (part == np.frombuffer(piece.text.encode(), np.uint8)).all(axis=1)
            continue
        digits = (part - np.uint8(ord("0"))).astype(np.int64)
        fits &= (digits <= 9).all(axis=1)
        shown = digits[:, :6]
        number = shown @ (10 ** np.arange(shown.shape[1] - 1, -1, -1, dtype=np.int64))
        if piece.letter == "S":
            number = number * 10 ** (6 - shown.shape[1])
        fields[{"u": "y", "L": "M"}.get(piece.letter, piece.letter)] = number
    year, month, day = fields["y"], fields["M"], fields["d"]
    fits &= (month >= 1) & (month <= 12) & (day >= 1) & (fields["H"] < 24) & (fields["m"] < 60) & (fields["s"] < 60)
    month = np.where(fits, month, 1)
    longest = month_lengths(year, month)
    fits &= day <= (longest if is_lenient or not _has_year(layout) else 31)
    days = days_of(year, month, np.minimum(day, longest))
    return days * DAY + fields["H"] * HOUR + fields["m"] * MINUTE + fields["s"] * SECOND + fields["S"], fits


def _has_year(layout: tuple[tuple[int, int, PatternPiece], ...]) -> bool:
    return any(piece.letter in ("y", "u") for _, _, piece in layout)


def _numbers_and_flags(column: pa.Array) -> tuple[Numbers, Flags]:
    valid = valid_of([column])
    return integers_in(column), np.ones(len(column), np.bool_) if valid is None else valid
