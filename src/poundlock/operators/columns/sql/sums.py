"""Sums of the values of groups that are right or a TerminalError: whole numbers within 64 bits, decimals within 38 digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import Flags, Numbers, column_of
from poundlock.operators.columns.groups import Groups

SAFE = 1 << 62
"""What sums of whole numbers are surely below where no check is needed."""
_DIGITS_38 = 10**38


def sum_of(values: npt.NDArray[Any], groups: Groups) -> npt.NDArray[Any]:
    """Return the sum of the values of each group, as their type adds them up."""
    return np.add.reduceat(values[groups.order], groups.starts) if len(groups) else values[:0]


def sum_exactly(numbers: Numbers, groups: Groups) -> Numbers:
    """Return sums of whole numbers. Raises TerminalError where one is too large."""
    if not len(numbers):
        return numbers
    most = max(abs(int(numbers.min())), abs(int(numbers.max())))
    sums = sum_of(numbers, groups)
    if most * int(groups.counts.max()) < SAFE:
        return sums
    check_fits(sum_of(numbers >> 32, groups), sum_of(numbers & 0xFFFFFFFF, groups))
    return sums


def check_fits(high: Numbers, low: Numbers) -> None:
    """Raise TerminalError where a sum is beyond 64 bits, given that of the upper and that of the lower 32 bits of its numbers."""
    top = high + (low >> 32)
    if ((top < -(1 << 31)) | (top >= 1 << 31)).any():
        raise too_large(pa.int64(), "a sum is beyond 64 bits")


def sum_decimals(column: pa.Array, valid: Flags | None, groups: Groups) -> npt.NDArray[Any]:
    """Return sums of decimals as the 16 bytes of each. Raises TerminalError where one has more than 38 digits."""
    parts = decimal_parts(column)
    return decimals_of([sum_of(part if valid is None else np.where(valid, part, 0), groups) for part in parts])


def decimal_parts(column: pa.Array) -> list[Numbers]:
    """Return decimals as four numbers each that can be added up apart, the lowest 32 bits first."""
    words = np.frombuffer(column.buffers()[1], "<u4").reshape(-1, 4)[column.offset : column.offset + len(column)]
    return [words[:, i].astype(np.int64) for i in range(3)] + [words[:, 3].astype(np.int32).astype(np.int64)]


def decimals_of(parts: Sequence[Numbers]) -> npt.NDArray[Any]:
    """Return sums of such parts as the 16 bytes of each decimal. Raises TerminalError where one has more than 38 digits."""
    out = np.empty((len(parts[0]), 4), "<u4")
    carry = np.zeros(len(out), np.int64)
    for i, part in enumerate(parts):
        whole = part + carry
        out[:, i] = (whole & 0xFFFFFFFF).astype(np.uint32)
        carry = whole >> 32
    top = out[:, 3].astype(np.int32).astype(np.int64)
    large = np.flatnonzero(np.abs(top) >= _DIGITS_38 >> 96)
    numbers = (int.from_bytes(out[row].tobytes(), "little", signed=True) for row in large.tolist())
    if (carry != top >> 31).any() or any(abs(number) >= _DIGITS_38 for number in numbers):
        raise too_large(pa.decimal128(38), "a sum has more than 38 digits")
    return np.ascontiguousarray(out).view(np.dtype("V16")).reshape(-1)


def average_decimals(totals: pa.Array, counts: Numbers, kind: pa.DataType) -> pa.Array:
    """Return sums divided by how many values they are of, rounded half up; of no value, and of no sum, it is null.

    Arrow gives so many digits behind the point that the first one that is cut off says how to round.
    """
    divisors = column_of(counts, pa.int64(), counts > 0).cast(pa.decimal256(19, 0))
    quotients = pc.divide(totals.cast(pa.decimal256(totals.type.precision, totals.type.scale)), divisors)
    rounded = pc.round(quotients, kind.scale, round_mode="half_towards_infinity")
    try:
        return rounded.cast(pa.decimal256(76, kind.scale)).cast(kind)
    except pa.ArrowInvalid as error:
        raise too_large(kind, str(error)) from error


def too_large(kind: pa.DataType, what: str) -> TerminalError:
    """Return the error of a result that its type cannot hold."""
    return TerminalError(
        f"the value of an aggregate does not fit its type, {kind}: {what}",
        next="let the job compute it of a wider type, such as sum(cast(n AS decimal(38, 0))) as n",
    )
