"""Arrow rows as the batches that keyed operators work on: keys, elements, event times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.convert import column_values
from poundlock.operators.keyed.codec import normal
from poundlock.operators.keyed.output import GroupBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedInput:
    """How the rows of one input become an operator's batches.

    Args:
        time: the column of event time, None where there is none.
        how: what an element is: a record (column -> value) or a tuple of values.
        whole: columns of a row as the user knows it, where rows may be sent on as they came.
    """

    keys: Sequence[str]
    time: str | None
    columns: Sequence[str]
    how: Literal["record", "tuple"] = "record"
    whole: Sequence[str] = ()

    def batch(self, rows: pa.RecordBatch, side: int) -> GroupBatch:
        """Return rows as a batch."""
        count = rows.num_rows
        keys = key_values([rows.column(name) for name in self.keys]) if self.keys else [None] * count
        values = [column_values(rows.column(name)) for name in self.columns]
        elements: list[Any]
        if not values:
            elements = [() for _ in range(count)] if self.how == "tuple" else [{} for _ in range(count)]
        elif self.how == "tuple":
            elements = list(zip(*values, strict=True))
        else:
            names = list(self.columns)
            elements = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        times = None if self.time is None else _ms(rows.column(self.time))
        return GroupBatch(keys, elements, times, range(count), side)


def _ms(column: pa.Array) -> list[int | None]:
    """Return timestamps as ms, rounded down; the list holds None where there is no time."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if not micros.null_count:
        return (micros.to_numpy(zero_copy_only=False) // 1000).tolist()  # type: ignore[no-any-return]
    return [None if value is None else value // 1000 for value in micros.to_pylist()]


def key_values(columns: Sequence[pa.Array]) -> list[Any]:
    """Return the keys: values where the key is one column, otherwise tuples."""
    values = [
        normal(column_values(column)) if pa.types.is_floating(column.type) else column_values(column)
        for column in columns
    ]
    return values[0] if len(values) == 1 else list(zip(*values, strict=True))


def check_keys(operator: str, texts: Sequence[Sequence[str]], sides: Sequence[pa.Schema]) -> None:
    """Raise unless keys can be distinguished, and those of several inputs can meet.

    Args:
        texts: per input with keys, the SQL text of each.

    Raises:
        DefinitionError: one is an array, a struct or a map, or the inputs' keys are of different types.
    """
    for keys, side in zip(texts, sides, strict=True):
        for text, result, first, meets in zip(keys, side, texts[0], sides[0], strict=True):
            if pa.types.is_nested(result.type):
                raise DefinitionError(
                    f"{operator}: the key {text} is of type {result.type}, which cannot be a key",
                    next=f"give its parts as several keys, or to_json({text})",
                )
            if not _meet(result.type, meets.type):
                raise DefinitionError(
                    f"{operator}: the keys {first} and {text} are of the types {meets.type} and {result.type}, which never meet",
                    next="CAST one of them to the type of the other",
                )


def _meet(one: pa.DataType, other: pa.DataType) -> bool:
    return one == other or any(alike(one) and alike(other) for alike in (pa.types.is_integer, pa.types.is_floating))
