"""Spark SQL that tasks evaluate by themselves, a whole batch at a time: what comes out is what Spark computes, to the last bit.

Only operations whose meaning is the same in every mode of Spark are here: nothing that overflows, divides or casts text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.chunk import Batch, Chunk, NoOrigin
from poundlock.formats.convert import to_batch
from poundlock.formats.origin import subset
from poundlock.operators.chain import Filters


class Expression(Protocol):
    """A value for each row. Picklable."""

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        """Return an array with a value a row, or one scalar for all."""
        ...


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """The column at a place."""

    place: int

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        return batch.column(self.place)


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value for every row."""

    value: bool | int | float | str
    kind: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        return _scalar(self.value, self.kind)


@dataclass(frozen=True, slots=True)
class Converted:
    """A value in a wider type that holds it exactly."""

    operand: Expression
    kind: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        return self.operand.evaluate(batch).cast(self.kind)


_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares values of one type; null where one of them is null.

    Args:
        operator: such as "<=".
        left, right: the values.
        floating: whether they are floating point numbers: to Spark NaN equals itself and is above everything else.
    """

    operator: Literal["=", "<>", ">", ">=", "<", "<="]
    left: Expression
    right: Expression
    floating: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        left, right = self.left.evaluate(batch), self.right.evaluate(batch)
        found = _COMPARE[self.operator](left, right)
        if not self.floating:
            return found
        left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
        if self.operator == "=":
            return pc.or_(found, pc.and_(left_nan, right_nan))
        if self.operator == "<>":
            return pc.and_(found, pc.invert(pc.and_(left_nan, right_nan)))
        if self.operator == ">":
            return pc.or_(found, pc.and_(left_nan, pc.invert(right_nan)))
        if self.operator == "<":
            return pc.or_(found, pc.and_(right_nan, pc.invert(left_nan)))
        return pc.or_(found, left_nan if self.operator == ">=" else right_nan)


@dataclass(frozen=True, slots=True)
class BothOrEither:
    """AND or OR with three values: true, false and null, which is not known."""

    both: bool
    left: Expression
    right: Expression

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        combine = pc.and_kleene if self.both else pc.or_kleene
        return combine(self.left.evaluate(batch), self.right.evaluate(batch))


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null of null."""

    operand: Expression

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        return pc.invert(self.operand.evaluate(batch))


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is null; never null itself."""

    operand: Expression

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        return pc.is_null(self.operand.evaluate(batch))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A sum, difference or product of two double precision numbers."""

    operator: Literal["+", "-", "*"]
    left: Expression
    right: Expression

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        compute = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[self.operator]
        return compute(self.left.evaluate(batch), self.right.evaluate(batch))


@dataclass(frozen=True, slots=True)
class Negation:
    """A double precision number with the other sign."""

    operand: Expression

    def evaluate(self, batch: pa.RecordBatch) -> Any:
        return pc.negate(self.operand.evaluate(batch))


@dataclass(frozen=True)
class SqlFilter(Filters):
    """Keeps the rows for which a condition is true; not those for which it is null.

    Args:
        condition: the condition.
        schema: of the rows.
    """

    condition: Expression
    schema: pa.Schema

    def process(self, chunk: Chunk, emit: Any) -> None:
        """Emit the rows that stay, with their places."""
        rows = to_batch(chunk, self.schema)
        keep = _column(self.condition.evaluate(rows.batch), len(rows)).fill_null(_scalar(False, pa.bool_()))
        kept = rows.batch.filter(keep)
        if kept.num_rows == len(rows):
            emit("", rows)
        elif kept.num_rows:
            origin = rows.origin
            if not isinstance(origin, NoOrigin):
                origin = subset(origin, np.flatnonzero(keep.to_numpy(zero_copy_only=False)))
            emit("", Batch(kept, origin))


@dataclass(frozen=True)
class SqlColumns:
    """Makes columns of columns; each row stays a row.

    Args:
        columns: one expression for each column of the result.
        before: schema of the rows that come in.
        after: schema of the result.
    """

    columns: Sequence[Expression]
    before: pa.Schema
    after: pa.Schema

    def process(self, chunk: Chunk, emit: Any) -> None:
        """Emit the rows with their new columns."""
        rows = to_batch(chunk, self.before)
        arrays = [_column(each.evaluate(rows.batch), len(rows)) for each in self.columns]
        emit("", Batch(pa.RecordBatch.from_arrays(arrays, schema=self.after), rows.origin))


def _scalar(value: bool | int | float | str, kind: pa.DataType) -> pa.Scalar:
    """Return a value as Arrow's; `pa.scalar` would import pandas, a second of CPU in every worker."""
    if isinstance(value, str):
        data = value.encode()
        ends = np.array([0, len(data)], np.int32)
        return pa.StringArray.from_buffers(1, pa.py_buffer(ends.tobytes()), pa.py_buffer(data))[0]
    numbers = np.array([value], np.uint8 if isinstance(value, bool) else kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(numbers.tobytes())])[0]


def _column(value: Any, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value
