"""An aggregate of the user's own over whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class ArrowAggregateFunction:
    """Adds up the rows of many windows at once, as Arrow columns. Derive from it, and give an object to `aggregate`.

    What it has added up of a group of rows is one row of columns of its own, its accumulator. Rows are added up where they are
    read, accumulators travel and are kept, and a window that fires merges them. Each method returns a pyarrow.RecordBatch, a
    pyarrow.Table or a mapping of names to arrays, with one row for each group, in the order of the groups.

    Attributes:
        accumulator: DDL of the columns of an accumulator, such as "total double, weight double".
        columns: those of the rows that `accumulate` is given; none for all.
    """

    accumulator: str = ""
    columns: Sequence[str] = ()

    def accumulate(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return an accumulator for each group of rows.

        Args:
            rows: group after group, those of a group in the order they came.
            groups: the number of each row's group: 0 … count - 1, ascending; none is empty.
            count: how many groups there are.
        """
        raise NotImplementedError

    def merge(self, accumulators: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return one accumulator for each group of accumulators.

        Args:
            accumulators: group after group. In tumbling windows, windows of a number of rows and those by the clock, those of
                a group stand in the order of their rows; in others in any order. One may be in several groups.
            groups: the number of each one's group, as in `accumulate`.
            count: how many groups there are.
        """
        raise NotImplementedError

    def result(self, accumulators: pa.RecordBatch) -> Any:
        """Return the result of each accumulator: the columns of the schema that `aggregate` was given."""
        raise NotImplementedError
