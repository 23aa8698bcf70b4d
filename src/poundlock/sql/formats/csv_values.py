"""Values in CSV: texts of fields as values of a type, and values as texts, as Flink reads and Jackson writes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, column_of, ends_in
from poundlock.sql.formats import value_texts
from poundlock.sql.formats.json_columns import decimals_of
from poundlock.sql.formats.json_values import (
    bytes_of,
    list_column,
    real_of,
    row_column,
    scalar_column,
    whole_of,
)
from poundlock.sql.formats.times import days, moments, read_lax_day, read_lax_moment, read_moment, read_time, times
from poundlock.sql.formats.value_texts import byte_strings, joined_texts, one, texts
from poundlock.sql.functions.kernels.columns import by_value, null_where, trues
from poundlock.sql.functions.kernels.rendering import real_texts, text_of
from poundlock.sql.types import SqlType

from zoneinfo import ZoneInfo  # isort: skip

_PLAIN_WHOLE, _PLAIN_REAL = r"^-?[0-9]{1,18}$", r"^-?[0-9]+(?:\.[0-9]+)?$"
_UTC = ZoneInfo("UTC")
_ASTRAL = r"[\x{10000}-\x{10FFFF}]"
_LONGEST_UNQUOTED = 24  # characters of a text that Jackson looks at; a longer one is quoted
_TEXTS, _BYTES, _WHOLE = ("CHAR", "VARCHAR"), ("BINARY", "VARBINARY"), ("TINYINT", "SMALLINT", "INT", "BIGINT")


@dataclass(frozen=True, slots=True)
class CsvRules:
    """How values stand in fields.

    Args:
        separator: between the elements of an array, or the fields of a row.
        null: the text that means NULL; None for none.
        is_lenient: whether a text that does not fit is null; else it is an error.
        empty_is_null: whether an empty text is NULL.
        plain_decimals: whether decimals have no exponent when they are written.
    """

    separator: str = ";"
    null: str | None = None
    is_lenient: bool = False
    plain_decimals: bool = False
    empty_is_null: bool = False


# --- reading ---------------------------------------------------------------------------------------------------------


def values_of(column: pa.Array, kind: SqlType, rules: CsvRules) -> tuple[pa.Array, Flags]:
    """Return texts as values of a type, and which of them are none, which are null."""
    if kind.root in ("ARRAY", "ROW"):
        return _parts_of(column, kind, rules)
    if rules.null is not None:
        column = null_where(column, trues(pc.equal(column, one(rules.null))))
    if rules.empty_is_null:
        column = null_where(column, trues(pc.equal(column, one(""))))
    made = _plain_values(column, kind)
    if made is not None:
        return made
    if kind.root in _BYTES:
        made_bytes = by_value(column, lambda values: byte_strings([None if v is None else bytes_of(v) for v in values]))
        return made_bytes, _became_null(column, made_bytes)
    read = partial(whole_of, kind=kind) if kind.root in _WHOLE else real_of
    alone = by_value(column, lambda values: scalar_column([None if v is None else read(v) for v in values], kind))
    return alone, _became_null(column, alone)


def _plain_values(column: pa.Array, kind: SqlType) -> tuple[pa.Array, Flags] | None:
    """Return what is read by columns; None where values have to be read one by one."""
    root = kind.root
    nowhere = np.zeros(len(column), np.bool_)
    if root in _TEXTS:
        return column, nowhere
    if root == "BOOLEAN":
        return pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(column)), one("true")), nowhere
    if root == "DATE":
        return days(column, read_lax_day)
    if root == "TIME":
        return times(column, partial(read_time, needs_seconds=False))
    if root == "TIMESTAMP":
        return moments(column, kind, "SQL", partial(read_lax_moment, kind=kind))
    if root == "TIMESTAMP_LTZ":
        return moments(column, kind, "SQL", partial(read_moment, kind=kind, standard="SQL"))
    if root == "DECIMAL":
        return decimals_of(column, kind)
    pattern = _PLAIN_WHOLE if root in _WHOLE else _PLAIN_REAL if root in ("FLOAT", "DOUBLE") else None
    if pattern is None or pc.any(pc.invert(pc.match_substring_regex(column, pattern))).as_py():
        return None
    try:
        return pc.cast(column, kind.arrow), nowhere
    except pa.ArrowInvalid:
        return None


def _became_null(column: pa.Array, made: pa.Array) -> Flags:
    return trues(pc.and_(pc.is_valid(column), pc.is_null(made)))


def _parts_of(column: pa.Array, kind: SqlType, rules: CsvRules) -> tuple[pa.Array, Flags]:
    """Return texts as arrays or rows: the parts of each are between separators; a blank text has none."""
    cut = [None if text is None else text.split(rules.separator) if text.strip() else [] for text in column.to_pylist()]
    if kind.root == "ARRAY":
        made, wrong = values_of(texts([part for each in cut if each is not None for part in each]), kind.of[0], rules)
        bad = np.zeros(len(cut), np.bool_)
        if not rules.is_lenient and wrong.any():
            owners = np.repeat(np.arange(len(cut)), [len(each or ()) for each in cut])
            bad[owners[wrong]] = True
        return list_column(made, cut, kind), bad
    width = len(kind.of)
    bad = np.array([bool(each) and len(each or ()) != width and not rules.is_lenient for each in cut], np.bool_)
    fields = []
    for place, of in enumerate(kind.of):
        field = texts([each[place] if each and place < len(each) else None for each in cut])
        part, wrong = values_of(field, of, rules)
        fields.append(part)
        if not rules.is_lenient:
            bad |= wrong
    return row_column(fields, [each or None for each in cut], kind), bad


# --- writing ---------------------------------------------------------------------------------------------------------


def texts_in(column: pa.Array, kind: SqlType, rules: CsvRules) -> tuple[pa.Array, bool]:
    """Return values as texts without quotes, null for null, and whether they may need quotes."""
    root = kind.root
    if root in _TEXTS:
        return column, True
    if root == "BOOLEAN":
        return value_texts.truths(column), False
    if root in ("FLOAT", "DOUBLE"):
        return real_texts(column), False
    if root == "DECIMAL":
        short = value_texts.short_decimals(column, plain=False)
        return (value_texts.without_exponents(short) if rules.plain_decimals else short), False
    if root in _BYTES:
        return value_texts.base64_texts(column), True
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return value_texts.moments(column, kind, "SQL"), True
    if root == "TIME":
        return value_texts.times(column), True
    if root == "DATE":
        return text_of(column, kind, _UTC), True
    if root == "ARRAY":
        return _elements(column, kind, rules), True
    if root == "ROW":
        parts = [
            _or_null(texts_in(each, of, rules)[0], rules) for each, of in zip(column.flatten(), kind.of, strict=True)
        ]
        joined = pc.binary_join_element_wise(*parts, one(rules.separator))
        return (joined if not column.null_count else pc.if_else(pc.is_valid(column), joined, _nulls(len(column)))), True
    return pc.cast(column, pa.string()), False


def _elements(column: pa.Array, kind: SqlType, rules: CsvRules) -> pa.Array:
    if not len(column):
        return _nulls(0)
    ends = ends_in(column)
    items = column.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
    shown = _or_null(texts_in(items, kind.of[0], rules)[0], rules)
    lists = pa.ListArray.from_arrays(column_of((ends - ends[0]).astype(np.int32), pa.int32()), shown)
    joined = pc.binary_join(lists, one(rules.separator))
    return joined if not column.null_count else pc.if_else(pc.is_valid(column), joined, _nulls(len(column)))


def _or_null(column: pa.Array, rules: CsvRules) -> pa.Array:
    return pc.coalesce(column, one(rules.null or "")) if column.null_count else column


def _nulls(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.string())


def quoted(column: pa.Array, delimiter: str, quote: str, escape: str) -> pa.Array:
    """Return texts, those in quotes that Jackson puts there: long ones, and those with a character up to the delimiter or quote."""
    most = max(ord(delimiter), ord(quote), ord("\n"))
    unsafe = rf"[\x{{00}}-\x{{{most:x}}}{_class_of(escape)}]"
    wants = pc.match_substring_regex(column, unsafe)
    lengths = pc.add(pc.utf8_length(column), pc.count_substring_regex(column, _ASTRAL))
    limit = column_of(np.array([_LONGEST_UNQUOTED], np.int32), pa.int32())[0]
    wants = pc.or_(wants, pc.greater(lengths, limit))
    if not pc.any(wants).as_py():
        return column
    doubled = pc.replace_substring(column, quote, quote * 2)
    if escape and escape != quote:
        doubled = pc.replace_substring(doubled, escape, escape * 2)
    return pc.if_else(wants, joined_texts(one(quote), doubled, one(quote)), column)


def _class_of(character: str) -> str:
    return rf"\x{{{ord(character):x}}}" if character else ""


def check_type(kind: SqlType, *, is_inside: bool = False) -> str | None:
    """Return what CSV has not in a type, None where it has all."""
    if kind.root in ("MAP", "MULTISET"):
        return f"{kind.root}"
    if kind.root in ("ARRAY", "ROW"):
        if is_inside:
            return f"{kind.root} within {kind.root}s"
        return next((each for each in (check_type(of, is_inside=True) for of in kind.of) if each is not None), None)
    if kind.root == "TIME" and kind.sizes[0] > 3:
        return f"{kind}, only up to milliseconds"
    return None
