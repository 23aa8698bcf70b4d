"""Running values within groups of rows: what each row and those before it in its group come to.

The values of a group are joined from the first on, one by one, so that sums of floating point numbers are those of a loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, numbers_in, valid_in
from poundlock.operators.columns.sql.ordinals import ordinals
from poundlock.operators.columns.sql.sums import SAFE, check_fits, decimal_parts, decimals_of

_LEAST = -(1 << 63)
_FEW = 64  # rows of a group; groups with more are scanned one by one, the others a row of each at a time


def running(ufunc: np.ufunc, values: npt.NDArray[Any], starts: Numbers) -> npt.NDArray[Any]:
    """Return the running values of a function of two.

    Args:
        values: group after group.
        starts: where each group begins; none is empty.
    """
    if not len(values):
        return values
    counts = np.diff(starts, append=len(values))
    most = int(counts.max())
    if most == 1:
        return values
    out = values.copy()
    for group in np.flatnonzero(counts > _FEW).tolist():
        own = out[starts[group] : starts[group] + counts[group]]
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are sums like others
            ufunc.accumulate(own, out=own)
    few = counts <= _FEW
    if most > _FEW:
        starts, counts = starts[few], counts[few]
    order = np.argsort(-counts, kind="stable")
    starts, counts = starts[order], counts[order]
    for turn in range(1, int(counts[0]) if len(counts) else 0):
        at = starts[: int(np.searchsorted(-counts, -turn, "left"))] + turn
        with np.errstate(over="ignore", invalid="ignore"):
            out[at] = ufunc(out[at - 1], out[at])
    return out


def running_place(shown: Flags, starts: Numbers) -> Numbers:
    """Return for each row the place of the latest row of its group, itself included, that is shown; -1 where there is none."""
    places = np.maximum.accumulate(np.where(shown, np.arange(len(shown)), -1))
    counts = np.diff(starts, append=len(shown))
    result: Numbers = np.where(places >= np.repeat(starts, counts), places, -1)
    return result


def running_best(ranks: Numbers, starts: Numbers, *, first: bool) -> Numbers:
    """Return for each row the place of the row with the greatest rank so far in its group.

    Args:
        first: of equal ranks, whether the first row stays, or the last is taken.
    """
    most = running(np.maximum, ranks, starts)
    if first:
        better = np.ones(len(ranks), np.bool_)
        better[1:] = ranks[1:] > most[:-1]
        better[starts] = True
    else:
        better = ranks == most
    return running_place(better, starts)


def running_sums(column: pa.Array, starts: Numbers) -> pa.Array:
    """Return the sums of values so far, null before the first that is not; of a type that `sum_type` gives.

    Raises:
        TerminalError: a sum is beyond what its type can hold.
    """
    kind, valid = column.type, valid_in(column)
    there = None if valid is None else running_place(valid, starts) >= 0
    if pa.types.is_decimal(kind):
        parts = [part if valid is None else np.where(valid, part, 0) for part in decimal_parts(column)]
        return column_of(decimals_of([running(np.add, part, starts) for part in parts]), kind, there)
    nothing: Any = -0.0 if kind == pa.float64() else 0  # x + 0.0 is another x where that is -0.0
    numbers = numbers_in(column)
    numbers = numbers if valid is None else np.where(valid, numbers, nothing)
    if kind != pa.float64() and len(numbers):
        most = max(abs(int(numbers.min())), abs(int(numbers.max())))
        if most * int(np.diff(starts, append=len(numbers)).max()) >= SAFE:
            check_fits(running(np.add, numbers >> 32, starts), running(np.add, numbers & 0xFFFFFFFF, starts))
    return column_of(running(np.add, numbers, starts), kind, there)


def ranks_for(column: pa.Array, *, greatest: bool) -> Numbers:
    """Return whole numbers, the greatest for the greatest value or for the least; the least of all for nulls."""
    ranks, valid = ordinals(column), valid_in(column)
    ranks = ranks if greatest else ~ranks
    if valid is None:
        return ranks
    if (ranks[valid] == _LEAST).any():  # there is nothing less than that
        ranks = np.unique(ranks, return_inverse=True)[1].astype(np.int64)
    return np.where(valid, ranks, _LEAST)
