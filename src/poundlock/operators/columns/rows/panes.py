"""The last rows of each key as panes of so many rows each, as state has them: a list of how many rows of the key have come, how many
bytes each of its panes has, and the panes themselves.

With the lengths the panes of all keys are cut out at once, and those that nobody looks at are written again as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, ends_in, numbers_in
from poundlock.operators.columns.msgpack.cursor import Cursor
from poundlock.operators.columns.msgpack.tags import INT
from poundlock.operators.columns.msgpack.writing import Fixed, list_head, lists_of, texts, written

_HEAD = list_head(3)
_LENGTH = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class KeptPanes:
    """The panes of some keys, one key behind the other.

    Args:
        rows: how many rows of each key have come.
        counts: how many panes of each key there are.
        panes: the bytes of each pane, large_binary: what its rows add up to.
    """

    rows: Numbers
    counts: Numbers
    panes: pa.Array

    @classmethod
    def of(cls, values: pa.Array) -> KeptPanes:
        """Return what was packed."""
        cursor = Cursor(values)
        cursor.skip(_HEAD)
        rows = numbers_in(cursor.integers())
        lengths = cursor.texts(pa.large_binary())()
        counts = cursor.list_lengths()
        content = cursor.rest()
        ends = np.zeros(int(counts.sum()) + 1, np.int64)
        if len(ends) > 1:
            first, last = ends_in(lengths)[[0, -1]].tolist()
            each = np.frombuffer(lengths.buffers()[2], _LENGTH, (last - first) // _LENGTH.itemsize, first)
            np.cumsum(each, out=ends[1:])
        return cls(rows, counts, _bytes(ends + ends_in(content)[0], content.buffers()[2]))

    def packed(self) -> pa.Array:
        """Return the bytes of the state of each key, large_binary."""
        lengths = np.diff(ends_in(self.panes)).astype(_LENGTH)
        ends = np.append(0, np.cumsum(self.counts)) * _LENGTH.itemsize
        parts = [
            _HEAD,
            Fixed(bytes([INT]), self.rows, ">i8"),
            *texts(_bytes(ends, pa.py_buffer(lengths))),
            lists_of(self.panes, self.counts),
        ]
        return written(parts, len(self.rows))


def _bytes(ends: Numbers, data: pa.Buffer | None) -> pa.Array:
    """Return byte strings by where each ends in some data; the first of the ends is where the first begins."""
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(ends), data])
