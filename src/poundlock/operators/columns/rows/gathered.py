"""Rows that wait in a task until they are many: work is done on many at a time, and memory stays bounded."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_AT_ONCE = 1 << 20  # rows that are worked on at a time; a key has one change for so many at most
_BYTES_AT_ONCE = 256 << 20  # of such rows


class GatheredRows:
    """The rows that came since some were worked on, by input."""

    def __init__(self, inputs: int = 1) -> None:
        self._rows: list[list[pa.RecordBatch]] = [[] for _ in range(inputs)]
        self._count = self._bytes = 0

    def add(self, rows: pa.RecordBatch, side: int = 0) -> bool:
        """Add rows of an input; return whether it is time to work on what there is."""
        self._rows[side].append(rows)
        self._count, self._bytes = self._count + rows.num_rows, self._bytes + int(rows.nbytes)
        return self._count >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE

    def take(self) -> Sequence[list[pa.RecordBatch]]:
        """Return what there is of each input, and have nothing then."""
        taken, self._rows = self._rows, [[] for _ in self._rows]
        self._count = self._bytes = 0
        return taken
