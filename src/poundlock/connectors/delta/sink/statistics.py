"""Smallest and largest values and the number of nulls of a file's columns, by which readers of a table leave files out.

The rules are those of "Per-file Statistics" in Delta's protocol: what is written may be wider than the values, and never narrower.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COLUMNS = 32  # as many as Delta collects them of (delta.dataSkippingNumIndexedCols)
_LETTERS = 32  # of a text that is longer only the beginning is kept, as Spark does
_LAST = "\U0010ffff"
_DIGITS = 15  # of a decimal that a number of JSON has, whoever reads it


class FileStatistics:
    """Takes the rows of one file as they are written."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        flat = [each for each in schema if not pa.types.is_nested(each.type)]
        self._types = {each.name: each.type for each in flat[:_COLUMNS]}
        self._nulls = dict.fromkeys(self._types, 0)
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._unordered = {name for name, kind in self._types.items() if not _is_ordered(kind)}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self.rows += batch.num_rows
        for name in self._types:
            column = batch.column(name)
            self._nulls[name] += column.null_count
            if name in self._unordered or column.null_count == len(column):
                continue
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self._unordered.add(name)  # a NaN is above all numbers, and JSON has none
                continue
            ends = pc.min_max(column)
            low, high = ends["min"], ends["max"]
            if name in self._low:
                low, high = _least(low, self._low[name]), _greatest(high, self._high[name])
            self._low[name], self._high[name] = low, high

    def to_json(self) -> str:
        """Return them as the log has them."""
        low = {name: _shown(value) for name, value in self._low.items() if name not in self._unordered}
        high = {name: _shown(value, up=True) for name, value in self._high.items() if name not in self._unordered}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: value for name, value in low.items() if value is not None},
                "maxValues": {name: value for name, value in high.items() if value is not None},
                "nullCount": self._nulls,
            },
            ensure_ascii=False,
        )


def _is_ordered(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _DIGITS)
    t = pa.types
    return bool(
        t.is_integer(kind) or t.is_floating(kind) or t.is_string(kind) or t.is_date(kind) or t.is_timestamp(kind)
    )


def _least(one: pa.Scalar, other: pa.Scalar) -> pa.Scalar:
    return one if pc.less(one, other).as_py() else other


def _greatest(one: pa.Scalar, other: pa.Scalar) -> pa.Scalar:
    return one if pc.greater(one, other).as_py() else other


def _shown(value: pa.Scalar, *, up: bool = False) -> Any:
    """Return a bound as JSON has it; None where there is none."""
    kind = value.type
    if pa.types.is_timestamp(kind):
        # By Arrow and not by Python, which has no years before 1 and after 9999.
        text = pc.strftime(value.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S").as_py()
        return f"{text}Z" if kind.tz else text
    if pa.types.is_date(kind):
        return value.cast(pa.string()).as_py()
    plain = value.as_py()
    if isinstance(plain, str) and len(plain) > _LETTERS:
        return _above(plain) if up else plain[:_LETTERS]
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    return float(plain) if pa.types.is_decimal(kind) else plain


def _above(text: str) -> str | None:
    """Return a short text that is not below a long one; None where there is none."""
    beginning = text[:_LETTERS]
    return None if text[_LETTERS] == _LAST else beginning + _LAST
