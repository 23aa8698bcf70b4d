"""Calls of functions of SQL without a script: over whole columns, over slices of longer ones, and row by row, which have to agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.types import BYTES, STRING, Root, SqlType

_PLAIN: dict[pa.DataType, Root] = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.date32(): "DATE",
}  # fmt: skip


class Functions:
    """Functions by their names.

    Args:
        zone: of the session.
        now_us: the time of the checkpoint.
    """

    def __init__(self, functions: Sequence[SqlFunction], *, zone: str = "UTC", now_us: int = 0) -> None:
        self.named = {each.name: each for each in functions}
        self.zone = ZoneInfo(zone)
        self.now_us = now_us

    def type_of(self, name: str, *arguments: object) -> SqlType:
        """Return the type of a call: columns as in `call`, everything else literals."""
        return self.named[name].returns([given_of(each) for each in arguments])

    def call(
        self,
        name: str,
        *arguments: object,
        options: tuple[str, ...] = (),
        returns: SqlType | None = None,
        rows: int | None = None,
        by_row: bool = True,
    ) -> list[Any]:
        """Return the values of a call, which is made of whole columns, of slices of longer ones, and of each row alone.

        Args:
            arguments: columns, or values that are the same in all rows.
            returns: the type of the call; by default what the function says.
            rows: how many there are; by default as many as a column has.
            by_row: whether it gives the same for one row alone.
        """
        function = self.named[name]
        count = next((len(each) for each in arguments if isinstance(each, pa.Array)), 3) if rows is None else rows
        columns = [each if isinstance(each, pa.Array) else repeated(each, count) for each in arguments]
        made = returns or self.type_of(name, *arguments)
        whole = function.run(columns, Evaluation(count, self.zone, self.now_us, made, options))
        whole.validate(full=True)
        assert whole.type == made.arrow, f"{whole.type} of a call of type {made}"
        values: list[Any] = whole.to_pylist()
        sliced = function.run(
            [inside(column) for column in columns], Evaluation(count, self.zone, self.now_us, made, options)
        )
        sliced.validate(full=True)
        assert_same(sliced.to_pylist(), values)
        if by_row:
            one = Evaluation(1, self.zone, self.now_us, made, options)
            alone = [function.run([column.slice(row, 1) for column in columns], one)[0].as_py() for row in range(count)]
            assert_same(alone, values)
        none = function.run([column.slice(0, 0) for column in columns], Evaluation(0, self.zone, 0, made, options))
        assert (len(none), none.type) == (0, made.arrow)
        return values


def assert_same(some: Sequence[Any], others: Sequence[Any]) -> None:
    """Assert that values are the same; NaN is one of them."""
    assert list(map(_comparable, some)) == list(map(_comparable, others))


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def inside(column: pa.Array) -> pa.Array:
    """Return a column as a slice of a longer one, whose other values are other values."""
    others = column.take(pa.array(list(range(len(column)))[::-1] * 2, pa.int64()))
    return pa.concat_arrays([others, column, others]).slice(len(others), len(column))


def repeated(value: object, rows: int) -> pa.Array:
    """Return a literal as a column."""
    kind = literal_type(value)
    return pa.array([value] * rows, pa.string() if kind is None else kind.arrow)


def given_of(argument: object) -> Given:
    """Return an argument as the analysis knows it."""
    if isinstance(argument, pa.Array):
        return Given(sql_type(argument.type))
    return Given((literal_type(argument) or STRING).not_null(), is_literal=True, value=argument)


def literal_type(value: object) -> SqlType | None:
    """Return the type of a literal; None of NULL."""
    if value is None:
        return None
    if isinstance(value, bool):
        return SqlType("BOOLEAN")
    if isinstance(value, int):
        return SqlType("INT" if -(2**31) <= value < 2**31 else "BIGINT")
    if isinstance(value, float):
        return SqlType("DOUBLE")
    if isinstance(value, datetime):
        return SqlType("TIMESTAMP", (3,))
    if isinstance(value, date):
        return SqlType("DATE")
    if isinstance(value, list):
        return SqlType("ARRAY", of=(next(filter(None, map(literal_type, value)), SqlType("INT")),))
    return BYTES if isinstance(value, bytes) else STRING


def sql_type(kind: pa.DataType) -> SqlType:
    """Return the SQL type whose columns have an Arrow type."""
    if kind in _PLAIN:
        return SqlType(_PLAIN[kind])
    if pa.types.is_timestamp(kind):
        return SqlType("TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ", (3 if kind.unit == "us" else 9,))
    if pa.types.is_time32(kind):
        return SqlType("TIME", (0,))
    if pa.types.is_decimal(kind):
        return SqlType("DECIMAL", (kind.precision, kind.scale))
    if pa.types.is_list(kind):
        return SqlType("ARRAY", of=(sql_type(kind.value_type),))
    if pa.types.is_map(kind):
        return SqlType("MAP", of=(sql_type(kind.key_type), sql_type(kind.item_type)))
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return SqlType(
            "ROW", of=tuple(sql_type(each.type) for each in fields), names=tuple(each.name for each in fields)
        )
    return BYTES if pa.types.is_binary(kind) else STRING
