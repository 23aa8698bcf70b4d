"""Rows of results as people and programs read them: texts as Flink's shell shows them, plain values for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import STRING, SqlType

_UTC = EvaluationContext(ZoneInfo("UTC"))
Change = tuple[str, tuple[Any, ...]]
"""The kind of a change, such as "+I", and the row."""


def changes_as_texts(fields: Sequence[Field], rows: pa.RecordBatch, zone: ZoneInfo) -> list[Change]:
    """Return changes whose values are texts, None for NULL."""
    context = EvaluationContext(zone)
    columns = [evaluate(cast_to(each.ref, STRING), rows, context).to_pylist() for each in fields]
    return _changes(columns, rows)


def changes_as_values(fields: Sequence[Field], rows: pa.RecordBatch) -> list[Change]:
    """Return changes whose values are such as JSON has."""
    columns = [_plain(rows.column(each.column), each.type) for each in fields]
    return _changes(columns, rows)


def _plain(column: pa.Array, kind: SqlType) -> list[Any]:
    try:
        return [plain_value(value, kind) for value in column.to_pylist()]
    except (OverflowError, ValueError):  # a time outside of the years 1 to 9999, which Python has none for
        texts = evaluate(cast_to(ColumnRef("t", kind), STRING), pa.record_batch([column], ["t"]), _UTC)
        return [*texts.to_pylist()]


def _changes(columns: Sequence[Sequence[Any]], rows: pa.RecordBatch) -> list[Change]:
    kinds = rows.column(ROW_KIND).to_pylist() if ROW_KIND in rows.schema.names else ["+I"] * rows.num_rows
    values = zip(*columns, strict=True) if columns else [()] * rows.num_rows
    return list(zip(kinds, values, strict=True))


def plain_value(value: Any, kind: SqlType) -> Any:
    """Return a value as JSON has it: decimals, dates and times as texts, instants in UTC, bytes in hexadecimal digits."""
    if value is None:
        return None
    if kind.root == "ARRAY":
        return [plain_value(each, kind.of[0]) for each in value]
    if kind.root == "ROW":
        return [plain_value(value[name], of) for name, of in zip(kind.names, kind.of, strict=True)]
    if kind.root == "MAP":
        return {str(plain_value(key, kind.of[0])): plain_value(each, kind.of[1]) for key, each in value}
    if kind.root == "MULTISET":
        return {str(plain_value(key, kind.of[0])): count for key, count in value}
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else _special(value)
    if isinstance(value, datetime):
        precise = "milliseconds" if value.microsecond % 1_000 == 0 else "microseconds"
        if kind.root == "TIMESTAMP_LTZ":
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precise) + "Z"
        return value.isoformat(timespec=precise)
    if isinstance(value, time):
        return value.isoformat(timespec="milliseconds")
    return value.isoformat() if isinstance(value, date) else value


def _special(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


class FinalTable:
    """The rows of a result after all of its changes, in the order in which they came."""

    def __init__(self) -> None:
        self._rows: dict[Any, tuple[Any, ...]] = {}
        self._counts: Counter[Any] = Counter()

    def take(self, changes: Sequence[Change]) -> None:
        """Apply changes."""
        for kind, row in changes:
            key = repr(row)
            if kind in ("+I", "+U"):
                self._rows.setdefault(key, row)
                self._counts[key] += 1
            else:
                self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
                self._rows.pop(key, None)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows that are there."""
        return [row for key, row in self._rows.items() for _ in range(self._counts[key])]
