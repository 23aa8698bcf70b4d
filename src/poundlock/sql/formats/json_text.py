"""Columns as JSON, text by text, column after column, as Jackson writes them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import column_of, ends_in, indices_of, numbers_in, valid_in
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats import value_texts
from poundlock.sql.formats.times import TimestampFormat
from poundlock.sql.formats.value_texts import joined_texts, one, texts
from poundlock.sql.functions.kernels.rendering import real_texts, text_of
from poundlock.sql.types import SqlType

from zoneinfo import ZoneInfo  # isort: skip

_UTC = ZoneInfo("UTC")
_WANTS_ESCAPE = r'[\x00-\x1f"\\]'
_TEXTS = ("CHAR", "VARCHAR")


@dataclass(frozen=True)
class JsonTexts:
    """How values are written.

    Args:
        timestamps: how times are written.
        leaves_nulls_out: whether a field that is null is left out of its object.
        plain_decimals: whether decimals have no exponent, and all digits of their scale.
    """

    timestamps: TimestampFormat = "SQL"
    leaves_nulls_out: bool = False
    plain_decimals: bool = False

    def objects(self, columns: Sequence[pa.Array], kind: SqlType) -> pa.Array:
        """Return an object for each row of columns, of which there is one at least."""
        parts = []
        for name, column, of in zip(kind.names, columns, kind.of, strict=True):
            key = f"{_escaped(name)}:"
            text = self.texts(column, of)
            pair = joined_texts(one(key), text)
            if not self.leaves_nulls_out and text.null_count:
                pair = pc.if_else(pc.is_valid(text), pair, one(f"{key}null"))
            parts.append(pair)
        if self.leaves_nulls_out:
            # Arrow forgets the rows in which all parts are null.
            is_empty = functools.reduce(pc.and_, map(pc.is_null, parts))
            parts[0] = pc.if_else(is_empty, one(""), parts[0])
        inner = pc.binary_join_element_wise(*parts, one(","), null_handling="skip")
        return joined_texts(one("{"), inner, one("}"))

    def texts(self, column: pa.Array, kind: SqlType) -> pa.Array:
        """Return each value as JSON, null for null."""
        root = kind.root
        if root in _TEXTS:
            return _quoted(column)
        if root == "BOOLEAN":
            return value_texts.truths(column)
        if root in ("FLOAT", "DOUBLE"):
            return _reals(column)
        if root == "DECIMAL":
            return value_texts.short_decimals(column, plain=self.plain_decimals)
        if root in ("BINARY", "VARBINARY"):
            return _between('"', value_texts.base64_texts(column), '"')
        if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            return _between('"', value_texts.moments(column, kind, self.timestamps), '"')
        if root == "TIME":
            return _between('"', value_texts.times(column), '"')
        if root == "DATE":
            return _between('"', text_of(column, kind, _UTC), '"')
        if root == "ARRAY":
            ends = ends_in(column)
            items = column.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
            return _lists(column, self._or_null(self.texts(items, kind.of[0])), "[", "]")
        if root in ("MAP", "MULTISET"):
            return self._maps(column, kind)
        if root == "ROW":
            made = self.objects(list(column.flatten()), kind) if kind.of else _repeated("{}", len(column))
            return made if not column.null_count else pc.if_else(pc.is_valid(column), made, _nothing(len(column)))
        return pc.cast(column, pa.string())

    @staticmethod
    def _or_null(items: pa.Array) -> pa.Array:
        return pc.coalesce(items, one("null")) if items.null_count else items

    def _maps(self, column: pa.Array, kind: SqlType) -> pa.Array:
        of = SqlType("INT") if kind.root == "MULTISET" else kind.of[1]
        ends = ends_in(column)
        first, count = int(ends[0]), int(ends[-1] - ends[0])
        keys = column.keys.slice(first, count)
        items = self._or_null(self.texts(column.items.slice(first, count), of))
        pairs = joined_texts(_quoted(keys), one(":"), items)
        return _lists(column, pairs, "{", "}")


def _lists(column: pa.Array, items: pa.Array, begin: str, end: str) -> pa.Array:
    """Return lists of texts, null for null; the column says which of the items each list has."""
    if not len(column):
        return _nothing(0)
    ends = ends_in(column)
    lists = pa.ListArray.from_arrays(column_of((ends - ends[0]).astype(np.int32), pa.int32()), items)
    made = joined_texts(one(begin), pc.binary_join(lists, one(",")), one(end))
    return made if not column.null_count else pc.if_else(pc.is_valid(column), made, _nothing(len(column)))


def _nothing(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.string())


def _repeated(text: str, rows: int) -> pa.Array:
    return pa.repeat(one(text), rows)


def _between(begin: str, text: pa.Array, end: str) -> pa.Array:
    return joined_texts(one(begin), text, one(end))


def _quoted(column: pa.Array) -> pa.Array:
    """Return texts in quotes; those that need escapes are written one by one."""
    plain = _between('"', column, '"')
    special = pc.match_substring_regex(column, _WANTS_ESCAPE)
    if not pc.any(special).as_py():
        return plain
    rows = np.flatnonzero(numbers_in(pc.fill_null(special, _FALSE)))
    return _replaced(plain, rows, texts([_escaped(each) for each in column.take(indices_of(rows)).to_pylist()]))


_FALSE = column_of(np.zeros(1, np.bool_), pa.bool_())[0]


def _replaced(column: pa.Array, rows: np.ndarray[tuple[int], np.dtype[np.int64]], values: pa.Array) -> pa.Array:
    """Return a column with other values in some rows."""
    flags = np.zeros(len(column), np.bool_)
    flags[rows] = True
    return pc.replace_with_mask(column, column_of(flags, pa.bool_()), values)


def _escaped(text: str) -> str:
    made = msgspec.json.encode(text).decode()
    if "\\u00" not in made:
        return made
    # Jackson writes the digits of an escape in capitals; two backslashes are one of the text.
    parts = made.split("\\\\")
    return "\\\\".join(
        "\\u00".join(_capitals(piece, place) for place, piece in enumerate(p.split("\\u00"))) for p in parts
    )


def _capitals(piece: str, place: int) -> str:
    return piece[:2].upper() + piece[2:] if place else piece


def _reals(column: pa.Array) -> pa.Array:
    text = real_texts(column)
    values, valid = numbers_in(column), valid_in(column)
    strange = ~np.isfinite(values)
    if valid is not None:
        strange &= valid
    if not strange.any():
        return text
    return pc.if_else(column_of(strange, pa.bool_()), _between('"', text, '"'), text)


def json_texts(options: TableOptions, prefix: str) -> JsonTexts:
    """Return how values are written.

    Raises:
        OptionError: an option cannot be.
    """
    written = options.one_of(f"{prefix}.timestamp-format.standard", ("sql", "iso-8601"), "sql")
    # No map here has the key NULL: where one would be made, the job fails before it is written.
    options.one_of(f"{prefix}.map-null-key.mode", ("fail", "drop", "literal"), "fail")
    options.text(f"{prefix}.map-null-key.literal", "null")
    return JsonTexts(
        "ISO-8601" if written == "iso-8601" else "SQL",
        options.flag(f"{prefix}.encode.ignore-null-fields"),
        options.flag(f"{prefix}.encode.decimal-as-plain-number"),
    )


def check_keys(kind: SqlType, table: str, what: str) -> None:
    """Refuse maps whose keys are no texts.

    Raises:
        OptionError: there is one in a type.
    """
    if kind.root in ("MAP", "MULTISET") and kind.of[0].root not in _TEXTS:
        raise OptionError(
            f"{table}: {what} has no {kind}, whose keys are no texts",
            next="declare MAP<STRING, …>",
            kind="type_mismatch",
        )
    for each in kind.of:
        check_keys(each, table, what)
