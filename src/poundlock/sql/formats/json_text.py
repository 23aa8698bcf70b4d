"""Columns as JSON, text by text, column after column."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import indices_of, texts_of, valid_in
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.formats.json_values import TimestampFormat
from poundlock.sql.kernels.columns import by_value, texts
from poundlock.sql.kernels.rendering import decimal_texts, text_of, timestamp_texts
from poundlock.sql.types import SqlType

from zoneinfo import ZoneInfo  # isort: skip

_UTC = ZoneInfo("UTC")


def _one(text: str) -> pa.Scalar:
    return texts_of([text])[0]


@dataclass(frozen=True)
class JsonTexts:
    """How values are written.

    Args:
        timestamps: how times are written.
        leaves_nulls_out: whether a field that is null is left out of its object.
        plain_decimals: whether decimals have no exponent.
    """

    timestamps: TimestampFormat = "SQL"
    leaves_nulls_out: bool = False
    plain_decimals: bool = False

    def objects(self, columns: Sequence[pa.Array], kind: SqlType) -> pa.Array:
        """Return an object for each row of columns."""
        names = [msgspec.json.encode(name).decode() for name in kind.names]
        if not columns:
            return texts_of([])
        parts = []
        for name, column, of in zip(names, columns, kind.of, strict=True):
            text = self.texts(column, of)
            pair = pc.binary_join_element_wise(_one(f"{name}:"), text, _one(""))
            if not self.leaves_nulls_out:
                pair = pc.if_else(pc.is_valid(text), pair, _one(f"{name}:null"))
            parts.append(pair)
        inner = pc.binary_join_element_wise(*parts, _one(","), null_handling="skip")
        return pc.binary_join_element_wise(_one("{"), inner, _one("}"), _one(""))

    def texts(self, column: pa.Array, kind: SqlType) -> pa.Array:
        """Return each value as JSON, null for null."""
        if kind.root in ("CHAR", "VARCHAR"):
            return by_value(column, lambda values: texts([None if v is None else _quoted(v) for v in values]))
        if kind.root in ("BINARY", "VARBINARY"):
            return by_value(
                column,
                lambda values: texts([None if v is None else _quoted(base64.b64encode(v).decode()) for v in values]),
            )
        if kind.root == "DECIMAL":
            return self._decimals(column)
        if kind.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            return self._timestamps(column, kind)
        if kind.root in ("DATE", "TIME"):
            return pc.binary_join_element_wise(_one('"'), text_of(column, kind, _UTC), _one('"'), _one(""))
        if kind.root == "ARRAY":
            return self._joined(column, self.texts(column.flatten(), kind.of[0]), "[", "]")
        if kind.root in ("MAP", "MULTISET"):
            return self._maps(column, kind)
        if kind.root == "ROW":
            made = self.objects(list(column.flatten()), kind)
            return pc.if_else(pc.is_valid(column), made, pa.nulls(len(column), pa.string()))
        return text_of(column, kind, _UTC)

    def _decimals(self, column: pa.Array) -> pa.Array:
        if self.plain_decimals:
            return decimal_texts(column)
        return by_value(column, lambda values: texts([None if v is None else _scientific(v) for v in values]))

    def _timestamps(self, column: pa.Array, kind: SqlType) -> pa.Array:
        is_zoned = kind.root == "TIMESTAMP_LTZ"
        naive = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")) if is_zoned else column
        text = _short_fraction(timestamp_texts(naive, kind.sizes[0]))
        if self.timestamps == "ISO-8601":
            text = pc.replace_substring(text, " ", "T")
        return pc.binary_join_element_wise(_one('"'), text, _one('Z"' if is_zoned else '"'), _one(""))

    def _joined(self, column: pa.Array, items: pa.Array, begin: str, end: str) -> pa.Array:
        shown = pc.if_else(pc.is_valid(items), items, _one("null"))
        lists = pa.ListArray.from_arrays(_offsets(column), shown)
        inner = pc.binary_join(lists, _one(","))
        made = pc.binary_join_element_wise(_one(begin), inner, _one(end), _one(""))
        return pc.if_else(pc.is_valid(column), made, pa.nulls(len(column), pa.string()))

    def _maps(self, column: pa.Array, kind: SqlType) -> pa.Array:
        of = SqlType("INT") if kind.root == "MULTISET" else kind.of[1]
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        keys = text_of(column.keys.slice(first, last - first), kind.of[0], _UTC)
        quoted = by_value(keys, lambda values: texts([None if v is None else _quoted(v) for v in values]))
        items = self.texts(column.items.slice(first, last - first), of)
        shown = pc.if_else(pc.is_valid(items), items, _one("null"))
        return self._joined(column, pc.binary_join_element_wise(quoted, shown, _one(":")), "{", "}")


def _offsets(column: pa.Array) -> pa.Array:
    """Return where each list begins among the elements that flatten gives, and where the last one ends."""
    valid = valid_in(column)
    starts = np.frombuffer(column.offsets.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    counts = np.diff(starts).astype(np.int64)
    if valid is not None:
        counts = np.where(valid, counts, 0)
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return indices_of(ends).cast(pa.int32())


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _scientific(value: object) -> str:
    """Return a decimal as Jackson writes it: without zeros at its end, with an exponent where Java's BigDecimal has one."""
    from decimal import Decimal

    assert isinstance(value, Decimal)
    return "0" if not value else str(value.normalize())


def _short_fraction(text: pa.Array) -> pa.Array:
    """Return times without zeros at the end of a fraction."""
    return pc.replace_substring_regex(text, r"(\.\d*?)0+$", r"\1").cast(pa.string()) if len(text) else text


def json_texts(options: TableOptions, prefix: str) -> JsonTexts:
    """Return how values are written.

    Raises:
        OptionError: an option cannot be.
    """
    written = options.one_of(f"{prefix}.timestamp-format.standard", ("sql", "iso-8601"), "sql")
    options.one_of(f"{prefix}.map-null-key.mode", ("fail", "drop", "literal"), "fail")
    options.text(f"{prefix}.map-null-key.literal", "null")
    return JsonTexts(
        "ISO-8601" if written == "iso-8601" else "SQL",
        options.flag(f"{prefix}.encode.ignore-null-fields"),
        options.flag(f"{prefix}.encode.decimal-as-plain-number"),
    )
